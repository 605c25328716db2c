# SPDX-License-Identifier: Apache-2.0
"""Work that takes long can be followed in .sbxfs/events. What of it a template's copy says is in test_templates.py."""
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from helpers import SBXFS, finish, kill, need, sh, spawn, wait_for


def events(m, name):
    lines = (m / ".sbxfs/events").read_text().splitlines()
    return [words[2] for words in (line.split(" ", 2) for line in lines) if words[1] == name]


def test_the_first_start_of_a_box_is_told_step_by_step(fresh_mnt):
    m = fresh_mnt()
    box = m.box().ready()
    told = [e for e in events(m, box.name) if not e.startswith("looking for an OCI runtime")]
    assert told == ["creating", "starting the container", "running"] or told[-1].startswith("running: no limits"), told
    box.delete()
    wait_for(lambda: events(m, box.name)[-1] == "deleted", "the box is gone")
    assert events(m, box.name)[-2:] == ["deleting", "deleted"] and events(m, box.name).count("deleting") == 1


@pytest.fixture
def gated(tmp, fresh_mnt):  # the daemon ends before its runtime goes
    """A mount whose runtime starts nothing while the returned file is there."""
    real = re.search(r"OCI runtime\s+ok: (\S+)", sh([SBXFS, "check", "local"]).text)[1]
    os.chmod(tmp, 0o755)
    gate, wrapper = tmp / "gate", tmp / os.path.basename(real)
    wrapper.write_text(f'#!/bin/sh\ncase " $* " in *" run "*) while [ -e {gate} ]; do sleep 0.02; done;; esac\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    return fresh_mnt(config={"oci_runtime": str(wrapper)}), gate


def test_boxes_that_wait_for_others_to_start_say_so(gated):
    """At most eight containers are started at once."""
    m, gate = gated
    m.box().ready()  # the runtime was tried
    gate.touch()
    boxes = [m.box() for _ in range(10)]

    def waiting():
        return {b.name for b in boxes if "waiting for other containers to start" in events(m, b.name)}

    def starting():
        return {b.name for b in boxes if "starting the container" in events(m, b.name)}

    wait_for(lambda: len(starting()) == 8 and len(waiting()) == 2, "eight start, two wait")
    assert not starting() & waiting()
    gate.unlink()
    for b in boxes:
        b.ready()
    assert all(events(m, n).count("waiting for other containers to start") == 1 for n in waiting())


class Slowly:
    """Every deletion of a name by the daemon takes 50 ms more."""

    def __init__(self, m, tmp):
        tasks = Path(f"/proc/{m.pid}/task")
        (sweeper,) = [t.name for t in tasks.iterdir() if (t / "comm").read_text() == "sbxfs-sweep\n"]
        self.log = tmp / "strace"
        self.proc = subprocess.Popen(
            [need("strace"), "-p", sweeper, "-o", self.log, "-e", "trace=unlinkat", "-e", "inject=unlinkat:delay_enter=50000"],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert "attached" in self.proc.stderr.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.proc.send_signal(signal.SIGINT)
        finish(self.proc)


def test_deleting_a_big_tree_says_how_far_it_is(fresh_mnt, tmp):
    m = fresh_mnt()
    box, other, before = [m.box().ready() for _ in range(3)]
    before.delete()  # the thread that deletes is there from now on
    wait_for(lambda: "deleted" in events(m, before.name), "a box is gone")
    for b in (box, other):
        for i in range(100):
            (b.ws / f"f{i}").touch()
    with Slowly(m, tmp):
        box.delete()
        other.delete()
        assert box.name not in os.listdir(m.path)  # the name has gone at once
        wait_for(lambda: all("deleted" in events(m, b.name) for b in (box, other)), "both boxes are gone")
    # one after the other, whichever comes first
    told = {b.name: [e for e in events(m, b.name) if e.startswith("deleting: ")] for b in (box, other)}
    for lines in told.values():
        numbers = [int(n) for e in lines for n in re.findall(r"^deleting: (\d+) files so far$", e)]
        assert numbers and numbers == sorted(set(numbers)) and numbers[-1] <= 110, told
    assert [e for e in sum(told.values(), []) if e == "deleting: waiting for other deletions"], told


# ---- the file itself ----


@pytest.fixture
def flood(fresh_mnt):
    """A mount that keeps 4 KiB of events, and a function that makes some more and waits for them."""
    m = fresh_mnt(config={"events_max": "4K"})

    def more(boxes=1):
        for _ in range(boxes):
            box = m.box()
            box.delete()
            wait_for(lambda: "deleted" in events(m, box.name), f"{box.name} is gone")
        return box.name

    return m, more


def test_events_never_stop(flood, tmp):
    m, more = flood
    path = m / ".sbxfs/events"
    with open(tmp / "followed", "wb") as out:
        tail = spawn(["tail", "-s", "0.01", "-c", "+1", "-f", path], stdout=out)
    names = []
    while path.stat().st_size < 20000:
        names.append(more())
        wait_for(lambda: f" {names[-1]} deleted\n" in (tmp / "followed").read_text(), "tail -f has it")
    kill(tail)
    followed = (tmp / "followed").read_text()
    assert [n for n in names if followed.count(f" {n} creating\n") != 1 or followed.count(f" {n} deleted\n") != 1] == []
    assert len(followed) == path.stat().st_size, "size and offsets are those of all that ever came"
    kept = path.read_text()
    assert 3800 < len(kept) <= 4096 and followed.endswith(kept)
    assert followed[: -len(kept)].endswith("\n"), "it begins with a whole line"


def test_tools_read_what_is_kept_of_the_events(flood):
    m, more = flood
    path = m / ".sbxfs/events"
    while path.stat().st_size < 9000:
        more()
    kept = path.read_text()
    size = path.stat().st_size
    assert sh(["cat", path]).text == kept
    assert sh(["tail", "-n", "3", path]).text == "".join(kept.splitlines(True)[-3:])
    assert sh(["tail", "-c", "100", path]).text == kept[-100:]
    assert sh(["head", "-n", "2", path]).text == "".join(kept.splitlines(True)[:2])
    assert sh(["grep", "-c", "", path]).text == f"{kept.count(chr(10))}\n"
    with open(path, "rb", buffering=0) as f:
        fd = f.fileno()
        assert os.pread(fd, 50, 100) == b"\n" * 50, "what has gone is empty lines to who seeks there"
        assert os.pread(fd, 4096, size - len(kept)) == kept.encode(), "what is kept lies where it always did"
        f.seek(0)
        assert f.read(64) == kept[:64].encode()


def test_a_reader_who_falls_behind_goes_on_with_a_whole_line(flood):
    m, more = flood
    path = m / ".sbxfs/events"
    more(3)
    with open(path, "rb", buffering=0) as f:
        begin = f.read(30)  # in the middle of a line
        while path.stat().st_size < 9000:
            more()
        rest = f.read()
    assert len(begin) == 30
    assert rest == path.read_bytes()
