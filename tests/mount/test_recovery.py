# SPDX-License-Identifier: Apache-2.0
"""What survives a restart, a crash of the daemon, and an interrupted create or delete."""
import errno
import os
import random
import signal
import threading
from pathlib import Path

import pytest
from helpers import HANG, Mount, finish, scaled, sh, spawn, wait_for

FOREVER = "import time\nprint('READY', flush=True)\ntime.sleep(4719)\n"


def test_boxes_settings_and_workspace_survive_a_restart_and_runs_do_not(fresh_mnt):
    m = fresh_mnt()
    box = m.box("kept")
    (box.run / "args").write_text("still here\n")
    (box.run / "timeout").write_text("77\n")
    (box.run / "one").mkdir()
    (box.run / "one/env").write_text("A=1\n")
    box.go(
        "import os; os.makedirs('d'); open('d/f', 'w').write('text'); os.chmod('d/f', 0o640); os.symlink('d/f', 'l')"
    ).ok()
    before = os.stat(box.ws / "d/f")
    m.restart()
    assert os.listdir(m.path) == ["kept"] or sorted(os.listdir(m.path)) == [".sbxfs", "kept"]
    assert (box / "status").read_text() == "stopped\n", "at mount nothing is started"
    after = os.stat(box.ws / "d/f")
    assert (after.st_mode, after.st_size, after.st_mtime_ns) == (before.st_mode, before.st_size, before.st_mtime_ns)
    assert (box.ws / "l").read_text() == "text"
    assert (box.run / "args").read_text() == "still here\n" and (box.run / "timeout").read_text() == "77\n"
    assert (box.run / "one/env").read_text() == "A=1\n"
    assert box.status() == "none" and (box.run / "stdout").read_text() == ""
    assert (
        box.go("import sys; print(sys.argv[1], open('d/f').read())").text == "still here text\n"
    ), "a save wakes the box"
    assert (box / "status").read_text() == "running\n"
    box.delete()


def test_unmount_ends_runs_and_leaves_no_process(fresh_mnt):
    m = fresh_mnt()
    box = m.box()
    box.start(FOREVER)
    assert m.processes()
    m.note(box)
    assert not m.end()
    assert not m.leftovers()
    m.start()
    assert box.go("print(1)").text == "1\n"


def test_restart_by_sigterm_keeps_everything_as_well(fresh_mnt):
    m = fresh_mnt()
    box = m.box()
    (box.ws / "f").write_text("x")
    assert m.kill(signal.SIGTERM) == 0
    m.start()
    assert (box.ws / "f").read_text() == "x"


def test_a_killed_daemon_leaves_no_run_and_the_next_mount_works(fresh_mnt):
    m = fresh_mnt()
    box = m.box()
    box.start(FOREVER)
    m.note(box)
    m.kill()
    wait_for(lambda: not m.processes(), "all processes of the box have ended with the daemon")
    m.start()
    wait_for(
        lambda: not m.cgroups() or (box / "status").read_text() == "running\n",
        "no cgroup of the dead daemon's container",
    )
    assert box.go("print('after')").text == "after\n"


def test_a_frozen_run_of_a_dead_daemon_is_killed_at_the_next_mount(fresh_mnt):
    m = fresh_mnt()
    box = m.box()
    box.start(FOREVER)
    m.note(box)
    pids = [p for p, _ in m.processes()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    m.kill()
    m.start()
    wait_for(lambda: not [p for p, _ in m.processes() if p in pids], "stopped processes were killed")
    assert box.go("print('after')").text == "after\n"


class Writer(threading.Thread):
    """Writes files, closes them, and notes those whose close() succeeded; starts runs and boxes as well."""

    def __init__(self, m, seed):
        super().__init__(daemon=True)
        self.m, self.seed, self.closed, self.made, self.deleted = m, seed, {}, set(), set()

    def run(self):
        try:
            self.work()
        except OSError as e:
            assert e.errno in (
                errno.ECONNABORTED,
                errno.ENOTCONN,
                errno.EIO,
                errno.EINTR,
                errno.ENODEV,
                errno.ENOENT,
            ), e

    def work(self):
        n = 0
        while True:
            n += 1
            name = f"k{self.seed}x{n}"
            (self.m / name).mkdir()
            self.made.add(name)
            for i in range(20):
                path = self.m / name / "workspace" / f"f{i}"
                data = os.urandom(random.randrange(1, 200000))
                with open(path, "wb") as f:
                    f.write(data)
                self.closed[path] = data
            (self.m / name / "run/code.py").write_text(FOREVER)
            if n % 3 == 0:
                for path in [p for p in self.closed if p.parent.parent.name == name]:
                    del self.closed[path]
                self.deleted.add(name)
                (self.m / name).rmdir()


@pytest.mark.bound(300)
def test_kill_9_of_the_daemon_at_random_moments_loses_no_closed_byte_and_leaves_no_process(fresh_mnt):
    m = fresh_mnt()
    rng = random.Random(5)
    for turn in range(scaled(12, 2)):
        writer = Writer(m, turn)
        writer.start()
        bytes_wanted = rng.randrange(1, 60)
        wait_for(
            lambda: len(writer.closed) + 20 * len(writer.deleted) >= bytes_wanted or not writer.is_alive(),
            "the workload goes on",
        )
        m.kill()
        writer.join(HANG)
        assert not writer.is_alive()
        wait_for(lambda: not m.processes(), "no process of a run is alive")
        m.start()
        names = set(os.listdir(m.path)) - {".sbxfs"}
        assert names >= writer.made - writer.deleted
        settled = {n for n in writer.deleted if n in names}
        assert len(settled) <= 1, f"deleted boxes are back: {settled}"
        for path, data in writer.closed.items():
            if path.parent.parent.name not in writer.deleted:
                assert path.read_bytes() == data, path
        last = sorted(writer.made - writer.deleted)[-1:]
        for name in last:
            (m / name / "run/code.py").write_text("print('usable')")
            assert (m / name / "run/stdout").read_text() == "usable\n"
        for name in names:
            (m / name).rmdir()


def test_a_half_deleted_box_is_finished_by_the_next_mount(fresh_mnt):
    m = fresh_mnt()
    box = m.box("halfway")
    box.go(
        "import os\nfor d in range(100):\n    os.mkdir(f'd{d}')\n    for f in range(60): open(f'd{d}/evidence{f}', 'w').write('x')"
    ).ok()
    m.note(box)
    box.delete()
    m.kill()
    m.start()
    assert "halfway" not in os.listdir(m.path)
    wait_for(lambda: not sh(["find", m.state, "-name", "evidence*"]).text, "the rest was removed")
    again = m.box("halfway")
    assert os.listdir(again.ws) == []


def test_a_half_made_box_is_usable_or_absent(fresh_mnt):
    m = fresh_mnt()
    for turn in range(scaled(5, 2)):
        (m / f"new{turn}").mkdir()
        m.kill()
        wait_for(lambda: not m.processes(), "no process is left")
        m.start()
        if f"new{turn}" not in os.listdir(m.path):
            (m / f"new{turn}").mkdir()
        (m / f"new{turn}/run/code.py").write_text("print('made')")
        assert (m / f"new{turn}/run/stdout").read_text() == "made\n"


def test_two_daemons_do_not_share_a_state_folder(fresh_mnt):
    m = fresh_mnt()
    second = fresh_mnt(start=False, state=m.state)
    done = sh(second.command())
    second.state = second.base / "none"  # what is left is not looked for in the first one's folder
    assert done.rc == 1
    message = done.err.decode().strip()
    assert str(m.state) in message and len(message.splitlines()) == 1, message
    assert m.box().go("print(1)").text == "1\n"


def test_ephemeral_boxes_go_with_the_mount_and_others_stay(fresh_mnt):
    m = fresh_mnt()
    old = m.box("old")
    (old.ws / "f").write_text("x")
    m.end()
    m.options.append("ephemeral")
    m.start()
    m.box("new").go("open('evidence-22', 'w').write('x')").ok()
    assert old.go("print(open('f').read())").text == "x\n"
    m.end()
    assert not sh(["find", m.state, "-name", "evidence-22"]).text
    m.options.remove("ephemeral")
    m.start()
    assert set(os.listdir(m.path)) - {".sbxfs"} == {"old"}


def test_a_box_whose_init_dies_tells_lost_and_works_again(fresh_mnt):
    m = fresh_mnt()
    m.allow("lost", "died", "ended", "EIO")
    box = m.box()
    box.start(FOREVER)
    m.note(box)
    reader = spawn(["cat", box.run / "exit"])
    pids = [p for p, _ in m.processes()]
    for pid in pids:  # whoever of them is the init: all die
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    done = finish(reader)
    assert done.rc == 1 and b"Input/output error" in done.err, (done.out, done.err)
    assert box.status().split()[0] == "lost"
    assert box.error()
    wait_for(lambda: (box / "status").read_text() == "stopped\n", "its end is seen")  # what starts before may be lost, too
    assert box.go("print('again')").text == "again\n"


def test_a_crash_of_the_daemon_does_not_touch_another_daemons_boxes(fresh_mnt):
    a, b = fresh_mnt(), fresh_mnt()
    box = b.box()
    box.start("import os, time\nprint('READY', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n")
    a.box().start(FOREVER)
    a.kill()
    a.start()
    (box.ws / "go").touch()
    assert box.exit() == 0


def test_the_state_folder_is_not_readable_for_others(fresh_mnt):
    m = fresh_mnt()
    m.box().ready()
    assert os.stat(m.state).st_mode & 0o077 == 0 or not os.stat(m.state).st_mode & 0o007


def test_unmounting_is_quick_with_many_boxes(fresh_mnt):
    m = fresh_mnt()
    for _ in range(6):
        m.box().start(FOREVER)
    assert not m.end()
    assert not m.leftovers()
    m.start()
    assert len(set(os.listdir(m.path)) - {".sbxfs"}) == 6


def test_a_state_folder_of_nothing_is_made(tmp):
    m = Mount(state=tmp / "deep/state")
    try:
        m.start()
        assert m.box().go("print(1)").text == "1\n"
    finally:
        problems = m.stop()
        m.remove()
    assert not problems and Path(tmp / "deep/state").is_dir()
