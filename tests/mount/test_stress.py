# SPDX-License-Identifier: Apache-2.0
"""Many boxes and many runs at once: every result is right, and afterwards nothing of them is left. SBX_SCALE scales them."""
import os
import re
import threading
from pathlib import Path

import pytest
from helpers import SBXFS, Box, scaled, sh, wait_for, why_no_limits

WORKERS = 8
GROWTH_KB = 8 * 1024  # what the daemon may keep: arenas of its threads, tables that have grown
SANITIZED = any(s in SBXFS.read_bytes() for s in (b"__asan_init", b"__tsan_init"))  # its own memory is no measure
FDS = 8  # descriptors that come and go: an event that is being written, a folder that is being removed


class Measure:
    """What a daemon has: memory, descriptors, threads, counters, and what stands in its state folder."""

    def __init__(self, mnt):
        self.rss = int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{mnt.pid}/status").read_text())[1])
        self.fds = len(os.listdir(f"/proc/{mnt.pid}/fd"))
        self.threads = mnt.threads()
        self.stats = stats(mnt)
        self.files = files(mnt)


def stats(mnt):
    return {k: int(v) for k, v in (line.split() for line in (mnt / ".sbxfs/stats").read_text().splitlines())}


def files(mnt):
    return set(sh(["find", mnt.state, "/run/sbxfs", "-mindepth", "1"]).text.splitlines())


def workers(do, jobs):
    """do(worker, job) for all jobs, by WORKERS threads; the first failure is the test's."""
    jobs, failed, lock = list(reversed(list(jobs))), [], threading.Lock()

    def work(worker):
        while not failed:
            with lock:
                if not jobs:
                    return
                job = jobs.pop()
            try:
                do(worker, job)
            except BaseException as e:
                failed.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(WORKERS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]


def nothing_left(mnt, before):
    """All boxes are gone: with containers, cgroups, mounts, files, descriptors, threads, counters, memory."""
    wait_for(lambda: not mnt.processes(), "no process is left", 60)
    wait_for(lambda: not mnt.cgroups(), "no cgroup is left", 60)
    assert not mnt.leftovers() or mnt.leftovers() == [f"still mounted: {mnt.path}"]
    mine = {str(mnt.state / "boxes"), str(mnt.state / "trash")}

    def more():
        return {f for f in files(mnt) - before.files if f not in mine and any(i in f for i in [str(mnt.state), *mnt.ids])}

    wait_for(lambda: not more(), f"nothing is left in the state folder: {sorted(more())[:5]}", 60)
    wait_for(lambda: Measure(mnt).fds <= before.fds + FDS, f"descriptors are closed: {before.fds}, {Measure(mnt).fds}", 60)
    wait_for(lambda: Measure(mnt).threads <= before.threads + 4, f"threads: {before.threads}, {Measure(mnt).threads}", 60)
    now = stats(mnt)
    assert (now["boxes"], now["runs_active"], now["spool_bytes"], now["waiting_requests"]) == (0, 0, 0, 0), now
    assert now["open_files"] == before.stats["open_files"], now
    wait_for(lambda: stats(mnt)["nodes"] <= before.stats["nodes"] + 16, f"nodes are forgotten: {stats(mnt)}", 60)
    return Measure(mnt)


@pytest.mark.bound(600)
def test_boxes_made_and_removed_in_parallel_leave_nothing(fresh_mnt):
    m = fresh_mnt()
    warm = m.box("warm")
    assert warm.go("print(1)").ok().text == "1\n"
    warm.delete()
    wait_for(lambda: not m.processes(), "the first box is gone")
    before = Measure(m)
    n = scaled(200, 24)

    def one(worker, i):
        box = Box(m / f"box{i}")
        os.mkdir(box.path)
        m.note(box)
        assert (box / "status").read_text() in ("creating\n", "running\n")
        if i % 4 == 0:  # deleted while it starts
            box.delete()
            return
        if i % 4 == 1:
            assert box.go(f"echo {i}; exit 3\n", "code.sh").text == f"{i}\n" and box.exit() == 3
        elif i % 4 == 2:  # with a run and a process going on
            box.start("echo READY; exec sleep 1000\n", "code.sh")
            (box / "processes/new").write_text("exec sleep 1000\n")
        else:
            assert box.ready().path.exists()
            (box.ws / "file").write_text(f"{i}\n")
            assert box.go("cat file\n", "code.sh").text == f"{i}\n"
        sh(["rm", "-rf", box.path]).ok() if i % 3 else box.delete()
        assert not box.path.exists()

    workers(one, range(n))
    after = nothing_left(m, before)
    assert SANITIZED or after.rss - before.rss < GROWTH_KB, f"memory in kB: {before.rss}, {after.rss} after {n} boxes"
    print(f"\n{n} boxes: {before.rss} -> {after.rss} kB, {before.fds} -> {after.fds} descriptors, {after.stats}")
    text = (m / ".sbxfs/events").read_text()
    assert text.count(" deleted\n") == n + 1
    assert "failed" not in text


@pytest.mark.bound(600)
def test_many_runs_of_many_workers_over_many_boxes_are_all_right(fresh_mnt):
    m = fresh_mnt()
    warm = m.box("warm")
    warm.go("print(1)").ok()
    warm.delete()
    wait_for(lambda: not m.processes(), "the first box is gone")
    before = Measure(m)
    n, boxes = scaled(1000, 80), []
    for i in range(20):
        box = m.box(f"box{i}")
        for w in range(WORKERS):
            (box.run / f"w{w}").mkdir()
        boxes.append(box)
    workers(lambda _, b: m.note(b.ready()), boxes)

    def run(worker, i):
        box, slot = boxes[i % len(boxes)], f"w{worker}"
        if i % 10 == 0:
            r = box.go(f"import sys\nprint('out {i}')\nprint('err {i}', file=sys.stderr)\nsys.exit({i % 200})\n", slot=slot)
        else:
            r = box.go(f"echo out {i}; echo err {i} >&2; exit {i % 200}\n", "code.sh", slot=slot)
        assert (r.out, r.err, r.code) == (f"out {i}\n".encode(), f"err {i}\n".encode(), i % 200), (i, r)
        value = box.json(slot)
        assert (value["stdout"], value["stderr"], value["exitCode"]) == (f"out {i}\n", f"err {i}\n", i % 200), value

    workers(run, range(n // 4))
    middle = Measure(m)
    workers(run, range(n // 4, n))
    late = Measure(m)
    assert late.stats["runs_started"] == n + 1 and late.stats["runs_active"] == 0
    if not why_no_limits():  # else each box says so
        assert late.stats["failures"] == before.stats["failures"]
    assert SANITIZED or late.rss - middle.rss < GROWTH_KB, f"memory in kB: {middle.rss}, {late.rss} after {n} runs"
    for box in boxes:
        ended = [p for p in os.listdir(box / "processes") if p.isdigit()]
        assert len(ended) <= 32 + WORKERS, "32 ended runs are kept, and what the slots show"
        box.delete()
    after = nothing_left(m, before)
    assert SANITIZED or after.rss - before.rss < 2 * GROWTH_KB, f"memory in kB: {before.rss}, {after.rss}"
    print(f"\n{n} runs: {before.rss} -> {middle.rss} -> {late.rss} -> {after.rss} kB, {before.fds} -> {after.fds} descriptors")
