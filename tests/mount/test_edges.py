# SPDX-License-Identifier: Apache-2.0
"""Bad input and exhausted resources: a clear error, nothing changed, and the daemon goes on."""
import errno
import os
import re
import resource

import pytest
from helpers import ROOT, expect_errno, limits, scaled, sh, skip, spawn, finish, wait_for


def test_too_many_open_files_fail_that_one_thing_and_not_the_daemon(fresh_mnt):
    soft = 160
    resource_hard = {resource.RLIMIT_NOFILE: soft}
    m = fresh_mnt(limits=resource_hard)
    m.allow("EMFILE", "ENFILE", "[Tt]oo many open files")
    box = m.box()
    assert box.go("print('before')").text == "before\n"
    held, failed = [], None
    try:
        for i in range(2 * soft):
            try:
                held.append(os.open(box.ws / f"f{i}", os.O_CREAT | os.O_RDWR))
            except OSError as e:
                failed = e
                break
        assert failed is not None and failed.errno in (errno.EMFILE, errno.ENFILE), failed
        assert m.alive()
        assert os.listdir(m.path) and (box / "status").read_text() == "running\n"
        # a run needs descriptors, too: it fails and says so, or finds one that was kept for it
        try:
            box.save("print('during')")
            assert box.exit() in (0, 126, 127)
        except OSError as e:
            assert e.errno in (errno.EIO, errno.EMFILE, errno.ENFILE), e
            assert re.search("open files|EMFILE|descriptor", box.error()), box.error()
    finally:
        for fd in held:
            os.close(fd)
    assert wait_for(lambda: box.go("print('after')").text == "after\n", "runs work again")


def test_many_runs_at_once_with_few_descriptors_end_all(fresh_mnt):
    m = fresh_mnt(limits={resource.RLIMIT_NOFILE: 160})
    m.allow("EMFILE", "ENFILE", "[Tt]oo many open files")
    box = m.box().ready()
    (box.run / "timeout").write_text("20\n")
    for _ in range(60):
        box.save("sleep 1\n", "code.sh")
    try:
        box.exit()
    except OSError as e:
        assert e.errno in (errno.EIO, errno.EMFILE, errno.ENFILE)
    assert m.alive()
    assert wait_for(lambda: ended_well(box), "runs work again")


@pytest.mark.bound(120)
def test_more_programs_at_once_than_descriptors_wait_for_their_turn(fresh_mnt):
    m = fresh_mnt(limits={resource.RLIMIT_NOFILE: 160})
    box, other = m.box().ready(), m.box().ready()
    failures = (m / ".sbxfs/stats").read_text().split("failures ")[1].split()[0]
    n = scaled(200, 100)
    for b in (box, other):
        for i in range(n):
            (b / "processes/new").write_text(f"sleep 0.2; echo {i} >> all\n")
    box.save("echo last; cat all | wc -l\n", "code.sh")
    assert (box.run / "stdout").read_text().startswith("last\n")
    for b in (box, other):
        wait_for(lambda b=b: len((b.ws / "all").read_text().split()) == n, f"{n} programs of {b}", 60)
        assert sorted(map(int, (b.ws / "all").read_text().split())) == list(range(n))
    assert (m / ".sbxfs/stats").read_text().split("failures ")[1].split()[0] == failures, (m / ".sbxfs/errors").read_text()
    assert m.alive() and box.go("echo after", "code.sh").text == "after\n"


def test_programs_that_wait_for_descriptors_go_with_their_process_box_and_mount(fresh_mnt):
    m = fresh_mnt(limits={resource.RLIMIT_NOFILE: 160})
    m.allow("")
    box, gone = m.box().ready(), m.box().ready()
    for _ in range(100):
        (box / "processes/new").write_text("exec sleep 1000\n")
    (gone / "processes/new").write_text("echo never\n")
    last = box / "processes" / os.readlink(box / "processes/last")
    assert (last / "status").read_text() == "pending\n" and (gone / "processes/last/status").read_text() == "pending\n"
    reader = spawn(["cat", gone / "processes/last/exit"])
    gone.delete()
    done = finish(reader)
    assert done.rc == 1 and done.err, done
    last.rmdir()
    assert not last.exists()
    going = [p for p in os.listdir(box / "processes") if p.isdigit()]
    assert len(going) == 99
    (box / "processes/new").write_text("echo mine\n")
    mine = box / "processes" / os.readlink(box / "processes/last")
    for p in going:
        (box / "processes" / p).rmdir()
    assert (mine / "exit").read_text() == "0\n", "what is left is started when others end"


def ended_well(box):
    try:
        return box.go("echo after", "code.sh").text == "after\n"
    except OSError:
        return False


def test_memory_of_the_daemon_does_not_grow_with_runs(mnt, box):
    def rss():
        with open(f"/proc/{mnt.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1])

    def cycle(n):
        for i in range(n):
            box.save(f"echo {i}\n", "code.sh")
            assert box.exit() == 0

    cycle(200)
    before = rss()
    cycle(scaled(600))
    assert rss() - before < 4096, "kB after 600 more runs; 32 ended ones are kept"


def test_descriptors_of_the_daemon_do_not_grow_with_runs_and_boxes(mnt, box):
    def fds():
        return len(os.listdir(f"/proc/{mnt.pid}/fd"))

    for turn in range(2):
        for i in range(60):
            box.save(f"echo {i}\n", "code.sh")
            box.exit()
        b = mnt.box()
        b.go("print(1)").ok()
        b.delete()
        if turn == 0:
            wait_for(lambda: not [p for p, c in mnt.processes() if b.name in c], "the box is gone")
            before = fds()
    wait_for(lambda: fds() <= before + 12, f"{fds()} descriptors, before {before}", 10)


@pytest.mark.bound(90)
def test_a_full_disk_is_told_and_the_daemon_goes_on(tmp):
    from helpers import Mount

    if not ROOT:
        skip("root")
    place = tmp / "small"
    place.mkdir()
    sh(["mount", "-t", "tmpfs", "-o", "size=300M", "none", place]).ok()
    m = Mount(state=place / "state", config={"disk_reserve": "0"})
    m.allow("space", "ENOSPC", "disk", "full", "EIO")
    try:
        m.start()
        box = m.box()
        assert box.go("print('before')").text == "before\n"

        def fill():
            with open(box.ws / "big", "wb", 0) as f:
                while True:
                    f.write(b"x" * (1 << 20))

        with pytest.raises(OSError) as e:
            fill()
        assert e.value.errno in (errno.ENOSPC, errno.EDQUOT)
        assert m.alive() and os.listdir(m.path)
        try:
            box.save("print('y' * 3000000)")
            box.exit()
            assert (box.run / "stdout").read_text() == "y" * 3000000 + "\n" or "truncated" in box.status()
        except OSError as e:
            assert e.errno in (errno.EIO, errno.ENOSPC)
            assert re.search("space|disk", box.error()), box.error()
        expect_any_mkdir(m)
        os.unlink(box.ws / "big")
        assert wait_for(lambda: box.go("print('after')").text == "after\n", "works again")
        box.delete()
    finally:
        problems = m.stop()
        m.remove()
        wait_for(lambda: sh(["umount", place]).rc == 0, "the small disk is free again", 10)
    assert not problems, problems


def expect_any_mkdir(m):
    """A new box on a full disk: ENOSPC at once, or it fails with a reason, or there was room for it."""
    try:
        (m / "late").mkdir()
    except OSError as e:
        assert e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO), e
        return
    wait_for(lambda: (m / "late/status").read_text() in ("failed\n", "running\n"), "decided")
    if (m / "late/status").read_text() == "failed\n":
        assert re.search("space|disk", (m / "late/error").read_text())
    (m / "late").rmdir()


@pytest.mark.parametrize(
    "name,text",
    [
        ("timeout", "1e30"),
        ("timeout", "99999999999999999999h"),
        ("timeout", "0x10"),
        ("timeout", "NaN"),
        ("timeout", "inf"),
        ("timeout", "1" * 400),
        ("timeout", "\0"),
        ("timeout", "30s\n30s\n"),
        ("cwd", "a" * 300),
        ("cwd", "a/" * 3000),
        ("cwd", "a\0b"),
        ("cwd", "a\nb\n"),
        ("language", "x" * 5000),
        ("language", "\0"),
    ],
)
def test_a_value_out_of_range_is_refused_and_nothing_changes(box, name, text):
    before = (box.run / name).read_text()
    fd = os.open(box.run / name, os.O_WRONLY | os.O_TRUNC)
    try:
        with pytest.raises(OSError) as e:
            os.write(fd, text.encode())
            os.close(os.dup(fd))
        assert e.value.errno in (errno.EINVAL, errno.ERANGE, errno.ENAMETOOLONG, errno.EFBIG)
    finally:
        try:
            os.close(fd)
        except OSError:
            pass
    assert name in box.error()
    assert (box.run / name).read_text() == before
    assert box.go("echo well", "code.sh").text == "well\n"


def test_a_zero_timeout_is_refused_or_ends_the_run_at_once(box):
    try:
        (box.run / "timeout").write_text("0\n")
    except OSError as e:
        assert e.errno in (errno.EINVAL, errno.ERANGE)
        return
    box.save("sleep 20", "code.sh")
    assert box.exit() == 124


def test_code_beyond_the_size_limit_fails_the_write_with_efbig(mnt, box):
    mnt.allow("EFBIG", "[Tt]oo large", "too big", "limit")

    def huge():
        with open(box.run / "code.py", "wb", 0) as f:
            for _ in range(40):
                f.write(b"#" * (1 << 20))

    with pytest.raises(OSError) as e:
        huge()
    assert e.value.errno == errno.EFBIG
    (box.run / "code.py").unlink()
    assert box.go("print('fine')").text == "fine\n"


def test_args_beyond_the_size_limit_are_refused(box):
    with pytest.raises(OSError) as e:
        (box.run / "args").write_text("a\n" * (1 << 20))
    assert e.value.errno in (errno.EFBIG, errno.EINVAL, errno.E2BIG)
    assert (box.run / "args").read_text() == ""


def test_too_many_arguments_for_the_kernel_are_a_told_failure(box):
    """Just under the daemon's limit, but in sum with the environment more than one line of 128K may be."""
    (box.run / "args").write_text(("x" * 1000 + "\n") * 900)
    box.save("import sys; print(len(sys.argv))")
    try:
        code = box.exit()
        assert code in (0, 126), code
    except OSError as e:
        assert e.errno == errno.EIO and (box.run / "error").read_text()
    (box.run / "args").write_text("")
    assert box.go("print(1)").text == "1\n"


def test_too_many_slots_are_refused(mnt, box):
    mnt.allow("ENOSPC", "slots")
    made = 0
    with pytest.raises(OSError) as e:
        for made in range(2000):
            (box.run / f"s{made}").mkdir()
    assert e.value.errno in (errno.ENOSPC, errno.EMLINK, errno.EDQUOT)
    assert made >= 100
    assert box.go("print(1)").text == "1\n"


@pytest.mark.bound(120)
def test_very_many_runs_at_once_are_bounded_and_all_end(mnt, box):
    mnt.allow("EAGAIN", "[Tt]oo many")
    box.ready()
    n = scaled(300)
    for i in range(n):
        box.save(f"echo {i} >> all\n", "code.sh")
    assert box.exit() == 0
    wait_for(lambda: len((box.ws / "all").read_text().split()) == n, f"{n} runs")


def test_a_template_that_is_hardly_enough_makes_a_box_or_fails_it_with_a_reason(fresh_mnt):
    m = fresh_mnt(config=limits(memory="16M"))
    m.allow("")
    box = m.box()
    status = wait_for(lambda: (lambda s: s if s != "creating\n" else None)((box / "status").read_text()), "decided")
    if status == "failed\n":
        assert box.error()
        expect_errno(errno.EIO, (box / "ready").read_bytes)


def test_a_box_that_cannot_start_is_failed_with_a_reason_and_its_runs_say_it(fresh_mnt, tmp):
    runtime = tmp / "runtime"
    runtime.write_text(
        "#!/bin/sh\ncase \"$*\" in *--version*) echo runc version 1.1.5;; *) echo it broke on purpose >&2; exit 1;; esac\n"
    )
    runtime.chmod(0o755)
    os.chmod(tmp, 0o755)
    m = fresh_mnt(start=False, config={"oci_runtime": str(runtime)})
    m.allow("")
    try:
        m.start()
    except AssertionError:
        assert "runtime" in m.log(), m.log()
        m.proc = None
        return
    box = m.box()
    wait_for(lambda: (box / "status").read_text() == "failed\n", "failed")
    assert "on purpose" in box.error()
    expect_errno(errno.EIO, (box / "ready").read_bytes)
    box.save("print(1)")
    expect_errno(errno.EIO, (box.run / "exit").read_bytes)
    assert box.status().split()[0] in ("lost", "refused")
    (box.ws / "f").write_text("the workspace works")
    box.delete()


def test_open_flags_that_make_no_sense_are_harmless(box):
    box.go("print(1)")
    for flags in (os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_CREAT):
        try:
            os.close(os.open(box.run / "stdout", flags))
        except OSError as e:
            assert e.errno in (errno.EACCES, errno.EPERM)
    expect_errno(errno.EISDIR, os.open, box.run, os.O_WRONLY)
    expect_errno(errno.ENOTDIR, os.open, box.run / "stdout", os.O_DIRECTORY)
    expect_errno(errno.ENOENT, os.open, box.path / "nothing", os.O_RDONLY)
    assert (box.run / "stdout").read_text() == "1\n"


def test_reads_and_writes_far_beyond_the_end_are_harmless(box):
    box.go("print(1)")
    fd = os.open(box.run / "stdout", os.O_RDONLY)
    assert os.pread(fd, 10, 1 << 40) == b""
    os.close(fd)
    fd = os.open(box.run / "code.py", os.O_WRONLY)
    try:
        expect_errno(errno.EFBIG, os.pwrite, fd, b"x", 1 << 40)
        expect_errno(errno.EFBIG, os.ftruncate, fd, 1 << 40)
    finally:
        os.close(fd)


def test_a_hundred_processes_that_do_all_kinds_of_things_leave_the_daemon_well(mnt, box):
    script = f"""cd {box.path}; for i in 1 2 3 4 5; do
ls -laR . >/dev/null; cat run/status info.json >/dev/null; echo "echo $$" > run/code.sh; cat run/stdout run/exit >/dev/null; echo x > workspace/f$$
mkdir run/s$$; echo 'echo 1' > run/s$$/code.sh; cat run/s$$/exit; rmdir run/s$$; rm workspace/f$$; done"""
    procs = [spawn(script) for _ in range(scaled(40, 4))]
    for p in procs:
        done = finish(p, 50)
        assert done.text == "0\n" * 5, done.err[-500:]
    assert box.go("print('well')").text == "well\n"
