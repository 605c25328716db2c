# SPDX-License-Identifier: Apache-2.0
"""Whatever tool reads the results: it gets all of them, also when it starts while the run goes on."""
import errno
import hashlib
import os
import re
import select
import signal
import stat
import time

import pytest
from helpers import (
    children,
    count,
    counted,
    expect_errno,
    finish,
    kill,
    need,
    proc_state,
    sh,
    skip,
    spawn,
    started,
    terminal,
    until_waiting,
    wait_for,
)

PYTHON = "/usr/bin/python3"
LINES = [f"line {i}" for i in range(20000)]
BODY = "READY\n" + "\n".join(LINES) + "\n"
SHA = hashlib.md5(BODY.encode()).hexdigest()

# Prints READY, waits for workspace/go, then prints the rest.
SLOW_CODE = """import os, time
print('READY', flush=True)
while not os.path.exists('go'):
    time.sleep(0.005)
os.unlink('go')
print('\\n'.join(f'line {i}' for i in range(20000)))
"""

# $F stdout, $D run/, $T a folder outside, $N a name outside that takes the copy, $M one inside the mount's workspace.
# The value is (script, what it must print; None: $N must be the copy).
WHOLE = BODY
READERS = {
    "cat": ("cat $F", WHOLE),
    "busybox cat": ("busybox cat $F", WHOLE),
    "bash $(<f)": ('printf "%s\\n" "$(<$F)"', WHOLE),
    "bash $(cat f)": ('printf "%s\\n" "$(cat $F)"', WHOLE),
    "bash mapfile": ("mapfile -t a < $F; printf '%s\\n' \"${a[@]}\"", WHOLE),
    "bash read": ("read -r x < $F; echo $x", "READY\n"),
    "dash while read": (
        """dash -c 'i=0; while read -r x && [ $i -lt 300 ]; do echo "$x"; i=$((i + 1)); done < $F'""",
        "\n".join(["READY"] + LINES[:299]) + "\n",
    ),
    "head -n1": ("head -n1 $F", "READY\n"),
    "head -c5": ("head -c5 $F", "READY"),
    "tail -n1": ("tail -n1 $F", LINES[-1] + "\n"),
    "tail -c12": ("tail -c12 $F", BODY[-12:]),
    "tail -n+2": ("tail -n+2 $F", BODY[6:]),
    "wc -l": ("wc -l < $F", f"{len(LINES) + 1}\n"),
    "wc -c": ("wc -c < $F", f"{len(BODY)}\n"),
    "wc": ("wc -c $F | cut -d' ' -f1", f"{len(BODY)}\n"),
    "md5sum": ("md5sum < $F", SHA + "  -\n"),
    "cp": ("cp $F $N", None),
    "cp -a": ("cp -a $F $N", None),
    "cp --sparse=always": ("cp --sparse=always $F $N", None),
    "cp inside the mount": ("cp $F $M && cat $M", WHOLE),
    "install": ("install -m 644 $F $N", None),
    "busybox cp": ("busybox cp $F $N", None),
    "tar": ("tar -C $D -c stdout | tar -C $T -x && mv $T/stdout $N", None),
    "rsync": ("rsync $F $N", None),
    "rsync -a of run/": ("rsync -a --include=stdout --exclude='*' $D/ $T/r/ && mv $T/r/stdout $N", None),
    "python open": (f"""{PYTHON} -c 'import os; print(open(os.environ["F"]).read(), end="")'""", WHOLE),
    "python os.read": (
        f"""{PYTHON} -c 'import os
fd = os.open(os.environ["F"], os.O_RDONLY)
while b := os.read(fd, 1 << 20): os.write(1, b)'""",
        WHOLE,
    ),
    "python shutil.copyfile": (
        f"""{PYTHON} -c 'import os, shutil; shutil.copyfile(os.environ["F"], os.environ["N"])'""",
        None,
    ),
    "python shutil.copy2": (
        f"""{PYTHON} -c 'import os, shutil; shutil.copy2(os.environ["F"], os.environ["N"])'""",
        None,
    ),
    "python os.sendfile": (
        f"""{PYTHON} -c 'import os
i, o = os.open(os.environ["F"], 0), os.open(os.environ["N"], os.O_CREAT | os.O_WRONLY)
n = 0
while k := os.sendfile(o, i, n, 1 << 20): n += k'""",
        None,
    ),
    "python mmap": (
        f"""{PYTHON} -c 'import mmap, os
fd = os.open(os.environ["F"], 0)
os.write(1, mmap.mmap(fd, 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE))' | cat""",
        WHOLE,
    ),
    "python mmap shared": (
        f"""{PYTHON} -c 'import mmap, os
fd = os.open(os.environ["F"], 0)
os.write(1, mmap.mmap(fd, 0, prot=mmap.PROT_READ))' | cat""",
        WHOLE,
    ),
    "python subprocess stdin": (
        f"""{PYTHON} -c 'import os, subprocess; subprocess.run(["cat"], stdin=open(os.environ["F"]))'""",
        WHOLE,
    ),
    "node readFileSync": ("""node -e 'process.stdout.write(require("fs").readFileSync(process.env.F))' | cat""", WHOLE),
    "node readFile": (
        """node -e 'require("fs").readFile(process.env.F, (e, d) => process.stdout.write(d))' | cat""",
        WHOLE,
    ),
    "node promises.readFile": (
        """node -e 'require("fs").promises.readFile(process.env.F).then((d) => process.stdout.write(d))' | cat""",
        WHOLE,
    ),
    "node createReadStream": (
        """node -e 'require("fs").createReadStream(process.env.F).pipe(process.stdout)' | cat""",
        WHOLE,
    ),
    "node copyFile": ("""node -e 'require("fs").copyFileSync(process.env.F, process.env.N)'""", None),
    "gawk": ("gawk '{ print }' $F", WHOLE),
    "mawk": ("mawk '{ print }' $F", WHOLE),
    "sed": ("sed -n p $F", WHOLE),
    "sort": ("sort -s -k1,1r -k2,2n $F | tail -n2", "\n".join(LINES[-1:] + ["READY"]) + "\n"),
    "diff": ("diff $F $T/want && echo same", "same\n"),
    "cmp": ("cmp $F $T/want && echo same", "same\n"),
    "od": ("od -An -c -N6 $F", "   R   E   A   D   Y  \\n\n"),
    "dd": ("dd if=$F bs=4096 status=none", WHOLE),
    "dd iflag=direct": ("dd if=$F bs=1M iflag=direct status=none", WHOLE),
    "grep": ("grep -c line $F", f"{len(LINES)}\n"),
    "grep -q": ("grep -q 'line 19999' $F && echo there", "there\n"),
    "grep -r": ("grep -rh 'line 19999$' $D --include=stdout", "line 19999\n"),
    "perl slurp": ("""perl -0777 -ne print $F""", WHOLE),
    "perl lines": ("""perl -pe '' $F""", WHOLE),
    "jq -R": ("jq -Rr . $F", WHOLE),
    "xargs -a": ("xargs -a $F -n 100000 echo | head -c 12", "READY line 0"),
    "file": ("cat $D/exit > /dev/null; file -b $F", "ASCII text\n"),  # it believes the size that stat shows
    "strings": ("strings $F | head -n1", "READY\n"),
    "zip of gzip": ("gzip -c $F | gzip -dc", WHOLE),
    "busybox wc": ("busybox wc -c < $F", f"{len(BODY)}\n"),
    "vim -es": ("vim -u NONE -i NONE -es -c '%print' -c q! $F", WHOLE),
    "curl file://": ("curl -s file://$F", WHOLE),
    "socat or cat by descriptor": ("exec 5< $F; cat <&5", WHOLE),
}
PACKAGES = {"node": "nodejs", "vim": "vim-nox", "strings": "binutils"}
TOOLS = "dash busybox node gawk mawk jq rsync file strings vim curl perl diff xargs".split()


def environment(box, tmp):
    (tmp / "want").write_text(BODY)
    return {
        **os.environ,
        "F": str(box.run / "stdout"),
        "D": str(box.run),
        "T": str(tmp),
        "N": str(tmp / "copy"),
        "M": str(box.ws / "copy"),
    }


def need_tools(script):
    for tool in TOOLS:
        if tool in script.split():
            need(tool, PACKAGES.get(tool))


def check(done, want, tmp):
    assert done.rc == 0, (done.rc, done.err[-500:])
    got = (tmp / "copy").read_text() if want is None else done.text
    want = BODY if want is None else want
    assert len(got) == len(want) and got == want, f"{len(got)} of {len(want)} bytes: {got[:80]!r}"


@pytest.mark.parametrize("tool", READERS)
def test_complete_results_while_the_run_goes_on_by(box, tmp, tool):
    script, want = READERS[tool]
    need_tools(script)
    env = environment(box, tmp)
    box.start(SLOW_CODE)
    reader = spawn(script, env=env)
    until_waiting(reader, tool)
    (box.ws / "go").touch()
    check(finish(reader), want, tmp)


@pytest.mark.parametrize("tool", READERS)
def test_complete_results_right_after_the_save_by(box, tmp, tool):
    script, want = READERS[tool]
    need_tools(script)
    env = environment(box, tmp)
    if "rsync -a" in tool or tool in ("tar", "grep -r"):
        script = "cat $D/exit > /dev/null; " + script  # they look with lstat first: exit is the barrier
    done = sh(
        f"""printf '%s' "$CODE" > $D/code.py; {script}""",
        env={**env, "CODE": "print('READY')\nprint('\\n'.join(f'line {i}' for i in range(20000)))\n"},
    )
    check(done, want, tmp)


SIGNALS = {
    "SIGCHLD": [signal.SIGCHLD],
    "SIGCONT": [signal.SIGCONT],
    "SIGSTOP and SIGCONT": [signal.SIGSTOP, signal.SIGCONT],
    "SIGTSTP and SIGCONT": [signal.SIGTSTP, signal.SIGCONT],
    "SIGWINCH": [signal.SIGWINCH],
    "SIGURG": [signal.SIGURG],
}
DISTURBED = [
    "cat",
    "busybox cat",
    "bash $(<f)",
    "bash mapfile",
    "dash while read",
    "head -n1",
    "wc -c",
    "md5sum",
    "cp",
    "tar",
    "rsync",
    "python open",
    "python shutil.copyfile",
    "python os.sendfile",
    "node readFileSync",
    "gawk",
    "mawk",
    "sed",
    "sort",
    "perl slurp",
    "perl lines",
    "diff",
    "dd",
    "grep",
]


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("tool", DISTURBED)
def test_a_signal_that_ends_nothing_does_not_break_the_wait_of(box, tmp, tool, name):
    script, want = READERS[tool]
    need_tools(script)
    env = environment(box, tmp)
    box.start(SLOW_CODE)
    reader = spawn(script, env=env)
    until_waiting(reader, tool)
    for _ in range(2):
        for sig in SIGNALS[name]:
            kill(reader, sig)
            wait_a_bit(reader)
    (box.ws / "go").touch()
    check(finish(reader), want, tmp)


def wait_a_bit(reader):
    """Give a signal the time to do harm. Nothing can be waited for: that nothing happens is the point."""
    end = time.monotonic() + 0.03
    while time.monotonic() < end and reader.poll() is None:
        time.sleep(0.005)


def test_children_that_end_do_not_break_the_wait_of_a_shell(box):
    box.start(SLOW_CODE)
    script = f"""trap : CHLD; for i in 1 2 3 4 5; do sleep 0.0$i & done; x=$(<{box.run}/stdout); printf '%s\\n' "$x" """
    reader = spawn(script)
    until_waiting(reader)
    wait_for(lambda: {proc_state(c) for c in children(reader.pid)} <= {"Z", ""}, "the children have ended")
    (box.ws / "go").touch()
    assert finish(reader).ok().text == BODY


def test_a_second_signal_that_ends_the_reader_does_after_one_that_does_not(box):
    box.start(SLOW_CODE)
    reader = spawn(["cat", box.run / "stdout"])
    until_waiting(reader)
    kill(reader, signal.SIGWINCH)
    kill(reader, signal.SIGCHLD)
    wait_a_bit(reader)
    kill(reader, signal.SIGTERM)
    assert finish(reader).rc == -signal.SIGTERM


def test_o_nonblock_is_ignored_by_results(box):
    box.start(SLOW_CODE)
    reader = spawn(
        [
            PYTHON,
            "-c",
            f"import os, sys; fd = os.open({str(box.run / 'stdout')!r}, os.O_RDONLY | os.O_NONBLOCK)\n"
            "while b := os.read(fd, 65536): sys.stdout.buffer.write(b)",
        ]
    )
    until_waiting(reader)
    (box.ws / "go").touch()
    assert finish(reader).ok().text == BODY


@pytest.mark.parametrize("name", ["stdout", "stderr", "exit", "result.json"])
def test_all_results_wait_and_are_final(box, name):
    box.start(SLOW_CODE)
    reader = spawn(["cat", box.run / name])
    until_waiting(reader)
    (box.ws / "go").touch()
    got = finish(reader).ok().out
    assert got == (box.run / name).read_bytes()
    assert got.startswith({"stdout": b"READY", "stderr": b"", "exit": b"0\n", "result.json": b"{"}[name])


def test_stat_status_logs_and_listing_never_wait(box):
    box.start(SLOW_CODE)
    for name in ("stdout", "exit", "result.json"):
        assert os.stat(box.run / name).st_size == 0
    assert box.status() == "running"
    assert (box.run / "logs").read_bytes() == b"READY\n"
    assert os.stat(box.run / "logs").st_size == 6
    assert (box.run / "error").read_bytes() == b""
    assert (box.run / "code.py").read_text() == SLOW_CODE
    sh(["ls", "-lR", box.path]).ok()
    sh(["find", box.path, "-size", "+1"]).ok()
    sh(["du", "-a", box.path]).ok()
    assert sh(["test", "-s", box.run / "stdout"]).rc == 1
    (box.ws / "go").touch()
    assert box.exit() == 0
    assert sh(["test", "-s", box.run / "stdout"]).rc == 0, "after cat exit the size is true"
    assert os.stat(box.run / "stdout").st_size == len(BODY)
    assert os.stat(box.run / "stdout").st_blocks >= len(BODY) // 512


def test_results_have_the_mode_0440(box):
    box.go("print(1)")
    for name in ("stdout", "stderr", "exit", "result.json"):
        assert stat.S_IMODE(os.stat(box.run / name).st_mode) == 0o440


def test_the_size_is_true_for_a_handle_that_was_opened_while_the_run_went_on(box):
    box.start(SLOW_CODE)
    reader = spawn(
        [
            PYTHON,
            "-c",
            f"import os; f = open({str(box.run / 'stdout')!r}, 'rb'); print(os.fstat(f.fileno()).st_size, len(f.read()))",
        ]
    )
    until_waiting(reader)
    (box.ws / "go").touch()
    assert finish(reader).ok().text == f"{len(BODY)} {len(BODY)}\n"


def test_an_open_result_belongs_to_its_run_for_ever(box):
    box.go("print('first' * 3000)")
    with open(box.run / "stdout", "rb") as f:
        old = os.fstat(f.fileno())
        assert box.go("print('second')").text == "second\n"
        assert os.fstat(f.fileno()).st_ino == old.st_ino and os.fstat(f.fileno()).st_size == old.st_size
        assert f.read() == b"first" * 3000 + b"\n"
    assert os.stat(box.run / "stdout").st_ino != old.st_ino


def test_stream_is_live_and_ends_with_the_program(box):
    box.start(
        """import os, time
print('READY', flush=True)
for i in range(3):
    while not os.path.exists(f'go{i}'):
        time.sleep(0.002)
    print('piece', i, flush=True)
while not os.path.exists('end'):
    time.sleep(0.002)
"""
    )
    cat = spawn(["cat", box.run / "stream"])
    assert cat.stdout.readline() == b"READY\n"
    for i in range(3):
        (box.ws / f"go{i}").touch()
        assert cat.stdout.readline() == f"piece {i}\n".encode()
    until_waiting(cat)
    (box.ws / "end").touch()
    assert finish(cat).ok().out == b""


def test_stream_wakes_poll_and_gives_eagain_when_asked_not_to_wait(box):
    box.start(SLOW_CODE)
    fd = os.open(box.run / "stream", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert os.read(fd, 100) == b"READY\n"
        expect_errno(errno.EAGAIN, os.read, fd, 100)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(0) == []
        (box.ws / "go").touch()
        got = b""
        while True:
            assert poll.poll(20000), "poll must wake up for data and for the end"
            try:
                data = os.read(fd, 65536)
            except BlockingIOError:
                continue
            if not data:
                break
            got += data
        assert got == BODY[6:].encode()
    finally:
        os.close(fd)


def test_epoll_and_select_take_a_stream(box):
    box.start(SLOW_CODE)
    with open(box.run / "stream", "rb", 0) as f:
        assert f.read(6) == b"READY\n"
        ep = select.epoll()
        ep.register(f.fileno(), select.EPOLLIN)
        assert ep.poll(0) == []
        (box.ws / "go").touch()
        assert ep.poll(20) and select.select([f], [], [], 20)[0]
        assert f.read(5) == b"line "
        ep.close()


def test_while_read_gets_each_line_of_the_stream_as_it_comes(box):
    box.start(SLOW_CODE)
    reader = spawn(f"while read -r x && [ \"$x\" != 'line 100' ]; do echo got $x; done < {box.run}/stream")
    assert reader.stdout.readline() == b"got READY\n"
    (box.ws / "go").touch()
    assert finish(reader).ok().text.splitlines()[-1] == "got " + LINES[99]


def test_tail_f_of_logs_shows_what_comes(box):
    box.start(SLOW_CODE)
    tail = spawn(["tail", "-n+1", "-f", box.run / "logs"])
    try:
        assert tail.stdout.readline() == b"READY\n"
        (box.ws / "go").touch()
        last = b""
        while last.strip() != LINES[-1].encode():
            last = tail.stdout.readline()
            assert last
    finally:
        kill(tail)


def test_tail_upper_f_of_stdout_follows_from_run_to_run(box):
    assert box.go("print('run 1')").text == "run 1\n"
    tail = spawn(["tail", "-n+1", "-s", "0.1", "-F", box.run / "stdout"])
    try:
        assert tail.stdout.readline() == b"run 1\n"
        for i in (2, 3):
            box.save(f"print('run {i}')")
            assert tail.stdout.readline() == f"run {i}\n".encode()
    finally:
        kill(tail)
    assert b"truncated" not in tail.stderr.read()


def test_tail_f_of_stdout_waits_and_shows_all(box):
    box.start(SLOW_CODE)
    tail = spawn(["tail", "-n+1", "-f", box.run / "stdout"])
    try:
        until_waiting(tail)
        (box.ws / "go").touch()
        lines = [tail.stdout.readline() for _ in range(len(LINES) + 1)]
        assert b"".join(lines).decode() == BODY
    finally:
        kill(tail)


def test_less_waits_and_shows_the_end(box):
    need("less")
    box.start(SLOW_CODE)

    def let_go(less):
        until_waiting(less)
        (box.ws / "go").touch()

    rc, shown = terminal(
        ["less", "-X", box.run / "stdout"], [("", let_go), ("READY", "G"), ("line 19999", "q")], env={"LESS": ""}
    )
    assert rc == 0, shown[-300:]


def test_less_follows_logs(box):
    need("less")
    box.start(SLOW_CODE)
    rc, _ = terminal(
        ["less", "-X", "+F", box.run / "logs"],
        [("READY", lambda _: (box.ws / "go").touch()), ("line 19999", "\x03"), ("(END)", "q")],
        env={"LESS": ""},
    )
    assert rc == 0


def test_less_can_be_left_while_it_waits(box):
    need("less")
    box.start(SLOW_CODE)
    less = spawn(["less", box.run / "stdout"])
    until_waiting(less)
    kill(less, signal.SIGINT)
    finish(less)


def test_watch_of_a_result_goes_on_and_ends(box):
    need("watch", "procps")
    box.go("print('watched')")
    rc, _ = terminal(
        ["timeout", "--foreground", "-s", "INT", "1", "watch", "-n", "0.1", f"cat {box.run}/stdout"], [("watched", "")]
    )
    assert rc in (0, 124, 2, 130)


def test_a_reader_of_the_past_does_not_disturb_the_present(box):
    box.go("print('a')")
    with open(box.run / "stdout") as a:
        for i in range(40):  # more runs than are kept
            assert box.go(f"print({i})").text == f"{i}\n"
        assert a.read() == "a\n"


def test_process_names_the_run_that_the_folder_shows(box):
    if "process" not in os.listdir(box.run):
        skip("later")
    box.go("print(1)")
    a = os.readlink(box.run / "process")
    box.go("print(1)")
    b = os.readlink(box.run / "process")
    assert re.fullmatch(r"\.\./processes/\d+", a) and a != b


def test_readers_never_run_anything(box, tmp):
    box.go(counted())
    env = environment(box, tmp)
    for script in (
        "cat $D/*",
        "tar -C $D -c . > /dev/null",
        "grep -r . $D",
        "rsync -a $D/ $T/all/",
        "cp -r $D $T/x",
        "wc $D/code.py",
    ):
        sh(script, env=env)
    assert started(box) == 1
    assert count(box) == 1
