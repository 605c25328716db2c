# SPDX-License-Identifier: Apache-2.0
"""Background programs: they live on between runs, see each other, serve each other, and never make a reader wait; pause, usage."""
import errno
import os
import re

import pytest
from helpers import expect_errno, finish, limits, need, need_limits, sh, spawn, wait_for

SERVER = """import http.server, os
os.makedirs('site', exist_ok=True)
open('site/hello', 'w').write('from the server')
class H(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *a): super().__init__(*a, directory='site')
s = http.server.HTTPServer(('127.0.0.1', 8000), H)
print('listening', flush=True)
s.serve_forever()
"""
ASK = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8000/hello').read().decode())"


def process(box, name, command):
    folder = box / "processes" / name
    folder.mkdir()
    (folder / "command").write_text(command)
    return folder


def serving(box):
    (box.ws / "server.py").write_text(SERVER)
    web = process(box, "web", "exec python3 server.py\n")
    wait_for(lambda: (web / "stdout").read_text() == "listening\n", "the server listens")
    return web


def numbers(text):
    return {k: float(v) for k, v in (line.split() for line in text.splitlines())}


def test_a_run_asks_a_server_in_the_background_and_the_server_lives_on(box):
    web = serving(box)
    pid = (web / "pid").read_text()
    for _ in range(3):
        assert box.go(ASK).ok().text == "from the server\n"
    assert (web / "status").read_text() == "running\n" and (web / "pid").read_text() == pid
    wait_for(lambda: (web / "stderr").read_text().count("GET /hello") == 3, "its log has the three requests")
    assert "8000" in [line.split()[0] for line in (box / "ports").read_text().splitlines()]
    (web / "signal").write_text("TERM\n")
    assert (web / "exit").read_text() == "143\n"
    assert box.go(ASK).code == 1
    assert (box / "ports").read_text() == ""


def test_programs_of_a_box_see_each_other_and_their_files(box):
    process(box, "writer", "sleep 1000 & echo $! > pid; wait\n")
    wait_for(lambda: (box.ws / "pid").exists() and (box.ws / "pid").read_text().endswith("\n"), "its pid is there")
    number = (box.ws / "pid").read_text().strip()
    assert "sleep" in box.go(f"tr '\\0' ' ' < /proc/{number}/cmdline", "code.sh").ok().text
    box.go(f"kill -9 {number}", "code.sh").ok()
    assert (box / "processes/writer/exit").read_text() == "0\n"


def test_output_of_a_running_program_is_read_at_once_by_every_reader(box):
    folder = process(box, "talker", "echo out; echo err >&2; exec sleep 1000\n")
    wait_for(lambda: (folder / "logs").read_bytes() in (b"out\nerr\n", b"err\nout\n"), "both lines")
    for name, want in (("stdout", "out\n"), ("stderr", "err\n")):
        for tool in (["cat"], ["head", "-c", "100"], ["grep", ""], ["tail", "-n", "5"], ["dd", "status=none"], ["wc", "-c"]):
            argv = ["dd", "status=none", f"if={folder / name}"] if tool[0] == "dd" else [*tool, folder / name]
            out = sh(argv, seconds=20).ok().text
            assert out == want or (tool[0] == "wc" and out.split()[0] == "4"), (tool, out)
        assert (folder / name).stat().st_size == 4 and (folder / name).stat().st_mode & 0o777 == 0o444
    with open(folder / "stdout") as f:
        assert f.read() == "out\n" and f.read() == ""
    assert sh(["tail", "-c", "+1", folder / "logs"], seconds=20).ok().out in (b"out\nerr\n", b"err\nout\n")


@pytest.mark.bound(120)
@pytest.mark.parametrize("tool", ["cp -r", "cp -a", "grep -r", "tar", "rsync", "find -exec cat", "busybox grep", "rg", "python"])
def test_a_walker_over_a_box_with_a_server_does_not_hang(box, tmp, tool):
    web = serving(box)
    (box / "processes/idle").mkdir()
    (box / "processes/new").write_text("exec sleep 1000\n")
    box.go("print('needle')").ok()
    argv = {
        "cp -r": ["cp", "-r", box.path, tmp / "copy"],
        "cp -a": ["cp", "-a", box.path, tmp / "copy"],
        "grep -r": ["grep", "-r", "needle", box.path],
        "tar": ["tar", "-cf", tmp / "copy.tar", "-C", box.path, "."],
        "rsync": ["rsync", "-a", f"{box}/", f"{tmp / 'copy'}/"],
        "find -exec cat": f"find {box} -type f -exec cat {{}} + > {tmp}/copy",
        "busybox grep": ["busybox", "grep", "-r", "needle", box.path],
        "rg": ["rg", "-uu", "needle", box.path],
        "python": ["python3", "-c", "import shutil, sys; shutil.copytree(sys.argv[1], sys.argv[2], symlinks=True)", box.path, tmp / "copy"],
    }[tool]
    if tool in ("rsync", "busybox grep", "rg"):
        need(argv[0], {"rg": "ripgrep"}.get(argv[0]))
    done = sh(argv, seconds=60)
    assert done.rc == 0, (done.rc, done.err[-500:])
    if "needle" in argv:
        assert f"{box}/run/stdout:needle" in done.text
    copy = tmp / "copy"
    if copy.is_dir():
        assert (copy / "run/stdout").read_text() == "needle\n"
        assert (copy / "processes/web/stdout").read_text() == "listening\n"
        assert (copy / "workspace/server.py").read_text() == SERVER
    assert (web / "status").read_text() == "running\n"


def test_the_last_32_that_ended_are_kept_and_an_open_handle_stays_good(box):
    box.go("print('first')").ok()
    first = os.readlink(box.run / "process").rpartition("/")[2]
    held = open(box / "processes" / first / "stdout")
    served = process(box, "server", "exec sleep 1000\n")
    for i in range(40):
        (box / "processes/new").write_text(f"echo {i}\n")
        assert (box / "processes/last/exit").read_text() == "0\n"
    box.go("print('newest')").ok()
    ids = sorted(int(p) for p in os.listdir(box / "processes") if p.isdigit())
    newest = int(os.readlink(box.run / "process").rpartition("/")[2])
    assert newest in ids and len(ids) in (32, 33)
    assert ids[0] > int(first) and not (box / "processes" / first).exists()
    assert (served / "status").read_text() == "running\n", "what goes on is never forgotten"
    with held:
        assert held.read() == "first\n"
    for i in ids[:-1]:
        assert re.fullmatch(r"\d+\n", (box / "processes" / str(i) / "stdout").read_text())


def test_rmdir_of_a_process_ends_it_and_its_children_and_old_handles_stay(box):
    folder = process(box, "family", "trap '' TERM; sh -c 'sleep 1000' & echo up; sleep 1000\n")
    wait_for(lambda: (folder / "stdout").read_text() == "up\n", "up")
    pid = (folder / "pid").read_text().strip()
    with open(folder / "logs") as held:
        folder.rmdir()
        assert not folder.exists() and "family" not in os.listdir(box / "processes")
        gone = "import os, time\nt = time.monotonic()\nwhile os.path.exists('/proc/%s') and time.monotonic() < t + 20: time.sleep(0.05)\nprint(os.path.exists('/proc/%s'))" % (pid, pid)
        assert box.go(gone).ok().text == "False\n", "TERM is ignored: KILL comes 2 s later"
        held.seek(0)
        assert held.read() == "up\n"
    process(box, "family", "echo another\n")
    assert (box / "processes/family/exit").read_text() == "0\n"


@pytest.mark.bound(90)
def test_pause_stops_all_progress_and_start_goes_on(box):
    need_limits()
    box.ready()
    folder = process(box, "counter", "i=0; while :; do i=$((i+1)); echo $i > counter.tmp; mv counter.tmp counter; done\n")

    def value():
        try:
            return int((box.ws / "counter").read_text() or 0)
        except FileNotFoundError:
            return 0

    wait_for(lambda: value() > 10, "it counts")
    (box / "status").write_text("pause")
    wait_for(lambda: (box / "status").read_text() == "paused\n", "paused")
    stands = value()
    cpu = numbers((box / "usage").read_text()).get("cpu_seconds")
    box.save("print('later')")  # starts only when the box goes on: its clock and its turn come then
    sh(["sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]).ok()  # time in which it would count on
    assert value() == stands and (folder / "status").read_text() == "running\n"
    assert numbers((box / "usage").read_text()).get("cpu_seconds") == cpu
    assert box.status() == "pending"
    reader = spawn(["cat", box.run / "stdout"])
    (box / "status").write_text("start")
    wait_for(lambda: (box / "status").read_text() == "running\n", "running")
    wait_for(lambda: value() > stands, "it counts on")
    assert finish(reader).ok().text == "later\n"


@pytest.mark.bound(120)
def test_usage_and_monitor_show_a_busy_loop_as_about_its_limit(fresh_mnt):
    need_limits()
    m = fresh_mnt(config=limits(cpu="0.5", memory="128M"))
    box = m.box().ready()
    process(box, "busy", "exec python3 -c \"x = bytearray(40 << 20)\nwhile True: pass\"\n")
    usage = box / "usage"
    wait_for(lambda: numbers(usage.read_text()).get("cpu_seconds", 0) > 0.5, "it works")

    def sample():
        u = numbers(usage.read_text())
        return u if 0.6 * 50 <= u.get("cpu_percent", 0) <= 1.4 * 50 else None

    u = wait_for(sample, f"cpu_percent of a limit of 50: {usage.read_text()}")
    assert 40 << 20 < u["memory_bytes"] <= 128 << 20
    assert abs(u["memory_percent"] - 100 * u["memory_bytes"] / (128 << 20)) < 20
    assert 1 <= u["pids"] <= 10

    def rows():
        lines = [line.split("\t") for line in (box / "monitor/1m").read_text().splitlines()[1:]]
        return [row for row in lines if row[1] != "-" and float(row[1]) > 0]

    found = wait_for(lambda: (lambda r: r if len(r) >= 2 else None)(rows()), "two samples of the monitor", 60)
    assert 0.6 * 50 <= float(found[-1][1]) <= 1.4 * 50, found
    assert 40 << 20 < int(found[-1][2]) <= 128 << 20, found
    times = [row[0] for row in found]
    assert times == sorted(times)


def test_usage_of_a_box_in_which_nothing_runs_is_empty_or_small(box):
    (box / "status").write_text("stop")
    wait_for(lambda: (box / "status").read_text() == "stopped\n", "stopped")
    assert (box / "usage").read_text() == "" and (box / "ports").read_text() == ""


def test_stop_ends_the_background_and_says_so(box):
    folder = process(box, "server", "exec sleep 1000\n")
    wait_for(lambda: (folder / "status").read_text() == "running\n", "running")
    (box / "status").write_text("stop")
    wait_for(lambda: (folder / "status").read_text().split()[0] in ("lost", "signaled"), "ended")
    if (folder / "status").read_text() == "lost\n":
        expect_errno(errno.EIO, (folder / "exit").read_text)
        assert (folder / "error").read_text() == "the sandbox was stopped while it ran\n"
    assert box.go("print('woken')").ok().text == "woken\n"
