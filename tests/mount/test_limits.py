# SPDX-License-Identifier: Apache-2.0
"""limits/: what is in force is read, what is written holds at once, from inside and from outside, and outlives the mount."""
import errno
import os
import re
import threading
from pathlib import Path

import pytest
from helpers import (
    ROOT,
    SBXFS,
    expect_errno,
    finish,
    kill,
    limits,
    loop_devices,
    need_limits,
    sh,
    skip,
    spawn,
    until_waiting,
    wait_for,
    why_no_limits,
)

MB = 1 << 20

# file, what is written, what is read back
TAKEN = [
    ("cpu", "0.5\n", "0.5\n"),
    ("cpu", "500m", "0.5\n"),
    ("cpu", "2\n", "2\n"),
    ("cpu", "max\n", "max\n"),
    ("memory", "256M\n", f"{256 * MB}\n"),
    ("memory", "1.5G", f"{1536 * MB}\n"),
    ("memory", "max\n", "max\n"),
    ("memory", f"{100 * MB + 5}\n", f"{100 * MB}\n"),  # whole pages
    ("pids", "50\n", "50\n"),
    ("pids", "max\n", "max\n"),
    ("output", "1M\n", f"{MB}\n"),
    ("output", "max\n", "max\n"),
    ("timeout", "1500ms\n", "1.5\n"),
    ("timeout", "5m\n", "300\n"),
    ("timeout", "max\n", "max\n"),
]

REFUSED = [
    ("cpu", "many\n", "cores"),
    ("cpu", "0.001\n", "at least 0.01"),
    ("memory", "1M\n", "at least 16M"),
    ("memory", "-1\n", "size"),
    ("memory", "\n", "size"),
    ("disk", "10K\n", "at least 1M"),
    ("pids", "1\n", "at least 4"),
    ("pids", "1.5\n", "whole number"),
    ("output", "x\n", "size"),
    ("timeout", "soon\n", "time"),
    ("timeout", "99999999999999999999h\n", "out of range"),
]


def cgroup_file(box, name_v1, name_v2):
    """The text of a file of the box's cgroup, as the host sees it."""
    container = box.info()["id"]
    for folder, _, files in os.walk("/sys/fs/cgroup"):
        if container in os.path.basename(folder):
            for name in (name_v1, name_v2):
                if name in files:
                    return (Path(folder) / name).read_text().strip()
    raise AssertionError(f"no {name_v1} or {name_v2} for {container}")


def test_the_defaults_are_read(box):
    box.ready()
    read = {p.name: p.read_text() for p in (box / "limits").iterdir()}
    assert sorted(read) == ["cpu", "disk", "memory", "output", "pids", "timeout"]
    assert (read["disk"], read["output"], read["pids"], read["timeout"]) == ("max\n", f"{64 * MB}\n", "256\n", "300\n")
    if not why_no_limits():
        assert (read["cpu"], read["memory"]) == ("1\n", f"{512 * MB}\n")
    else:
        assert (read["cpu"], read["memory"]) == ("max\n", "max\n"), "what is in force, not what was asked for"


@pytest.mark.parametrize("name,text,back", TAKEN)
def test_a_limit_is_taken_and_read_back(mnt, name, text, back):
    if name in ("cpu", "memory"):
        need_limits()
    box = mnt.box()
    box.ready()
    at = box / "limits" / name
    at.write_text(text)
    assert at.read_text() == back
    at.write_text(at.read_text())
    assert at.read_text() == back, "the read form is a write form"
    shown = box.info()["limits"][name]
    assert shown is None if back == "max\n" else float(shown) == float(back)
    assert box.no_failure()
    box.delete()


@pytest.mark.parametrize("name,text,word", REFUSED)
def test_a_bad_limit_fails_its_write_with_a_reason(box, name, text, word):
    at = box / "limits" / name
    before = at.read_text()
    with open(at, "r+b", buffering=0) as f:
        expect_errno(errno.EINVAL, f.write, text.encode())
    assert word in box.error()
    assert at.read_text() == before


def test_a_memory_limit_holds_inside_and_outside_before_and_after_a_change(box):
    need_limits()
    hog = "x = bytearray(200 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('fits')\n"
    (box / "limits/memory").write_text("128M")
    assert cgroup_file(box.ready(), "memory.limit_in_bytes", "memory.max") == str(128 * MB)
    assert box.go(hog).code == 137
    assert box.status() == "signaled 9 oom"
    assert box.error() == "memory limit of 128M reached\n"
    assert (box.run / "error").read_text() == "memory limit of 128M reached\n"
    (box / "limits/memory").write_text("400M")
    assert cgroup_file(box, "memory.limit_in_bytes", "memory.max") == str(400 * MB)
    assert box.go(hog).text == "fits\n"


def test_a_running_program_gets_the_memory_that_is_allowed_meanwhile(box):
    need_limits()
    (box / "limits/memory").write_text("64M")
    box.start(
        """import os, time
print('READY', flush=True)
while not os.path.exists('go'): time.sleep(0.01)
x = bytearray(150 << 20)
for i in range(0, len(x), 4096): x[i] = 1
print('fits')
"""
    )
    (box / "limits/memory").write_text("300M")
    (box.ws / "go").touch()
    assert box.exit() == 0
    assert "fits" in (box.run / "stdout").read_text()


def test_less_memory_than_is_in_use_is_busy_with_a_reason(box):
    need_limits()
    if not os.path.exists("/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        skip("v2", "cgroup v2 takes it, and ends what is too large")
    box.start(
        "import sys, time\nx = bytearray(200 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('READY')\nsys.stdout.flush()\ntime.sleep(600)\n"
    )
    before = (box / "limits/memory").read_text()
    with open(box / "limits/memory", "r+b", buffering=0) as f:
        expect_errno(errno.EBUSY, f.write, b"32M\n")
    assert re.match(r"2\d\d(\.\d)?M of memory are in use: end something first, or allow more\n", box.error())
    assert (box / "limits/memory").read_text() == before
    assert cgroup_file(box, "memory.limit_in_bytes", "memory.max") == before.strip()


def test_a_cpu_limit_holds_inside_and_outside_before_and_after_a_change(box):
    need_limits()
    busy = "import time\nt, c = time.monotonic(), time.process_time()\nwhile time.monotonic() < t + 2: pass\nprint((time.process_time() - c) / (time.monotonic() - t))"
    box.ready()
    assert cgroup_file(box, "cpu.cfs_quota_us", "cpu.max").split()[0] == "100000"
    (box / "limits/cpu").write_text("0.2")
    assert cgroup_file(box, "cpu.cfs_quota_us", "cpu.max").split()[0] == "20000"
    assert float(box.go(busy).ok().text) < 0.3
    (box / "limits/cpu").write_text("max")
    assert cgroup_file(box, "cpu.cfs_quota_us", "cpu.max").split()[0] in ("-1", "max")
    assert float(box.go(busy).ok().text) > 0.3


def test_a_limit_of_processes_holds_before_and_after_a_change(box):
    forks = """import os, signal
n = 0
pids = []
try:
    while n < 100:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        pids.append(pid)
        n += 1
except OSError as e:
    print(e.errno == 11)
for pid in pids: os.kill(pid, 9)
print(n)
"""
    (box / "limits/pids").write_text("20")
    few = box.go(forks).ok().text.split()
    if ROOT or not why_no_limits():
        assert few[0] == "True" and 10 <= int(few[1]) < 20
    (box / "limits/pids").write_text("60")
    more = box.go(forks).ok().text.split()
    if ROOT or not why_no_limits():
        assert more[0] == "True" and 50 <= int(more[1]) < 60
    (box / "limits/pids").write_text("max")
    assert box.go(forks).ok().text == "100\n"


def test_limits_of_output_and_time_count_for_the_next_run(box):
    (box / "limits/output").write_text("100")
    box.save("print('x' * 1000)")
    assert (box.run / "stdout").read_bytes() == b"x" * 100
    assert box.status() == "exited 0 truncated"
    (box / "limits/output").write_text("64M")
    assert box.go("print('x' * 1000)").text == "x" * 1000 + "\n"
    (box / "limits/timeout").write_text("300ms")
    box.save("import time; time.sleep(600)")
    assert box.exit() == 124
    assert "timeout of 0.3 s reached" in box.error()
    (box.run / "timeout").write_text("20")
    assert box.go("import time; time.sleep(0.5); print('in time')").text == "in time\n", "run/timeout is stronger"


def test_changes_while_it_is_paused_stopped_or_starting_hold(mnt):
    need_limits()
    box = mnt.box()
    (box / "limits/memory").write_text("200M")  # it is starting
    box.ready()
    assert cgroup_file(box, "memory.limit_in_bytes", "memory.max") == str(200 * MB)
    (box / "status").write_text("pause")
    wait_for(lambda: (box / "status").read_text() == "paused\n", "paused")
    (box / "limits/memory").write_text("220M")
    (box / "limits/pids").write_text("40")
    assert cgroup_file(box, "memory.limit_in_bytes", "memory.max") == str(220 * MB)
    assert (box / "status").read_text() == "paused\n"
    (box / "status").write_text("stop")
    wait_for(lambda: (box / "status").read_text() == "stopped\n", "stopped")
    (box / "limits/memory").write_text("240M")
    (box / "limits/cpu").write_text("0.7")
    assert (box / "limits/memory").read_text() == f"{240 * MB}\n"
    (box / "status").write_text("start")
    box.ready()
    assert cgroup_file(box, "memory.limit_in_bytes", "memory.max") == str(240 * MB)
    assert cgroup_file(box, "cpu.cfs_quota_us", "cpu.max").split()[0] == "70000"
    assert (box / "limits/pids").read_text() == "40\n"
    box.delete()


def test_changed_limits_outlive_the_mount_and_the_daemons_death(fresh_mnt):
    m = fresh_mnt()
    box = m.box()
    box.ready()
    written = {"pids": "33\n", "output": f"{3 * MB}\n", "timeout": "44\n"}
    if not why_no_limits():
        written |= {"cpu": "0.4\n", "memory": f"{160 * MB}\n"}
    for name, text in written.items():
        (box / "limits" / name).write_text(text)
    m.restart()
    assert {n: (box / "limits" / n).read_text() for n in written} == written
    (box / "limits/pids").write_text("34\n")
    m.kill()
    m.start()
    assert (box / "limits/pids").read_text() == "34\n"
    assert box.go("print('well')").text == "well\n"


def test_rm_puts_a_limit_back_to_what_the_template_gives(fresh_mnt):
    need_limits()
    m = fresh_mnt(config=limits(memory="300M", pids=100))
    box = m.box()
    box.ready()
    (box / "limits/memory").write_text("200M")
    (box / "limits/pids").write_text("50")
    (box / "limits/memory").unlink()
    (box / "limits/pids").unlink()
    wait_for(lambda: (box / "limits/memory").read_text() == f"{300 * MB}\n", "memory is as in the template")
    wait_for(lambda: (box / "limits/pids").read_text() == "100\n", "pids is as in the template")


def test_limits_written_at_the_same_time_all_hold(box):
    need_limits()
    box.ready()
    last = {"cpu": "0.31\n", "memory": f"{310 * MB}\n", "pids": "31\n", "output": f"{31 * MB}\n", "timeout": "31\n"}
    failed = []

    def change(name, text):
        try:
            for n in range(1, 5):
                (box / "limits" / name).write_text({"cpu": f"0.{n}", "memory": f"{200 + n}M", "pids": f"{20 + n}"}.get(name, f"{n}M" if name == "output" else f"{n}"))
            (box / "limits" / name).write_text(text)
        except OSError as e:
            failed.append((name, e))

    threads = [threading.Thread(target=change, args=item) for item in last.items()]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not failed
    assert {n: (box / "limits" / n).read_text() for n in last} == last
    assert cgroup_file(box, "memory.limit_in_bytes", "memory.max") == str(310 * MB)
    assert cgroup_file(box, "cpu.cfs_quota_us", "cpu.max").split()[0] == "31000"


def test_a_box_that_is_deleted_meanwhile_answers_the_writer(mnt):
    need_limits()
    for _ in range(5):
        box = mnt.box()
        box.ready()
        writer = spawn(f"for i in 1 2 3 4 5 6; do echo $((100 + i))M > {box}/limits/memory || exit 3; done")
        box.delete()
        assert finish(writer).rc in (0, 1, 3)


def test_without_cgroups_a_change_is_not_supported_and_told(box):
    if not why_no_limits():
        skip("user", "limits can be had here")
    box.ready()
    for name in ("cpu", "memory"):
        with open(box / "limits" / name, "r+b", buffering=0) as f:
            expect_errno(errno.EOPNOTSUPP, f.write, b"100M\n" if name == "memory" else b"0.5\n")
        assert box.error().startswith("no limits of cpu and memory here: ")
    (box / "limits/pids").write_text("50")
    assert (box / "limits/pids").read_text() == "50\n"


# ---- disk ----

FILL = "dd if=/dev/zero of=big bs=1M count=300 2>/dev/null; stat -c %s big\n"


@pytest.fixture
def disk_mnt(fresh_mnt):
    if not ROOT:
        skip("root", "a loop device")
    return fresh_mnt(config=limits(disk="40M"))


def test_an_ordinary_user_is_told_that_disk_space_cannot_be_limited(fresh_mnt):
    if ROOT:
        skip("user", "root can")
    m = fresh_mnt(config=limits(disk="40M"))
    box = m.box()
    box.ready()
    assert (box / "limits/disk").read_text() == "max\n"
    if not why_no_limits():
        assert "only root can limit disk space" in box.error()
    with open(box / "limits/disk", "r+b", buffering=0) as f:
        expect_errno(errno.EOPNOTSUPP, f.write, b"50M\n")
    assert "only root can limit disk space" in box.error()


def test_a_disk_limit_holds_for_the_box_and_for_the_host(disk_mnt):
    box = disk_mnt.box()
    assert (box / "limits/disk").read_text() == f"{40 * MB}\n"
    size = int(box.go(FILL, "code.sh").ok().text)
    assert 40 * MB <= size <= 41 * MB
    (box.ws / "big").unlink()
    data = bytes(MB)
    written = 0
    with open(box.ws / "from-host", "wb", buffering=0) as f:
        try:
            while written < 300 * MB:
                written += f.write(data)
        except OSError as e:
            assert e.errno == errno.ENOSPC
    assert 40 * MB <= written <= 41 * MB
    more = "dd if=/dev/zero of=more bs=1M count=2"
    r = box.go(more, "code.sh")
    assert r.code != 0 and b"No space left on device" in r.err, "the box finds it full, too"
    (box.ws / "from-host").unlink()
    box.go(more, "code.sh").ok()


def test_a_disk_limit_changes_while_the_box_runs(disk_mnt):
    box = disk_mnt.box()
    (box / "limits/disk").write_text("120M")
    assert (box / "limits/disk").read_text() == f"{120 * MB}\n"
    assert 120 * MB <= int(box.go(FILL, "code.sh").ok().text) <= 122 * MB
    with open(box / "limits/disk", "r+b", buffering=0) as f:
        expect_errno(errno.EBUSY, f.write, b"60M\n")
    assert re.match(r"12\d(\.\d)?M are in use in the workspace: delete files first\n", box.error())
    assert (box / "limits/disk").read_text() == f"{120 * MB}\n"
    box.go("rm big; sync", "code.sh").ok()
    (box / "limits/disk").write_text("60M")
    assert 60 * MB <= int(box.go(FILL, "code.sh").ok().text) <= 61 * MB


def test_a_large_disk_limit_does_not_reserve_much_more(fresh_mnt):
    if not ROOT:
        skip("root", "a loop device")
    m = fresh_mnt(config=limits(disk="40G"))  # mkdir waits until what is beyond the limit is reserved
    box = m.box()
    assert os.stat(m.state / "boxes" / box.name / "disk.img").st_size < (40 + 64) * 1.1 * 1024 * MB
    (box / "limits/disk").write_text("41G")
    assert (box / "limits/disk").read_text() == f"{41 * 1024 * MB}\n"


def test_many_small_files_and_links_cannot_pass_the_disk_limit(disk_mnt):
    box = disk_mnt.box()
    r = box.go(
        """import os
n = 0
try:
    while n < 100000:
        with open(f'f{n}', 'wb') as f: f.write(b'x' * 4096)
        n += 1
except OSError as e:
    print(e.errno)
print(n)
"""
    ).ok()
    number, files = map(int, r.text.split())
    assert number == errno.ENOSPC and 9000 <= files <= 10500, r


def test_a_limited_workspace_outlives_restart_remount_and_kill(disk_mnt):
    box = disk_mnt.box()
    (box.ws / "kept").write_text("kept\n")
    os.symlink("kept", box.ws / "link")
    (box / "status").write_text("restart")
    box.ready()
    assert box.go("cat link", "code.sh").text == "kept\n"
    disk_mnt.restart()
    assert (box.ws / "kept").read_text() == "kept\n"
    assert (box / "limits/disk").read_text() == f"{40 * MB}\n"
    assert box.go("cat link", "code.sh").text == "kept\n"
    disk_mnt.kill()
    disk_mnt.start()
    assert (box.ws / "link").read_text() == "kept\n"
    assert int(box.go(FILL, "code.sh").ok().text) <= 41 * MB


def test_a_disk_limit_that_a_killed_daemon_left_half_changed_holds(disk_mnt):
    box = disk_mnt.box()
    box.ready()
    disk_mnt.kill()
    os.truncate(disk_mnt.state / "boxes" / box.name / "disk/ballast", 0)  # as if it was about to allow more
    disk_mnt.start()
    assert (box / "limits/disk").read_text() == f"{40 * MB}\n"
    assert 38 * MB < int(box.go(FILL, "code.sh").text) <= 40 * MB


def test_the_volume_goes_with_the_box(disk_mnt):
    box = disk_mnt.box()
    box.ready()
    assert len(loop_devices(disk_mnt.state)) == 1
    box.start("import time\nf = open('big', 'wb')\nprint('READY', flush=True)\nwhile True: f.write(b'x' * 65536)")
    box.delete()
    wait_for(lambda: not loop_devices(disk_mnt.state), "its loop device is gone")
    wait_for(lambda: not os.listdir(disk_mnt.state / "trash"), "its files are gone")
    again = disk_mnt.box(box.name)
    assert os.listdir(again.ws) == []


def test_a_deletion_that_the_unmount_breaks_off_leaves_no_volume_mounted(disk_mnt):
    boxes = [disk_mnt.box() for _ in range(2)]
    many = "import os\nfor n in range(40000): os.mknod(str(n))\nprint('DONE')\n"
    assert all(b.go(many).out == b"DONE\n" for b in boxes)
    for b in boxes:
        b.delete()
    assert disk_mnt.stop() == []  # mounts and loop devices are looked for
    assert os.listdir(disk_mnt.state / "trash"), "it was not broken off"
    disk_mnt.start()
    wait_for(lambda: not os.listdir(disk_mnt.state / "trash"), "the rest is deleted")


def test_files_of_two_limited_boxes_are_never_taken_for_one(disk_mnt):
    a, b = disk_mnt.box(), disk_mnt.box()
    (a.ws / "file").write_text("a")
    (b.ws / "file").write_text("b")
    assert os.stat(a.ws / "file").st_ino != os.stat(b.ws / "file").st_ino
    assert sh(["cmp", "-s", str(a.ws / "file"), str(b.ws / "file")]).rc == 1
    listed = {e.name: e.inode() for e in os.scandir(a.ws)}
    assert listed["file"] == os.stat(a.ws / "file").st_ino
    os.link(a.ws / "file", a.ws / "second")
    assert os.stat(a.ws / "second").st_ino == os.stat(a.ws / "file").st_ino


def test_a_hidden_folder_of_a_limited_box_goes_with_the_one_around_it(disk_mnt):
    box = disk_mnt.box()
    box.go("mkdir -p d/.outside/deep && touch d/.outside/deep/f", "code.sh").ok()
    os.rmdir(box.ws / "d")
    assert box.go("ls -A", "code.sh").text == ""
    volume = disk_mnt.state / "boxes" / box.name / "disk"
    wait_for(lambda: not [n for n in os.listdir(volume) if n.startswith("discarded-")], "it is deleted behind")
    (volume / "discarded-7/of a mount before").mkdir(parents=True)
    disk_mnt.restart()
    assert os.listdir(box.ws) == []
    wait_for(lambda: not (volume / "discarded-7").exists(), "what was left is deleted at the next use")


def test_what_a_limited_box_deletes_is_free_on_the_host(disk_mnt):
    box = disk_mnt.box()
    box.go("dd if=/dev/urandom of=big bs=1M count=30 2>/dev/null; sync", "code.sh").ok()
    image = disk_mnt.state / "boxes" / box.name / "disk.img"
    full = os.stat(image).st_blocks * 512
    assert full >= 30 * MB
    box.go("rm big; sync", "code.sh").ok()
    wait_for(lambda: os.stat(image).st_blocks * 512 < full - 25 * MB, "the image gave the space back")


def test_a_box_without_a_disk_limit_cannot_get_one_and_says_so(mnt):
    if not ROOT:
        skip("root", "a loop device")
    box = mnt.box()
    with open(box / "limits/disk", "r+b", buffering=0) as f:
        expect_errno(errno.EOPNOTSUPP, f.write, b"1G\n")
    assert "make one from a template that has limits.disk" in box.error()
    (box / "limits/disk").write_text("max")
    box.delete()


# ---- a runtime that takes its time ----


@pytest.fixture
def slow_update(tmp, fresh_mnt):  # the daemon ends before its runtime goes
    """A mount whose runtime changes limits only when the returned file is gone."""
    need_limits()
    real = re.search(r"OCI runtime\s+ok: (\S+)", sh([SBXFS, "check", "local"]).text)[1]
    os.chmod(tmp, 0o755)
    gate, wrapper = tmp / "gate", tmp / os.path.basename(real)
    wrapper.write_text(
        f'#!/bin/sh\ncase " $* " in *" update "*) echo update >> {tmp}/calls; : > {tmp}/came; while [ -e {gate} ]; do sleep 0.02; done;; esac\nexec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    gate.touch()
    return fresh_mnt(config={"oci_runtime": str(wrapper)}), gate, tmp / "came"


def test_a_writer_that_waits_can_be_killed_and_holds_up_nobody(slow_update):
    m, gate, came = slow_update
    box = m.box()
    box.ready()
    writer = spawn(f"echo 200M > {box}/limits/memory")
    wait_for(came.exists, "the runtime is at it")
    until_waiting(writer, "the writer")
    assert (box / "limits/memory").read_text() == f"{512 * MB}\n", "what is in force"
    assert box.go("print('runs meanwhile')").text == "runs meanwhile\n"
    assert sh(["ls", "-lR", str(box / "limits")]).rc == 0
    kill(writer)
    gate.unlink()
    wait_for(lambda: (box / "limits/memory").read_text() == f"{200 * MB}\n", "the change goes on")
    assert cgroup_file(box, "memory.limit_in_bytes", "memory.max") == str(200 * MB)


def test_changes_that_wait_for_the_runtime_are_made_by_one_call(slow_update):
    m, gate, came = slow_update
    calls = came.parent / "calls"
    box = m.box()
    box.ready()
    writers = [spawn(f"echo 200M > {box}/limits/memory")]
    wait_for(came.exists, "the runtime is at it")
    for name, text in [("cpu", "0.3"), ("pids", "77")]:
        writers.append(spawn(f"echo {text} > {box}/limits/{name}"))
    for writer in writers:
        until_waiting(writer, "a writer")
    came.unlink()
    gate.unlink()
    for writer in writers:
        finish(writer).ok()
    assert (box / "limits/memory").read_text() == f"{200 * MB}\n"
    assert (box / "limits/cpu").read_text() == "0.3\n"
    assert (box / "limits/pids").read_text() == "77\n"
    assert calls.read_text().count("update") == 2, "cpu and pids came with one"


def test_of_changes_made_by_one_call_only_the_bad_one_fails(slow_update):
    if not os.path.exists("/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        skip("v2", "cgroup v2 takes less memory than is in use")
    m, gate, came = slow_update
    box = m.box()
    box.start("x = bytearray(200 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('READY', flush=True)\nimport time; time.sleep(600)\n")
    first = spawn(f"echo 100 > {box}/limits/pids")
    wait_for(came.exists, "the runtime is at it")
    good, bad = (spawn(f"echo {text} > {box}/limits/{name}") for name, text in [("cpu", "0.3"), ("memory", "32M")])
    for writer in (first, good, bad):
        until_waiting(writer, "a writer")
    gate.unlink()
    assert finish(bad).rc != 0
    finish(first).ok()
    finish(good).ok()
    assert "of memory are in use" in box.error()
    assert (box / "limits/cpu").read_text() == "0.3\n"
    assert (box / "limits/memory").read_text() == f"{512 * MB}\n"


def test_stop_and_delete_do_not_wait_for_a_change(slow_update):
    m, gate, came = slow_update
    box = m.box()
    box.ready()
    writer = spawn(f"echo 200M > {box}/limits/memory")
    wait_for(came.exists, "the runtime is at it")
    until_waiting(writer, "the writer")
    box.delete()
    assert not box.path.exists()
    gate.unlink()
    assert finish(writer).rc != 0
