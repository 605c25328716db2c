# SPDX-License-Identifier: Apache-2.0
"""Work that takes long can be followed in .sbxfs/events. What of it a template's copy says is in test_templates.py."""
import os
import re
import signal
import subprocess
from pathlib import Path

from helpers import finish, need, wait_for


def events(m, name):
    lines = (m / ".sbxfs/events").read_text().splitlines()
    return [words[2] for words in (line.split(" ", 2) for line in lines) if words[1] == name]


def test_the_first_start_of_a_box_is_told_step_by_step(fresh_mnt):
    m = fresh_mnt()
    box = m.box().ready()
    told = [e for e in events(m, box.name) if not e.startswith("looking for an OCI runtime")]
    assert told == ["creating", "starting the container", "running"] or told[-1].startswith("running: no limits"), told


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
