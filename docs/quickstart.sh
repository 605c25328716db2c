#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sbxfs in one command, for Debian 12 and Ubuntu:  sh docs/quickstart.sh
#
# Installs what is missing (apt, with sudo when you are not root), builds into a temporary folder, mounts sandboxes
# of this machine there, runs Python, Node and shell code by writing files, and removes everything but the
# packages again.
set -eu
cd "$(dirname "$0")/.."

die() {
	echo "quickstart: $*" >&2
	exit 1
}

# explain WHAT COMMAND [EXPECTED]: say it, show it, do it, and see that it printed what it should
explain() {
	printf '\n# %s\n$ %s\n' "$1" "$2"
	if [ $# = 2 ]; then
		eval "$2"
		return
	fi
	printed=$(eval "$2")
	printf '%s\n' "$printed"
	[ "$printed" = "$3" ] || die "expected '$3' here; box/demo/run/stderr: $(cat box/demo/run/stderr)"
}

packages="gcc libc6-dev meson ninja-build pkg-config musl-tools libfuse3-dev libcjson-dev libyaml-dev fuse3 runc crun python3"
command -v node >/dev/null || packages="$packages nodejs"
command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
	die "this is neither Debian nor Ubuntu; README.md lists what to install elsewhere"
missing=
for p in $packages; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
if [ -n "$missing" ]; then
	sudo=
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null || die "please install, as root: apt-get install$missing"
		sudo=sudo
	fi
	echo "# install what is missing:$missing"
	$sudo apt-get update -q >/dev/null || die "apt-get update failed"
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >/dev/null ||
		die "apt-get install failed; try it by hand: apt-get install$missing"
fi
[ -e /dev/fuse ] || die "there is no /dev/fuse: load the module (modprobe fuse) or give it to this container"
(exec 3<>/dev/fuse) 2>/dev/null || die "you may not use /dev/fuse; as root: chmod 666 /dev/fuse"

tmp=$(mktemp -d "${TMPDIR:-/var/tmp}/sbxfs-quickstart.XXXXXX")

# is a daemon of this script left? It takes its containers away before it ends.
running() {
	for exe in /proc/[0-9]*/exe; do
		[ "$(readlink "$exe" 2>/dev/null)" != "$tmp/build/fs/sbxfs" ] || return 0
	done
	return 1
}

clean() {
	status=$?
	trap - EXIT
	cd /
	if grep -q " $tmp/box " /proc/self/mountinfo; then
		fusermount3 -u "$tmp/box" 2>/dev/null || fusermount3 -uz "$tmp/box" || true
	fi
	n=0
	while running && [ $n -lt 100 ]; do
		n=$((n + 1))
		sleep 0.1
	done
	rm -rf "$tmp"
	exit $status
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

echo "# build (log: $tmp/build.log)"
{ meson setup "$tmp/build" . && ninja -C "$tmp/build"; } >"$tmp/build.log" 2>&1 || {
	tail -n 20 "$tmp/build.log" >&2
	die "the build failed; its last lines are above"
}
PATH=$tmp/build/fs:$PATH
mkdir "$tmp/box"
echo "state_dir: $tmp/state" >"$tmp/config.yaml"

echo
echo "# is everything there that a sandbox needs?"
sbxfs check local -o config="$tmp/config.yaml" >"$tmp/check" 2>&1 || {
	cat "$tmp/check" >&2
	die "something that a sandbox needs is missing, see above"
}
cat "$tmp/check"
cd "$tmp"

explain "mount sandboxes of this machine" "sbxfs local box -o config=config.yaml"
explain "create a sandbox" "mkdir box/demo"
explain "write Python code: it runs when the file is closed" "echo 'print(6*7)' > box/demo/run/code.py"
explain "read what it printed; this waits until the run is over" "cat box/demo/run/stdout" 42
explain "its exit code" "cat box/demo/run/exit" 0
explain "give the code a file to work with" "echo '[1, 2, 3]' > box/demo/workspace/data.json"
explain "Node: sum it up" \
	"echo 'console.log(require(\"./data.json\").reduce((a, b) => a + b))' > box/demo/run/code.js"
explain "the result" "cat box/demo/run/stdout" 6
explain "shell code that fails" "echo 'echo out; echo wrong >&2; exit 3' > box/demo/run/code.sh"
explain "its stdout" "cat box/demo/run/stdout" out
explain "its stderr" "cat box/demo/run/stderr" wrong
explain "its exit code" "cat box/demo/run/exit" 3
explain "delete the sandbox with everything in it" "rmdir box/demo"
explain "unmount" "cd / && fusermount3 -u $tmp/box"
printf '\nDone; everything but the packages is removed again. To keep it: meson setup build && ninja -C build install\n'
