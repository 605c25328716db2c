# SPDX-License-Identifier: Apache-2.0
"""The policy `cleanup`: boxes that nobody uses are stopped or deleted, and nothing that somebody uses is.

The shortest time is a second. Nothing is asserted about how long something takes: a test waits for the line in
.sbxfs/events, and a box beside it, which the policy does act on, shows that a box that is left alone had its time."""
import errno
import os
import subprocess

import pytest
from helpers import Box, finish, spawn, wait_for

IDLE = {"cleanup": {"idle": "1s"}}
DELETE = {"cleanup": {"idle": "1s", "idle_action": "delete"}}


def events(m, box):
    """What the events say about a box, oldest first."""
    lines = (m / ".sbxfs/events").read_text().splitlines()
    return [words[2] for words in (line.split(" ", 2) for line in lines) if words[1] == box.name]


def until_event(m, box, text, times=1):
    wait_for(lambda: sum(text in e for e in events(m, box)) >= times, f"the event {text!r} of {box.name}: {events(m, box)}")


def gone(m, box):
    until_event(m, box, "deleting: ")
    assert box.name not in os.listdir(m.path)


def outlive(m, box, keep):
    """Makes another box and lets the policy delete it, while keep() uses @box: without that, @box would go first."""
    other = m.box().ready()
    while other.name in os.listdir(m.path):
        keep()
    gone(m, other)
    assert box.name in os.listdir(m.path), events(m, box)


def test_an_idle_box_is_stopped_and_says_why(fresh_mnt):
    m = fresh_mnt(config=IDLE)
    box = m.box().ready()
    (box.ws / "file").write_text("kept")
    until_event(m, box, "stopping: not used for 1 s (cleanup.idle)")
    until_event(m, box, "stopped")
    assert (box / "status").read_text() == "stopped\n"
    assert box.error() == "stopped: not used for 1 s (cleanup.idle)\n"
    assert (box.ws / "file").read_text() == "kept"
    assert "cleanup" not in (m / ".sbxfs/errors").read_text(), "it is no failure"


def test_a_stopped_box_wakes_and_is_stopped_again(fresh_mnt):
    m = fresh_mnt(config=IDLE)
    box = m.box().ready()
    until_event(m, box, "stopped")
    assert box.go("print(6*7)").text == "42\n"
    assert "cleanup" not in box.error()
    until_event(m, box, "stopped", 2)


def test_an_idle_box_is_deleted_where_the_configuration_says_so(fresh_mnt):
    m = fresh_mnt(config=DELETE)
    box = m.box().ready()
    (box.ws / "file").touch()
    while not any(e.startswith("deleting: ") for e in events(m, box)):
        try:
            os.stat(box.path)  # the kernel knows the name
        except OSError:
            pass
    # the name is free at once, and what comes is another box
    again = m.box(box.name).ready()
    assert os.listdir(again.ws) == []
    assert "deleting: not used for 1 s (cleanup.idle)" in events(m, box)
    until_event(m, box, "deleted")


def test_an_old_box_is_deleted(fresh_mnt):
    m = fresh_mnt(config={"cleanup": {"max_age": "1s"}})
    box = m.box().ready()
    gone(m, box)
    assert "deleting: older than 1 s (cleanup.max_age)" in events(m, box)


def test_a_template_has_a_policy_of_its_own(fresh_mnt):
    own = {"templates": {"keep": {"cleanup": {"idle": "max"}}, "go": {"cleanup": {"idle_action": "delete"}}}}
    m = fresh_mnt(config={**IDLE, **own})
    for name in ("keep", "go"):
        (m / ".sbxfs/templates" / name / name).mkdir()
    boxes = {n: Box(m / n) for n in ("keep", "go")}
    for b in boxes.values():
        m.note(b)
        b.ready()
    plain = m.box().ready()
    gone(m, boxes["go"])
    until_event(m, plain, "stopped")
    assert (boxes["keep"] / "status").read_text() == "running\n"
    assert "idle_action: delete" in (m / ".sbxfs/templates/go/spec").read_text()
    assert "cleanup:\n  idle: max\n" in (m / ".sbxfs/templates/keep/spec").read_text()
    # what is shown is a configuration, and the same one
    shown = (m / ".sbxfs/config").read_text()
    m.stop()
    m.config_file.write_text(shown)
    m.start()
    assert (m / ".sbxfs/config").read_text() == shown


# what keeps a box: a program that goes on, a file that is open, or any of these again and again
def run_going_on(box):
    box.start("import time; print('READY', flush=True); time.sleep(1000)")


def process_going_on(box):
    (box / "processes/server").mkdir()
    (box / "processes/server/command").write_text("echo READY; sleep 1000\n")


def file_open_for_reading(box):
    (box.ws / "f").write_text("x")
    return open(box.ws / "f")


def file_open_for_writing(box):
    return open(box.ws / "f", "w")


@pytest.mark.parametrize("hold", [run_going_on, process_going_on, file_open_for_reading, file_open_for_writing])
def test_a_box_stays_because_of_a(fresh_mnt, hold):
    m = fresh_mnt(config={"cleanup": {"idle": "1s", "idle_action": "delete", "max_age": "1s"}})
    box = m.box().ready()
    held = hold(box)
    outlive(m, box, lambda: None)
    if held:
        held.close()
        gone(m, box)


USES = {
    "write a file": lambda b: (b.ws / "f").write_text("x"),
    "read a file": lambda b: (b.ws / "f").read_text(),
    "make and remove a folder": lambda b: ((b.ws / "d").mkdir(), (b.ws / "d").rmdir()),
    "touch": lambda b: os.utime(b.ws / "f"),
    "rename": lambda b: (os.rename(b.ws / "f", b.ws / "g"), os.rename(b.ws / "g", b.ws / "f")),
    "write a setting": lambda b: (b.run / "args").write_text("a\n"),
    "write a control file": lambda b: (b / "status").write_text("start\n"),
    "read a result": lambda b: (b.run / "stdout").read_text(),
    "read logs": lambda b: (b.run / "logs").read_text(),
    "write code without an end": lambda b: (b.run / "code.py~").write_text("x"),
}


@pytest.mark.parametrize("use", USES)
def test_it_is_use_to(fresh_mnt, use):
    m = fresh_mnt(config=DELETE)
    box = m.box().ready()
    (box.ws / "f").write_text("x")
    box.go("print(1)")
    outlive(m, box, lambda: USES[use](box))


LOOKS = {
    "list": lambda b: [os.listdir(d) for d in (b.path, b.run, b.ws, b / "processes")],
    "stat": lambda b: [os.stat(f) for f in (b.path, b.ws / "f", b.run / "stdout", b.run / "code.py")],
    "read status and usage": lambda b: [(b / f).read_text() for f in ("status", "usage", "info.json", "error", "ports")],
    "read the monitor": lambda b: (b / "monitor/1m").read_text(),
    "read run/status": lambda b: [(b.run / f).read_text() for f in ("status", "args", "code.py")],
}


@pytest.mark.parametrize("look", LOOKS)
def test_it_is_no_use_to(fresh_mnt, look):
    m = fresh_mnt(config=DELETE)
    box = m.box().ready()
    (box.ws / "f").write_text("x")
    box.go("print(1)")
    try:
        while True:
            LOOKS[look](box)
    except OSError as e:
        assert e.errno in (errno.ENOENT, errno.ESTALE), e
    gone(m, box)


def test_a_reader_who_waits_keeps_the_box(fresh_mnt):
    m = fresh_mnt(config=DELETE)
    box = m.box().ready()
    box.start("print('READY', flush=True); import time\nwhile not __import__('os').path.exists('go'): time.sleep(0.01)")
    reader = spawn(["cat", box.run / "stdout"], stdout=subprocess.PIPE)
    outlive(m, box, lambda: None)
    (box.ws / "go").write_text("")
    assert finish(reader).out == b"READY\n"


def test_the_last_use_outlives_the_mount(fresh_mnt):
    """The box is idle already when it is mounted again; one that is used then is not touched."""
    m = fresh_mnt(config={"cleanup": {"idle": "1h", "idle_action": "delete"}})
    box = m.box().ready()
    (box.ws / "f").write_text("x")
    box.no_failure()
    m.stop()
    stored = (m.state / "boxes" / box.name / "settings").read_text()
    assert stored.startswith("= used "), stored
    used = int(stored.splitlines()[1])
    m.config_file.write_text(m.config_file.read_text().replace("1h", "2s"))
    (m.state / "boxes" / box.name / "settings").write_text(stored.replace(str(used), str(used - 3600000)))
    m.start()
    gone(m, box)


def test_a_box_that_is_used_at_the_last_moment_is_kept(fresh_mnt):
    """Users who come at any time: what they were answered holds. 'in use' is never deleted under a writer."""
    m = fresh_mnt(config=DELETE)
    writers = []
    for i in range(6):
        box = m.box().ready()
        # sleeps close to the policy's second, then writes, closes, reads back: all of it or ENOENT/ESTALE from the start
        script = (
            "import os, sys, time\n"
            f"time.sleep(0.9 + {i} * 0.05)\n"
            "try:\n"
            f"    fd = os.open({str(box.ws / 'f')!r}, os.O_CREAT | os.O_RDWR)\n"
            "except OSError as e:\n"
            "    sys.exit(3 if e.errno in (2, 116) else 4)\n"
            "for n in range(200):\n"
            "    os.write(fd, b'x'); time.sleep(0.01)\n"
            "sys.exit(0 if os.pread(fd, 300, 0) == b'x' * 200 else 5)\n"
        )
        writers.append((box, spawn(["/usr/bin/python3", "-c", script])))
    for box, writer in writers:
        assert finish(writer).rc in (0, 3)
        gone(m, box)


def test_unmounting_while_boxes_are_due(fresh_mnt):
    m = fresh_mnt(config=DELETE)
    boxes = [m.box().ready() for _ in range(8)]
    until_event(m, boxes[0], "deleting")
    assert m.unmount().rc == 0
