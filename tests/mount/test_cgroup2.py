# SPDX-License-Identifier: Apache-2.0
"""A host with cgroup v2 only: a mount namespace in which nothing but the unified hierarchy is mounted, as far as that is to be had
here, with crun. What controllers the kernel leaves to v2 decides whether there are limits; what cannot be had is told."""
import errno
import os
import re
import shutil
from pathlib import Path

import pytest
from helpers import ROOT, SBXFS, Mount, expect_errno, need, sh, skip, wait_for

# submounts first, so that nothing of this reaches the host
V2_ONLY = """mount --make-private / && mount --make-rprivate /sys && umount -l /sys/fs/cgroup &&
mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@" """
SHELL = ["unshare", "-m", "--propagation", "unchanged", "sh", "-c", V2_ONLY, "sh"]


class V2Mount(Mount):
    """Its folder is a shared mount of its own, so that what the daemon mounts there is seen out here, too."""

    def __init__(self, **kw):
        super().__init__(config={"oci_runtime": "crun"}, **kw)
        sh(["mount", "--bind", self.base, self.base]).ok()
        sh(["mount", "--make-shared", self.base]).ok()

    def command(self):
        return [*SHELL, *super().command()]

    def remove(self):
        if self.alive():  # the test failed
            self.kill()
        wait_for(lambda: sh(["umount", self.base]).rc == 0, "the test's own mount is gone")
        super().remove()


def controllers():
    return sh([*SHELL, "cat", "/sys/fs/cgroup/cgroup.controllers"]).ok().text.split()


def cgroup_of(box):
    """Of the box's first process in the unified hierarchy, seen from out here."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
                if line.startswith("0::") and box.info()["id"] in line:
                    return line[3:]
        except OSError:
            pass
    return None


@pytest.fixture(scope="module")
def v2():
    if not ROOT:
        skip("root")
    need("crun")
    need("unshare", "util-linux")
    if sh([*SHELL, "true"]).rc != 0:
        pytest.skip("explained: cgroup: the unified hierarchy cannot be mounted here: " + sh([*SHELL, "true"]).err.decode())
    m = V2Mount()
    try:
        m.start()
        yield m
        problems = m.stop()
    finally:
        m.remove()
    assert not problems, "\n".join(problems)


@pytest.fixture
def box(v2):
    b = v2.box()
    yield b
    if b.path.exists():
        v2.note(b)
        b.delete()


def test_a_box_starts_and_runs(box):
    assert box.go("print(6 * 7)").ok().text == "42\n"
    assert (box / "status").read_text() == "running\n"


def test_the_container_has_a_cgroup_of_its_own_which_goes_with_it(v2, box):
    box.ready()
    v2.note(box)
    where = cgroup_of(box)
    assert where and where != "/", where
    mine = sh([*SHELL, "find", "/sys/fs/cgroup", "-type", "d", "-name", f"*{box.info()['id']}*"]).ok().text
    assert mine.count("\n") >= 1
    ident = box.info()["id"]
    box.delete()
    wait_for(
        lambda: not sh([*SHELL, "find", "/sys/fs/cgroup", "-type", "d", "-name", f"*{ident}*"]).ok().text,
        "the cgroup of a deleted box is gone",
    )


def test_stop_start_and_restart_work(box):
    box.ready()
    (box.ws / "kept").write_text("x")
    (box / "status").write_text("stop\n")
    wait_for(lambda: (box / "status").read_text() == "stopped\n", "stopped")
    assert cgroup_of(box) is None
    (box / "status").write_text("start\n")
    box.ready()
    assert box.go("print(open('kept').read())").ok().text == "x\n"
    (box / "status").write_text("restart\n")
    wait_for(lambda: (box / "status").read_text() == "running\n", "running")
    assert box.go("print('again')").ok().text == "again\n"


def test_limits_hold_or_what_is_missing_is_told(v2, box):
    box.ready()
    missing = [c for c in ("cpu", "memory", "pids") if c not in controllers()]
    text = sh([*SHELL, SBXFS, "check"], seconds=60).text
    line = re.search(r"(?m)^limits +(.*)$", text).group(1)
    if not missing:
        assert box.error() == "" and line.startswith("ok")
        assert "memory_bytes" in (box / "usage").read_text()
        return
    reason = "cgroup v2 here lacks the controllers " + ", ".join(missing)
    assert box.error() == f"no limits of cpu and memory here: {reason}\n"
    assert line.endswith(reason)
    assert (box / "limits/memory").read_text() == "max\n", "what is in force, not what was asked for"
    v2.allow("limit", "cgroup", "pause")
    expect_errno(errno.EOPNOTSUPP, (box / "limits/memory").write_text, "64M\n")
    expect_errno(errno.EOPNOTSUPP, (box / "status").write_text, "pause\n")
    assert box.go("print('well')").ok().text == "well\n"


def test_processes_are_limited_all_the_same(v2):
    """By a resource limit, where there is no controller for it."""
    m = v2
    b = m.box()
    (b / "limits/pids").write_text("20\n")
    r = b.go(
        """import os, signal
n = 0
try:
    while n < 200:
        if os.fork() == 0:
            signal.pause()
        n += 1
except BlockingIOError:
    pass
print(n)
os.kill(0, signal.SIGKILL)
"""
    )
    assert 0 < int(r.text or 0) <= 20 or r.code == 137 and r.text == "", r
    assert b.go("print('room for the next')").ok().text == "room for the next\n"
    m.note(b)
    b.delete()


def test_a_killed_daemon_leaves_nothing_and_the_next_mount_works():
    if not ROOT:
        skip("root")
    if not shutil.which("crun", path=os.environ.get("PATH", "") + ":/usr/sbin"):
        need("crun")
    m = V2Mount()
    try:
        m.start()
        b = m.box()
        b.start("import time\nprint('READY', flush=True)\ntime.sleep(600)\n")
        m.note(b)
        m.kill()
        wait_for(lambda: not m.processes(), "all processes of the box have ended with the daemon")
        m.start()
        assert b.go("print('after')").ok().text == "after\n"
        ident = b.info()["id"]
        b.delete()
        problems = m.stop()
        left = sh([*SHELL, "find", "/sys/fs/cgroup", "-type", "d", "-name", f"*{ident}*"]).ok().text
    finally:
        m.remove()
    assert not problems and not left, (problems, left)
