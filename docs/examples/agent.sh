#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A session as an agent would have it: sh docs/examples/agent.sh MOUNTPOINT (an sbxfs that is mounted).
# Prints a line per step, and ends with "agent example: ok".  Needs rsync.
set -eu
mount=${1:?usage: agent.sh MOUNTPOINT}
box=$mount/agent-example-$$
work=$(mktemp -d)
trap 'rmdir "$box" 2>/dev/null || :; rm -rf "$work"' EXIT

step() {
	printf '%s\n' "- $*"
}

expect() { # expect WHAT GOT WANTED
	[ "$2" = "$3" ] || {
		echo "agent example: $1: '$2' instead of '$3'" >&2
		exit 1
	}
}

step "make a sandbox, with limits"
mkdir "$box"
cat "$box/ready" >/dev/null
echo 100 >"$box/limits/pids"
echo 8M >"$box/limits/output"
echo 1m >"$box/limits/timeout"
if echo 256M >"$box/limits/memory"; then
	echo 1.5 >"$box/limits/cpu"
	expect "limits/memory" "$(cat "$box/limits/memory")" 268435456
else
	step "($(cat "$box/error"))" # an ordinary user without cgroups
fi 2>/dev/null
expect "limits/timeout" "$(cat "$box/limits/timeout")" 60

step "upload inputs, a module among them"
mkdir "$work/in"
printf 'def double(x):\n    return 2 * x\n' >"$work/in/helper.py"
printf '1\n2\n3\n' >"$work/in/numbers.txt"
cp -r "$work/in/." "$box/workspace/"

step "run code that imports the module and reads the file"
cat >"$box/run/code.py" <<'PY'
import helper
total = sum(helper.double(int(line)) for line in open("numbers.txt"))
print("total", total)
open("result.txt", "w").write(f"{total}\n")
PY
expect "exit" "$(cat "$box/run/exit")" 0
expect "stdout" "$(cat "$box/run/stdout")" "total 12"

step "start a server in the background, follow its log, ask it by a second run"
mkdir "$box/processes/web"
echo 'exec python3 -u -m http.server 8123' >"$box/processes/web/command"
cat "$box/processes/web/stream" >"$work/log" & # ends when the server does
follower=$!
cat >"$box/run/code.py" <<'PY'
import time, urllib.request
for _ in range(200):
    try:
        print(urllib.request.urlopen("http://127.0.0.1:8123/result.txt").read().decode().strip())
        break
    except OSError:
        time.sleep(0.05)
PY
expect "the server's answer" "$(cat "$box/run/stdout")" 12
grep -q 'GET /result.txt' "$box/processes/web/logs" # what came so far, without waiting
expect "ports" "$(cat "$box/ports")" 8123
grep -q '^' "$box/usage" || step "(no usage without a cgroup of its own)"

step "end the server"
echo TERM >"$box/processes/web/signal"
expect "the server's exit" "$(cat "$box/processes/web/exit")" 143
wait "$follower"
grep -q 'GET /result.txt' "$work/log"
rmdir "$box/processes/web"

step "a program that fails"
echo 'raise SystemExit("no such luck")' >"$box/run/code.py"
expect "exit" "$(cat "$box/run/exit")" 1
expect "stderr" "$(cat "$box/run/stderr")" "no such luck"

step "a program that takes too long"
echo 1s >"$box/run/timeout"
echo 'while True: pass' >"$box/run/code.py"
expect "exit" "$(cat "$box/run/exit")" 124
expect "status" "$(cat "$box/run/status")" timeout
rm "$box/run/timeout"

step "a program that is refused"
if printf 'x = "coinhive"\n' | tee "$box/run/code.py" >/dev/null 2>&1; then
	step "(the policy of this mount allows it)"
else
	step "($(cat "$box/run/error"))"
fi

step "collect outputs"
mkdir "$work/out"
rsync -a "$box/workspace/" "$work/out/"
expect "result.txt" "$(cat "$work/out/result.txt")" 12
expect "helper.py" "$(cat "$work/out/helper.py")" "$(cat "$work/in/helper.py")"

step "delete"
rmdir "$box"
[ ! -e "$box" ]
echo "agent example: ok"
