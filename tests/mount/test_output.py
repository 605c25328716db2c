# SPDX-License-Identifier: Apache-2.0
"""What a program writes and how it ends is what the result files say, exactly."""
import base64
import hashlib
import os
import re
import signal

import pytest
from helpers import finish, limits, sh, spawn, until_waiting, wait_for

# name -> what is written to stdout
BYTES = {
    "nothing": b"",
    "one byte": b"x",
    "no newline at the end": b"a\nb",
    "only newlines": b"\n\n\n",
    "carriage returns": b"a\r\nb\r",
    "NUL bytes": b"a\0b\0\0c\n",
    "not UTF-8": b"\xff\xfe\x80ok\n",
    "all bytes": bytes(range(256)) * 3,
    "half a character at the end": "ü".encode()[:1],
    "characters of 2, 3 and 4 bytes": "ü€😀\n".encode() * 5000,
    "8193 bytes": b"y" * 8193,
    "a page": b"p" * 4096,
    "64K": b"k" * 65536,
    "64K + 1": b"k" * 65537,
    "control characters": bytes(range(1, 32)) + b'"\\\x7f\n',
}


@pytest.mark.parametrize("what", BYTES)
def test_exact_bytes_of(box, what):
    data = BYTES[what]
    (box.ws / "data").write_bytes(data)
    r = box.go("import os; d = open('data', 'rb').read()\nwhile d: d = d[os.write(1, d):]").ok()
    assert r.out == data and r.err == b""
    assert os.stat(box.run / "stdout").st_size == len(data)
    assert (box.run / "logs").read_bytes() == data
    assert (box.run / "stream").read_bytes() == data
    j = box.json()
    assert j["stdoutBytes"] == len(data) and j["stdoutDropped"] == 0
    try:
        assert (j["stdoutEncoding"], j["stdout"]) == ("utf-8", data.decode())
    except UnicodeDecodeError:
        assert (j["stdoutEncoding"], base64.b64decode(j["stdout"], validate=True)) == ("base64", data)


def test_result_json_is_complete(box):
    box.go("import sys, time; print('o'); print('é', file=sys.stderr); time.sleep(0.2); sys.exit(7)")
    j = box.json()
    assert {
        k: j[k]
        for k in (
            "exitCode",
            "signal",
            "timedOut",
            "oom",
            "stdout",
            "stderr",
            "stdoutDropped",
            "stderrDropped",
            "language",
        )
    } == {
        "exitCode": 7,
        "signal": None,
        "timedOut": False,
        "oom": False,
        "stdout": "o\n",
        "stderr": "é\n",
        "stdoutDropped": 0,
        "stderrDropped": 0,
        "language": "python",
    }
    assert 200 <= j["durationMs"] < 60000
    assert re.match(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d", j["startedAt"])
    assert os.stat(box.run / "result.json").st_size == len((box.run / "result.json").read_bytes())


def test_result_json_is_empty_before_the_first_run(box):
    assert (box.run / "result.json").read_bytes() == b""


def test_stderr_is_apart_from_stdout_and_logs_has_both_in_order(box):
    code = "import os\n" + "".join(f"os.write({1 + i % 2}, b'{i}\\n')\n" for i in range(20))
    r = box.go(code)
    assert r.out.split() == [b"%d" % i for i in range(0, 20, 2)]
    assert r.err.split() == [b"%d" % i for i in range(1, 20, 2)]
    assert sorted((box.run / "logs").read_bytes().split()) == sorted(b"%d" % i for i in range(20))


def test_logs_keep_the_order_of_the_two_streams_when_they_come_apart(box):
    # Two pipes have no common order; pieces that come one after the other (each seen before the next is written) have one.
    box.start(
        """import os, time
print('READY', flush=True)
for i in range(6):
    while not os.path.exists(f'go{i}'): time.sleep(0.002)
    os.write(1 + i % 2, b'%d\\n' % i)
"""
    )
    for i in range(6):
        (box.ws / f"go{i}").touch()
        box.until_logged(f"{i}\n")
    assert box.exit() == 0
    assert (box.run / "logs").read_bytes() == b"READY\n" + b"".join(b"%d\n" % i for i in range(6))


def test_8193_bytes_and_then_silence_are_read_live(box):
    box.start(
        """import os, time
os.write(1, b'READY' + b'z' * 8188)
while not os.path.exists('go'): time.sleep(0.005)
"""
    )
    wait_for(lambda: os.stat(box.run / "logs").st_size == 8193, "8193 bytes in logs")
    assert (box.run / "logs").read_bytes() == b"READY" + b"z" * 8188
    cat = spawn(["cat", box.run / "stream"])
    got = b""
    while len(got) < 8193:
        got += os.read(cat.stdout.fileno(), 65536)
    assert len(got) == 8193
    until_waiting(cat)
    (box.ws / "go").touch()
    assert finish(cat).ok().out == b""


def test_a_character_that_comes_in_two_pieces_is_whole(box):
    box.start(
        """import os, time
os.write(1, b'READY\\xe2\\x82')
while not os.path.exists('go'): time.sleep(0.005)
os.write(1, b'\\xac\\n')
"""
    )
    (box.ws / "go").touch()
    assert (box.run / "stdout").read_text() == "READY€\n"
    assert box.json()["stdout"] == "READY€\n" and box.json()["stdoutEncoding"] == "utf-8"


def test_prints_are_live_although_stdout_is_a_pipe(box):
    """PYTHONUNBUFFERED is in the default environment."""
    box.save("print('READY')\nwhile True: pass")
    box.until_logged("READY")
    box.save("")


BIG = """import os, sys
block = bytes(range(32, 127)) * 11038  # 1 MiB and a bit
left = int(sys.argv[1]) << 20
while left:
    left -= os.write(1, block[:min(len(block), left)])
"""


@pytest.mark.bound(180)
def test_200_mb_with_the_limit_raised(fresh_mnt):
    m = fresh_mnt(config=limits(output="300M"))
    box = m.box()
    (box.run / "args").write_text("200\n")
    box.save(BIG)
    want = hashlib.md5()
    block, left = bytes(range(32, 127)) * 11038, 200 << 20
    # os.write to a pipe may take less than asked: compare the size and each block's pattern instead of the whole
    got, size = hashlib.md5(), 0
    with open(box.run / "stdout", "rb") as f:
        while data := f.read(1 << 20):
            size += len(data)
            got.update(data)
    assert size == left
    assert box.exit() == 0 and box.json()["stdoutBytes"] == left
    assert os.stat(box.run / "stdout").st_size == left
    del want, block


@pytest.mark.bound(180)
def test_one_line_of_50_mb(box):
    r = box.go("import sys\nn = 50 << 20\nsys.stdout.write('x' * n)\n").ok()
    assert len(r.out) == 50 << 20 and r.out.count(b"x") == 50 << 20
    assert sh(["wc", "-c", box.run / "stdout"]).ok().text.split()[0] == str(50 << 20)
    assert box.json()["stdout"] == r.text


def test_output_beyond_the_limit_is_cut_and_the_program_goes_on(fresh_mnt):
    m = fresh_mnt(config=limits(output="1M"))
    box = m.box()
    r = box.go(
        """import os
for i in range(3 * 1024): os.write(1, b'%1024d' % i)
os.write(2, b'done')
"""
    )
    assert r.code == 0 and r.err == b"done"
    assert r.out == b"".join(b"%1024d" % i for i in range(1024))
    assert box.status() == "exited 0 truncated"
    j = box.json()
    assert (j["stdoutBytes"], j["stdoutDropped"], j["stderrDropped"]) == (1 << 20, 2 << 20, 0)


def test_each_stream_has_its_own_limit(fresh_mnt):
    m = fresh_mnt(config=limits(output="64K"))
    box = m.box()
    r = box.go("import os\nfor i in range(100): os.write(1, b'o' * 1024); os.write(2, b'e' * 1024)")
    assert (len(r.out), len(r.err)) == (65536, 65536)
    j = box.json()
    assert (j["stdoutDropped"], j["stderrDropped"]) == (100 * 1024 - 65536,) * 2


@pytest.mark.bound(120)
def test_every_exit_code_is_told(box):
    for code in range(256):
        box.save(f"exit {code}\n", "code.sh")
        assert (box.run / "exit").read_bytes() == b"%d\n" % code
        assert box.status() == f"exited {code}"


@pytest.mark.parametrize(
    "name", ["HUP", "INT", "QUIT", "ILL", "ABRT", "FPE", "KILL", "SEGV", "PIPE", "ALRM", "TERM", "USR1", "USR2", "SYS"]
)
def test_death_by_a_signal_is_128_and_its_number(box, name):
    number = getattr(signal, "SIG" + name)
    box.save(
        f"import os, signal; signal.signal({int(number)}, signal.SIG_DFL) if {int(number)} != 9 else 0; os.kill(os.getpid(), {int(number)})"
    )
    assert box.exit() == 128 + number
    assert box.status() == f"signaled {int(number)}"
    assert box.json()["signal"] == "SIG" + name and box.json()["exitCode"] == 128 + number


def test_a_missing_interpreter_is_127_and_a_reason_that_names_it(box):
    r = box.go("#!/usr/bin/no-such-thing -x\nhello\n", name="code")
    assert r.code == 127
    assert "no-such-thing" in (box.run / "error").read_text() and "no-such-thing" in box.error()


def test_sh_says_127_for_a_missing_command_and_126_for_one_that_is_not_executable(box):
    assert box.go("no-such-command\n", name="code.sh").code == 127
    (box.ws / "x").write_text("x")
    assert box.go("./x\n", name="code.sh").code == 126


def test_a_timeout_is_124_and_ends_all_descendants(mnt, box):
    (box.run / "timeout").write_text("500ms\n")
    box.save(
        """import os, subprocess, sys, time
print('READY', flush=True)
for deep in range(3):
    subprocess.Popen([sys.executable, '-c', '''
import os, signal, time
os.setsid()
if os.fork(): os._exit(0)
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
time.sleep(4711)
'''])
time.sleep(4711)
"""
    )
    assert box.exit() == 124
    assert box.status() == "timeout"
    assert box.json()["timedOut"] is True and box.json()["exitCode"] == 124
    assert (box.run / "stdout").read_text() == "READY\n"
    wait_for(
        lambda: not [c for _, c in mnt.processes() if "4711" in c],
        "setsid'ed grandchildren that ignore TERM have ended",
        20,
    )


def test_a_program_that_ignores_term_is_killed_after_the_timeout(box):
    (box.run / "timeout").write_text("0.2\n")
    box.save(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('READY', flush=True)\nwhile True: time.sleep(1)"
    )
    assert box.exit() == 124


def test_a_program_can_clean_up_when_it_is_told_to_end(box):
    (box.run / "timeout").write_text("500ms\n")
    box.save(
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), sys.exit(0)))\nprint('READY', flush=True)\ntime.sleep(100)"
    )
    assert box.exit() == 124
    assert (box.run / "stdout").read_text() == "READY\nbye\n"


def test_the_end_is_the_programs_end_although_a_child_holds_the_pipe(mnt, box):
    r = box.go(
        "import os, subprocess\nprint('started', flush=True)\nsubprocess.Popen(['sleep', '4712'])\nprint('end')"
    ).ok()
    assert r.out == b"started\nend\n"
    wait_for(lambda: [c for _, c in mnt.processes() if "4712" in c], "the background child goes on")


def test_a_background_child_that_writes_later_does_not_die_of_sigpipe(box):
    box.go(
        """( while [ ! -e go ]; do sleep 0.01; done; for i in $(seq 20000); do echo "later $i"; done; echo alive > alive ) &
echo first
""",
        name="code.sh",
    ).ok()
    assert (box.run / "stdout").read_bytes() == b"first\n"
    (box.ws / "go").touch()
    wait_for(lambda: (box.ws / "alive").exists(), "the child wrote all of it")
    assert (box.run / "stdout").read_bytes() == b"first\n", "results are final"


def test_a_program_that_closes_its_output_early_is_waited_for(box):
    box.save("import os, time\nprint('x', flush=True); os.close(1); os.close(2); time.sleep(0.3); os._exit(9)")
    assert (box.run / "stdout").read_text() == "x\n"
    assert box.exit() == 9


def test_a_program_that_stops_itself_does_not_count_as_ended(box):
    (box.run / "timeout").write_text("1\n")
    box.save("import os, signal; print('READY', flush=True); os.kill(os.getpid(), signal.SIGSTOP)")
    box.until_logged("READY")
    assert box.status() == "running"
    assert box.exit() == 124


def test_the_default_environment_and_folder(box):
    r = box.go(
        "import os\nprint(os.getcwd(), os.environ['LANG'], os.environ['HOME'] != '', os.environ['PATH'] != '', os.environ['PYTHONUNBUFFERED'])"
    ).ok()
    assert r.text == "/workspace C.UTF-8 True True 1\n"


def test_two_runs_at_once_keep_their_output_apart(box):
    (box.run / "a").mkdir()
    (box.run / "b").mkdir()
    code = (
        "import os, time\nfor i in range(2000): os.write(1, b'%s')\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    )
    for s in "ab":
        box.save(code % (s * 50), slot=s)
    (box.ws / "go").touch()
    for s in "ab":
        assert (box.run / s / "stdout").read_bytes() == s.encode() * 100000


def test_a_very_long_program_text_runs(box):
    text = "x = 0\n" + "x += 1\n" * 100000 + "print(x)\n"
    assert box.go(text).ok().text == "100000\n"


def test_status_goes_from_running_to_its_end(box):
    box.start("import os, time\nprint('READY', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.005)\n")
    assert box.status() == "running"
    (box.ws / "go").touch()
    box.until_status("exited")
    assert box.status() == "exited 0"
