# SPDX-License-Identifier: Apache-2.0
"""What a review found, one test each."""
import ctypes
import errno
import os
import select

import pytest
from helpers import expect_errno, finish, scaled, spawn, until_waiting, wait_for

RENAME_EXCHANGE = 2
DENIED = "import os\nos.system('echo bypass')\n"


def until_parked(mnt, reader):
    """Return when the reader's open() waits in the daemon (until_waiting() would be content with a lookup on its way)."""
    until_waiting(reader)
    stats = mnt / ".sbxfs/stats"
    wait_for(lambda: "\nwaiting_requests 0\n" not in stats.read_text(), "an open() that waits")


def exchange(a, b):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), RENAME_EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@pytest.fixture
def policed(fresh_mnt):
    return fresh_mnt(config={"policy": {"deny": ["os[.]system"]}}).box().ready()


# ---- start and stop ----


@pytest.mark.parametrize("verb", ["stop", "restart"])
def test_a_run_right_after_stop_or_restart_wakes_the_box(box, verb):
    box.ready()
    for i in range(scaled(5, 2)):
        (box / "status").write_text(verb)
        assert box.go(f"echo {i}", "code.sh").ok().text == f"{i}\n"


def test_start_right_after_stop_is_not_forgotten(box):
    box.ready()
    for _ in range(scaled(5, 2)):
        (box / "status").write_text("stop")
        (box / "status").write_text("start")
        assert (box / "ready").read_text() == "running\n"
        assert box.go("echo up", "code.sh").ok().text == "up\n"


def test_stop_right_after_start_ends_in_stopped(box):
    box.ready()
    (box / "status").write_text("stop")
    for _ in range(scaled(5, 2)):
        wait_for(lambda: (box / "status").read_text() == "stopped\n", "stopped")
        (box / "status").write_text("start")
        (box / "status").write_text("stop")
        wait_for(lambda: (box / "status").read_text() == "stopped\n", "stopped")


def test_start_right_after_pause_goes_on(box):
    box.ready()
    try:
        (box / "status").write_text("pause")
    except OSError as e:
        assert e.errno == errno.EOPNOTSUPP, e
        return
    (box / "status").write_text("start")
    assert box.go("echo up", "code.sh").ok().text == "up\n"


# ---- processes ----


def test_who_waits_for_a_process_without_a_command_is_answered_when_it_goes(mnt, box):
    box.ready()
    (box / "processes/idle").mkdir()
    reader = spawn(["cat", box / "processes/idle/exit"])
    until_parked(mnt, reader)
    (box / "processes/idle").rmdir()
    assert b"Input/output error" in finish(reader).err


def test_who_waits_for_a_process_without_a_command_is_answered_when_its_box_goes(mnt):
    box = mnt.box().ready()
    (box / "processes/idle").mkdir()
    reader = spawn(["cat", box / "processes/idle/exit"])
    until_parked(mnt, reader)
    box.delete()
    assert b"canceled" in finish(reader).err


def test_a_command_is_refused_for_a_process_that_was_removed(box):
    box.ready()
    (box / "processes/idle").mkdir()
    with open(box / "processes/idle/command", "wb", buffering=0) as f:
        (box / "processes/idle").rmdir()
        expect_errno(errno.EBUSY, f.write, b"sleep 100\n")


def test_poll_on_a_process_without_a_command_waits(box):
    box.ready()
    (box / "processes/idle").mkdir()
    fd = os.open(box / "processes/idle/stream", os.O_RDONLY)
    try:
        assert select.select([fd], [], [], 0) == ([], [], [])
        (box / "processes/idle/command").write_text("echo hello")
        assert select.select([fd], [], [], 30)[0] == [fd]
    finally:
        os.close(fd)


def test_a_signal_number_beyond_an_int_is_refused(box):
    box.ready()
    with open(box / "processes/new", "wb", buffering=0) as f:
        f.write(b"sleep 100\n")
    signal = box / "processes/last/signal"
    wait_for(lambda: (box / "processes/last/status").read_text() == "running\n", "running")
    expect_errno(errno.EINVAL, signal.write_text, str((1 << 32) + 9))
    assert (box / "processes/last/status").read_text() == "running\n"


def test_pending_runs_are_removed_while_their_box_starts(mnt):
    """The list of waiting runs is walked by the loop while rmdir takes runs out of it (a sanitizer build tells)."""
    box = mnt.box()
    for _ in range(scaled(5, 2)):
        (box / "status").write_text("stop")
        for _ in range(20):
            with open(box / "processes/new", "wb", buffering=0) as f:
                f.write(b"sleep 0.1\n")
        for i in os.listdir(box / "processes"):
            if i.isdigit():
                (box / "processes" / i).rmdir()
        assert box.go("echo up", "code.sh").ok().text == "up\n"
    box.delete()


# ---- timeouts ----


def test_a_timeout_as_long_as_a_number_can_be_does_not_end_the_run(box):
    (box.run / "timeout").write_text("18446744073709551s")
    assert box.go("sleep 0.05; echo done", "code.sh").ok().text == "done\n"


# ---- policy ----


def test_policy_looks_at_both_sides_of_an_exchange(policed):
    policed.go("print(1)").ok()
    (policed.run / "x.tmp").write_text(DENIED)
    expect_errno(errno.EACCES, exchange, policed.run / "code.py", policed.run / "x.tmp")
    expect_errno(errno.EACCES, exchange, policed.run / "x.tmp", policed.run / "code.py")
    assert policed.status() == "refused"
    assert (policed.run / "x.tmp").read_text() == DENIED


def test_policy_looks_at_a_scratch_file_that_became_code_while_open(policed):
    with open(policed.run / "x.tmp", "wb", buffering=0) as f:
        os.rename(policed.run / "x.tmp", policed.run / "code.py")
        expect_errno(errno.EACCES, f.write, DENIED.encode())
    assert policed.status() == "refused"


def test_policy_looks_at_the_text_that_two_appends_make(policed):
    policed.go("import os\nos.sys")
    with open(policed.run / "code.py", "a") as f:
        f.write("tem('echo bypass')\n")
    expect_errno(errno.EIO, (policed.run / "exit").read_text)
    assert policed.status() == "refused"


# ---- scratch files ----


def test_scratch_files_that_are_only_truncated_keep_to_the_limit_of_the_folder(box):
    def fill():
        for i in range(16):
            with open(box.run / f"big{i}.tmp", "wb") as f:
                os.ftruncate(f.fileno(), 15 << 20)

    expect_errno(errno.ENOSPC, fill)
