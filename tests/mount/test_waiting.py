# SPDX-License-Identifier: Apache-2.0
"""Waiting: never stale, never stuck, never in the way of others."""
import errno
import os
import re
import signal
import time

import pytest
from helpers import (
    HANG,
    children,
    count,
    counted,
    expect_errno,
    finish,
    kill,
    need,
    proc_state,
    scaled,
    sh,
    spawn,
    terminal,
    until_waiting,
    wait_for,
    waits_in_fuse,
)

PYTHON = "/usr/bin/python3"
FOREVER = "import time\nprint('READY', flush=True)\ntime.sleep(3000)\n"
UNTIL_GO = (
    "import os, time\nprint('READY', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.005)\nprint('end')\n"
)


def tight(run, n, name="code.sh", first=0):
    """Write and read at once, n times; how many results were not those of the write before."""
    code, out = os.fspath(run / name), os.fspath(run / "stdout")
    stale = []
    for i in range(first, first + n):
        fd = os.open(code, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, b"echo %d\n" % i)
        os.close(fd)
        fd = os.open(out, os.O_RDONLY)
        got = os.read(fd, 4096)
        os.close(fd)
        if got != b"%d\n" % i:
            stale.append((i, got))
    return stale


@pytest.mark.bound(900)
def test_a_read_right_after_a_write_is_never_stale(box):
    stale = tight(box.run, scaled(30000))
    assert not stale, f"{len(stale)} stale: {stale[:5]}"


def test_a_read_right_after_a_write_is_never_stale_with_exit_first(box):
    for i in range(scaled(1000)):
        box.save(f"exit {i % 256}\n", "code.sh")
        assert box.exit() == i % 256


def test_a_read_right_after_a_rename_onto_the_code_is_never_stale(box):
    for i in range(scaled(1000)):
        (box.run / "new.tmp").write_text(f"echo {i}\n")
        os.rename(box.run / "new.tmp", box.run / "code.sh")
        assert (box.run / "stdout").read_text() == f"{i}\n"


@pytest.mark.bound(300)
@pytest.mark.parametrize("shell", ["bash", "dash", "busybox sh"])
def test_a_shell_that_writes_and_reads_in_a_loop_is_never_stale(box, shell):
    need(shell.split()[0])
    n = scaled(1500)
    script = f"""cd {box.run}; i=0; bad=0
while [ $i -lt {n} ]; do echo "echo $i" > code.sh; read -r x < stdout; [ "$x" = $i ] || bad=$((bad + 1)); i=$((i + 1)); done; echo $bad"""
    assert sh([*shell.split(), "-c", script], seconds=280).ok().text == "0\n"


@pytest.mark.bound(200)
def test_bash_with_cat_under_load_is_never_stale(box):
    hogs = [spawn(["sh", "-c", "while :; do :; done"]) for _ in range(4)]
    try:
        n = scaled(300)
        script = f"""cd {box.run}; for i in $(seq {n}); do echo "echo $i" > code.sh; x=$(cat stdout); [ "$x" = $i ] || echo "$i $x"; done"""
        assert sh(script, seconds=180).ok().text == ""
    finally:
        for hog in hogs:
            kill(hog)


@pytest.mark.parametrize("how", ["exit", "SIGKILL", "dup"])
def test_not_stale_when_the_writer_did_not_close(box, how):
    end = {"exit": "os._exit(0)", "SIGKILL": "os.kill(os.getpid(), 9)", "dup": "os.dup(fd); os._exit(0)"}[how]
    for i in range(scaled(60)):
        sh(
            [
                PYTHON,
                "-S",
                "-c",
                f"import os; fd = os.open({str(box.run / 'code.sh')!r}, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)\n"
                f"os.write(fd, b'echo {i}\\n'); {end}",
            ]
        )
        assert (box.run / "stdout").read_text() == f"{i}\n"


@pytest.mark.bound(300)
def test_eight_writers_in_eight_slots_never_mix(box):
    n = scaled(400)
    for s in range(8):
        (box.run / f"s{s}").mkdir()
    script = f"""import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})
from pathlib import Path
from test_waiting import tight
print(len(tight(Path(sys.argv[1]), {n}, first=int(sys.argv[2]))))"""
    procs = [spawn([PYTHON, "-c", script, box.run / f"s{s}", str(s * 1000000)]) for s in range(8)]
    assert [finish(p, 280).ok().text for p in procs] == ["0\n"] * 8
    for s in range(8):
        assert (box.run / f"s{s}" / "stdout").read_text() == f"{s * 1000000 + n - 1}\n"


@pytest.mark.bound(200)
def test_eight_writers_of_one_file_start_whole_texts_only(box):
    """Private buffers: whoever is last, no text is a mix of two."""
    n = scaled(40)
    line = "x" * 3000
    script = f"""import os, sys
for i in range({n}):
    fd = os.open({str(box.run / 'code.sh')!r}, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for part in (f'a={{sys.argv[1]}}; : {line}\\n', f'[ $a = {{sys.argv[1]}} ] && echo good >> good || echo mixed >> mixed\\n'):
        os.write(fd, part.encode())
    os.close(fd)"""
    procs = [spawn([PYTHON, "-S", "-c", script, str(s)]) for s in range(8)]
    for p in procs:
        finish(p, 180).ok()
    good = box.ws / "good"
    wait_for(lambda: good.exists() and len(good.read_text().splitlines()) == 8 * n, f"{8 * n} runs")
    assert not (box.ws / "mixed").exists()


@pytest.mark.bound(200)
def test_a_thousand_waiting_readers_cost_no_thread_and_disturb_nobody(mnt, box):
    n = 1000

    def readers(go):
        proc = spawn(
            f"ulimit -u unlimited 2>/dev/null; for i in $(seq {n}); do cat {box.run}/stdout > /dev/null & done; wait"
        )
        if go:
            wait_for(lambda: sum(map(waits_in_fuse, children(proc.pid))) == n, f"{n} readers wait", 100)
        return proc

    box.go("print(1)")
    finish(readers(False), 100).ok()  # the burst of opens as such may start worker threads: they are there now
    tight(box.run, 20)
    box.start(UNTIL_GO)
    threads = mnt.threads()
    proc = readers(True)
    assert mnt.threads() <= max(threads, 12), "waiting readers hold threads"
    for _ in range(200):
        assert box.name in os.listdir(mnt.path)
    sh(["ls", "-la", box.path, box.run, mnt.path], seconds=20).ok()
    (box.run / "other").mkdir()
    assert box.go("print('in between')", slot="other").text == "in between\n"
    (box.ws / "go").touch()
    finish(proc, 100).ok()


@pytest.mark.parametrize("sig", ["SIGINT", "SIGTERM", "SIGKILL", "SIGHUP", "SIGALRM", "SIGUSR1"])
@pytest.mark.parametrize("file", ["stdout", "exit", "stream"])
def test_a_signal_ends_a_waiting_reader(box, sig, file):
    box.start(FOREVER)
    if file == "stream":
        reader = spawn(["tail", "-c+7", box.run / file])
    else:
        reader = spawn(["cat", box.run / file])
    until_waiting(reader)
    kill(reader, getattr(signal, sig))
    assert finish(reader, 10).rc == -getattr(signal, sig)


@pytest.mark.parametrize("program", ["python", "node", "bash", "perl", "tar", "rsync"])
def test_ctrl_c_ends_a_waiting(box, program):
    box.start(FOREVER)
    f = box.run / "exit"
    argv = {
        "python": [PYTHON, "-c", f"open({str(f)!r}).read()"],
        "node": ["node", "-e", f"require('fs').readFileSync({str(f)!r})"],
        "bash": ["bash", "-c", f"read x < {f}; echo $x"],
        "perl": ["perl", "-e", f"open(F, '<', '{f}') or die; print <F>"],
        "tar": ["tar", "-cf", "-", "-C", box.run, "exit"],
        "rsync": ["rsync", f, "/var/tmp/sbxfs-none"],
    }[program]
    need(argv[0].split("/")[-1])
    reader = spawn(argv)
    until_waiting(reader)
    kill(reader, signal.SIGINT)
    assert finish(reader, 10).rc != 0


def test_ctrl_c_on_a_terminal_ends_cat(box):
    box.start(FOREVER)

    def ctrl_c(proc):
        wait_for(lambda: waits_in_fuse(proc.pid), "cat waits")

    rc, _ = terminal(["cat", box.run / "stdout"], [("", ctrl_c), ("", "\x03")], seconds=10)
    assert rc == -signal.SIGINT


def test_fifty_killed_readers_leave_nothing_waiting(mnt, box):
    box.start(UNTIL_GO)
    readers = [spawn(["cat", box.run / "stdout"]) for _ in range(50)]
    for r in readers:
        until_waiting(r)
    for r in readers[::2]:
        kill(r)
    assert all(proc_state(r.pid) == "" for r in readers[::2])
    (box.ws / "go").touch()
    assert [finish(r).ok().text for r in readers[1::2]] == ["READY\nend\n"] * 25
    assert mnt.alive()


def test_no_waiting_reader_is_ever_in_d_state(box):
    box.start(UNTIL_GO)
    reader = spawn(["cat", box.run / "stdout"])
    until_waiting(reader)
    wait_for(lambda: proc_state(reader.pid) == "S", "it sleeps, and can be killed")
    assert all(proc_state(reader.pid) != "D" for _ in range(200))
    (box.ws / "go").touch()
    finish(reader).ok()


def test_timeout_ends_a_waiting_reader_with_124(box):
    box.start(FOREVER)
    assert sh(["timeout", "1", "cat", box.run / "exit"]).rc == 124
    assert sh(["timeout", "-s", "KILL", "1", "cat", box.run / "exit"]).rc == -9


def test_who_holds_the_code_open_and_reads_a_result_gets_edeadlk_at_once(box):
    box.go(counted("old"))
    done = sh(
        f"""exec 3> {box.run}/code.py; echo "open('runs','a').write('new\\n'); print('new')" >&3
cat {box.run}/stdout; echo "rc $?"; exec 3>&-; cat {box.run}/stdout"""
    ).ok()
    assert done.text == "rc 1\nnew\n"
    assert b"Resource deadlock avoided" in done.err
    assert count(box) == 2


@pytest.mark.parametrize("name", ["stdout", "stderr", "exit", "result.json"])
def test_python_that_reads_before_it_closes_gets_edeadlk(box, name):
    box.go("print('old')")
    with open(box.run / "code.py", "w") as f:
        f.write("print('new')\n")
        f.flush()
        e = expect_errno(errno.EDEADLK, os.open, box.run / name, os.O_RDONLY)
        assert e.filename
    assert (box.run / "stdout").read_text() == "new\n"


def test_files_that_never_wait_can_be_read_while_the_code_is_held(box):
    box.go("print('old')")
    with open(box.run / "code.py", "w") as f:
        f.write("print('new')\n")
        f.flush()
        for name in ("status", "logs", "error", "code.py"):
            (box.run / name).read_bytes()
        os.stat(box.run / "stdout")


def test_a_reader_without_the_inherited_handle_is_served_after_a_bounded_wait(box):
    box.go("print('old')")
    done = sh(
        f"""exec 3> {box.run}/code.py; echo "print('new')" >&3; cat {box.run}/stdout 3>&-; exec 3>&-; cat {box.run}/stdout"""
    ).ok()
    assert done.text == "old\nnew\n"


def test_others_who_hold_the_code_delay_a_reader_by_a_bounded_time(box):
    box.go("print('old')")
    writer = spawn(
        [
            PYTHON,
            "-c",
            f"import sys; f = open({str(box.run / 'code.py')!r}, 'w', 1); f.write('print(1)\\n'); f.flush(); "
            "print('w', flush=True); sys.stdin.read()",
        ],
        stdin=-1,
    )
    assert writer.stdout.readline() == b"w\n"
    assert sh(["cat", box.run / "stdout"], seconds=20).ok().text == "old\n"
    finish(writer, data=b"").ok()
    assert (box.run / "stdout").read_text() == "1\n"


def test_a_child_that_inherited_the_handle_delays_a_reader_by_a_bounded_time(box):
    box.go("print('old')")
    holder = spawn(
        f"exec 4<&0 3> {box.run}/code.py; echo 'print(2)' >&3; (echo up; read x <&4) & exec 3>&-; wait", stdin=-1
    )
    assert holder.stdout.readline() == b"up\n"
    assert sh(["cat", box.run / "stdout"], seconds=20).ok().text == "old\n"
    finish(holder, data=b"\n").ok()
    assert (box.run / "stdout").read_text() == "2\n"


def busy(reader, mnt):
    done = mnt.unmount()
    assert done.rc != 0 and b"busy" in done.err, done.err
    assert reader.poll() is None and mnt.alive()


def answered(reader):
    """A waiter whose mount goes away ends with an error, soon."""
    done = finish(reader, 20)
    assert done.rc == 1, done.rc
    assert re.search(
        rb"Software caused connection abort|Input/output error|Transport endpoint|shutdown|canceled", done.err
    ), done.err


def test_unmount_with_a_waiter_is_busy_and_harmless(fresh_mnt):
    m = fresh_mnt()
    box = m.box()
    box.start(UNTIL_GO)
    reader = spawn(["cat", box.run / "stdout"])
    until_waiting(reader)
    busy(reader, m)
    (box.ws / "go").touch()
    assert finish(reader).ok().text == "READY\nend\n"


def test_sigterm_answers_the_waiters_unmounts_and_ends_with_0(fresh_mnt):
    m = fresh_mnt()
    box = m.box()
    box.start(FOREVER)
    readers = [spawn(["cat", box.run / f]) for f in ("stdout", "exit", "stream") for _ in range(10)]
    for r in readers:
        until_waiting(r)
    os.kill(m.pid, signal.SIGTERM)
    for r in readers:
        answered(r)
    assert m.proc.wait(HANG) == 0
    assert not m.mounted()


def test_sigint_ends_the_daemon_with_0(fresh_mnt):
    m = fresh_mnt()
    os.kill(m.pid, signal.SIGINT)
    assert m.proc.wait(HANG) == 0
    assert not m.mounted()


def test_a_lazy_unmount_answers_the_waiters_and_ends_the_daemon(fresh_mnt):
    m = fresh_mnt()
    box = m.box()
    box.start(FOREVER)
    readers = [spawn(["cat", box.run / f]) for f in ("stdout", "exit", "stream")]
    for r in readers:
        until_waiting(r)
    m.unmount("-z").ok()
    for r in readers:
        answered(r)
    assert m.proc.wait(HANG) == 0


def test_a_lazy_unmount_with_a_shell_inside_ends_the_daemon_when_the_shell_leaves(fresh_mnt):
    m = fresh_mnt()
    box = m.box()
    shell = spawn(["cat"], stdin=-1, cwd=box.path)
    m.unmount("-z").ok()
    finish(shell, data=b"").ok()
    assert m.proc.wait(HANG) == 0


def test_kill_9_of_the_daemon_answers_the_waiters(fresh_mnt):
    m = fresh_mnt()
    box = m.box()
    box.start(FOREVER)
    reader = spawn(["cat", box.run / "stdout"])
    until_waiting(reader)
    m.kill()
    answered(reader)
    wait_for(lambda: not m.processes(), "the run died with the daemon")
    m.start()  # sweeps what the dead one left


@pytest.mark.bound(120)
def test_mkdir_rmdir_and_rename_do_not_wait_behind_waiting_readers(mnt, box):
    box.start(FOREVER)
    readers = [spawn(["cat", box.run / "stdout"]) for _ in range(60)]
    for r in readers:
        until_waiting(r)
    other = mnt.box()
    (other.ws / "d").mkdir()
    os.rename(other.ws / "d", other.ws / "e")
    assert other.go("print(5)").text == "5\n"
    other.delete()
    for r in readers:
        kill(r)


def test_max_wait_gives_etimedout(fresh_mnt):
    m = fresh_mnt(config={"max_wait": "1s"})
    m.allow("ETIMEDOUT", "timed out")
    box = m.box()
    box.start(FOREVER)
    expect_errno(errno.ETIMEDOUT, os.open, box.run / "stdout", os.O_RDONLY)
    assert sh(["cat", box.run / "exit"]).err.endswith(b"Connection timed out\n")


def test_the_default_has_no_max_wait_shorter_than_a_run(box):
    box.save("import time; time.sleep(3); print('late')")
    start = time.monotonic()
    assert (box.run / "stdout").read_text() == "late\n"
    assert time.monotonic() - start >= 2.5
