# SPDX-License-Identifier: Apache-2.0
"""The main job: mount, mkdir, save code, read results, rmdir; and the files around it."""
import errno
import os
import re
import shutil
import stat

import pytest
from helpers import ROOT, expect_errno, finish, kill, mountpoints, sh, spawn, until_waiting, wait_for

RUN_FILES = {
    "stdout",
    "stderr",
    "exit",
    "result.json",
    "status",
    "logs",
    "stream",
    "error",
    "args",
    "cwd",
    "env",
    "stdin",
    "timeout",
    "language",
}
BOX_FILES = {"status", "ready", "error", "info.json", "runtime", "run", "workspace"}


def test_the_example_of_the_readme_works(mnt):
    box = mnt / "demo"
    script = f"""set -e; cd {mnt.path}
        mkdir demo
        echo 'print(6*7)' > demo/run/code.py
        cat demo/run/stdout
        cat demo/run/exit
        rmdir demo"""
    assert sh(script).ok().text == "42\n0\n"
    assert not box.exists()


def test_ls_shows_boxes_only_and_a_box_has_its_files(mnt, box):
    assert box.name in os.listdir(mnt.path)
    assert sh(["ls", mnt.path]).ok().text.split() == [box.name]
    assert BOX_FILES <= set(os.listdir(box.path))
    assert RUN_FILES <= set(os.listdir(box.run))


def test_every_name_that_a_folder_lists_can_be_looked_at(mnt, box):
    for folder in (mnt.path, mnt / ".sbxfs", box.path, box.run, box.ws):
        for name in os.listdir(folder):
            os.lstat(folder / name)


def test_modes_and_owner_tell_what_is_writable(box):
    me = os.geteuid()
    for name in ("stdout", "stderr", "exit", "result.json"):
        st = os.stat(box.run / name)
        assert stat.filemode(st.st_mode) == "-r--r-----" and st.st_uid == me, name
    for name in ("args", "cwd", "env", "stdin", "timeout", "language"):
        assert os.stat(box.run / name).st_mode & 0o200, name
    for name in ("status", "logs", "stream", "error"):
        assert not os.stat(box.run / name).st_mode & 0o222, name
    assert os.stat(box.path).st_uid == me and stat.S_ISDIR(os.stat(box.path).st_mode)


def test_mkdir_answers_at_once_and_ready_waits_for_the_box(box):
    box.ready()
    assert (box / "status").read_text() == "running\n"
    assert box.no_failure()


def test_before_the_first_run_results_are_empty_and_do_not_wait(box):
    for name in ("stdout", "stderr", "exit", "logs", "stream"):
        assert (box.run / name).read_bytes() == b"", name
    assert box.status() == "none"


def test_results_of_a_run(box):
    r = box.go("import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(3)\n")
    assert (r.out, r.err, r.code) == (b"out\n", b"err\n", 3)
    assert box.status() == "exited 3"
    assert (box.run / "logs").read_bytes() in (b"out\nerr\n", b"err\nout\n")
    assert box.no_failure() and (box.run / "error").read_text() == ""


def test_the_code_that_was_saved_can_be_read_back(box):
    box.save("print('same')\n")
    assert (box.run / "code.py").read_text() == "print('same')\n"
    assert os.stat(box.run / "code.py").st_size == len("print('same')\n")


def test_info_and_runtime_describe_the_box(box):
    info = box.ready().info()
    assert isinstance(info, dict) and info["name"] == box.name
    text = (box / "runtime").read_text()
    assert text.endswith("\n") and len(text) > 1


@pytest.mark.parametrize("name", ["-x", ".x", "_x", "a b", "a*b", "ä", "x" * 64, "a\nb", "a:b", "~"])
def test_invalid_names_are_refused_with_a_reason(mnt, name):
    expect_errno(errno.EINVAL, os.mkdir, mnt / name)
    assert not os.path.lexists(mnt / name)
    last = (mnt / ".sbxfs/errors").read_text(errors="replace").splitlines()[-1]
    assert "EINVAL" in last and "mkdir" in last


def test_names_that_are_bytes_but_not_utf8_are_refused(mnt):
    expect_errno(errno.EINVAL, os.mkdir, os.fsencode(mnt.path) + b"/a\xff")


@pytest.mark.parametrize("name", ["a", "A9", "0", "a.b-c_d", "x" * 63])
def test_valid_names_make_a_box(mnt, name):
    os.mkdir(mnt / name)
    assert sh(["ls", mnt.path]).ok().text.split().count(name) == 1
    os.rmdir(mnt / name)
    assert name not in os.listdir(mnt.path)


def test_an_existing_name_is_eexist_and_changes_nothing(mnt, box):
    (box.ws / "keep").write_text("k")
    expect_errno(errno.EEXIST, os.mkdir, box.path)
    expect_errno(errno.EEXIST, os.mkdir, mnt / ".sbxfs")
    assert (box.ws / "keep").read_text() == "k"


def test_rename_of_a_box_or_a_fixed_name_is_eperm(mnt, box):
    expect_errno(errno.EPERM, os.rename, box.path, mnt / "other")
    expect_errno(errno.EPERM, os.rename, box.run, box / "walk")
    for name in ("stdout", "exit", "args"):
        expect_errno(errno.EPERM, os.rename, box.run / name, box.run / "x")
    assert (box.run / "stdout").exists() and box.path.exists() and not (mnt / "other").exists()


def test_rename_between_run_and_workspace_is_exdev(mnt, box):
    box.save("print(1)")
    (box.ws / "w.py").write_text("print(2)")
    other = mnt.box()
    expect_errno(errno.EXDEV, os.rename, box.ws / "w.py", box.run / "code.py")
    expect_errno(errno.EXDEV, os.rename, box.run / "code.py", box.ws / "c.py")
    expect_errno(errno.EXDEV, os.rename, box.ws / "w.py", other.ws / "w.py")
    other.delete()


def test_files_cannot_be_made_where_the_tree_is_fixed(mnt, box):
    for place in (mnt.path, mnt / ".sbxfs", box.path):
        before = sorted(os.listdir(place))
        expect_errno((errno.EPERM, errno.EACCES), os.open, place / "new", os.O_CREAT | os.O_WRONLY)
        assert sorted(os.listdir(place)) == before


@pytest.mark.parametrize("name", ["stdout", "stderr", "exit", "result.json", "status", "logs", "stream"])
def test_results_cannot_be_written_even_by_root(box, name):
    box.go("print('kept')")
    expect_errno(errno.EACCES, os.open, box.run / name, os.O_WRONLY)
    assert (box.run / "stdout").read_text() == "kept\n"


@pytest.mark.parametrize("how", ["rmdir", "rm -rf", "find -delete", "shutil.rmtree"])
def test_every_way_to_delete_a_tree_ends_in_the_delete_of_the_box(mnt, how):
    box = mnt.box()
    box.go("import os; os.makedirs('a/b/c'); open('a/b/f','w').write('x'); os.chmod('a/b/f', 0); print(1)").ok()
    box.ws.joinpath("own").mkdir()
    {
        "rmdir": lambda: os.rmdir(box.path),
        "rm -rf": lambda: sh(["rm", "-rf", box.path]).ok(),
        "find -delete": lambda: sh(["find", box.path, "-delete"]).ok(),
        "shutil.rmtree": lambda: shutil.rmtree(box.path),
    }[how]()
    assert not box.path.exists() and box.name not in os.listdir(mnt.path)
    again = mnt.box(box.name)
    assert os.listdir(again.ws) == []
    again.delete()


def test_a_box_made_anew_under_an_old_name_is_another_one(mnt):
    old = mnt.box("same")
    old.go("open('f','w').write('old'); print(1)").ok()
    folder = os.open(old.path, os.O_RDONLY)
    ino = os.fstat(folder).st_ino
    old.delete()
    new = mnt.box("same")
    try:
        assert os.stat(new.path).st_ino != ino
        expect_errno((errno.ESTALE, errno.ENOENT), os.open, "status", os.O_RDONLY, dir_fd=folder)
        assert os.listdir(new.ws) == []
    finally:
        os.close(folder)
        new.delete()


def test_deleting_a_box_with_a_run_going_on_ends_the_run(mnt):
    box = mnt.box()
    box.start("import time; print('READY', flush=True); time.sleep(600)")
    mnt.note(box)
    mark = set(mnt.processes())
    assert mark
    box.delete()
    wait_for(lambda: not (set(mnt.processes()) & mark), "the box's processes have ended")
    wait_for(lambda: not mnt.cgroups(), "the box's cgroups are gone")


def test_a_reader_that_waits_gets_an_error_when_the_box_is_deleted(mnt):
    box = mnt.box()
    box.start("import time; print('READY', flush=True); time.sleep(600)")
    cat = spawn(["cat", box.run / "stdout"])
    until_waiting(cat)
    box.delete()
    done = finish(cat)
    assert done.rc == 1 and re.search(rb"Input/output error|Stale file handle|Operation canceled", done.err), done.err


def test_nothing_of_a_deleted_box_stays_in_the_state_folder(mnt):
    box = mnt.box("vanishing")
    box.go("open('evidence-5417','w').write('x'); print(1)").ok()
    assert sh(["find", mnt.state, "-name", "evidence-5417"]).text.strip(), "the state folder holds the workspace"
    box.delete()

    def left():
        return [x for x in sh(["find", mnt.state]).text.splitlines() if "vanishing" in x or "evidence-5417" in x]

    wait_for(lambda: not left(), "removed behind the delete")


def test_many_boxes_at_once(mnt):
    boxes = [mnt.box() for _ in range(8)]
    for i, b in enumerate(boxes):
        b.save(f"print({i})")
    assert [int((b.run / "stdout").read_text()) for b in boxes] == list(range(8))
    for b in boxes:
        b.delete()


def test_the_control_folder_explains_itself(mnt):
    control = mnt / ".sbxfs"
    assert {"README", "version", "events", "errors"} <= set(os.listdir(control))
    readme = (control / "README").read_text()
    for word in ("mkdir", "code.py", "stdout", "exit", "rmdir"):
        assert word in readme, word
    assert re.search(r"\d+\.\d+", (control / "version").read_text())


def test_events_grow_and_tell_of_boxes_and_runs(mnt):
    before = (mnt / ".sbxfs/events").read_text()
    box = mnt.box("eventful")
    box.go("print(1)").ok()
    box.delete()
    after = wait_for(
        lambda: (lambda t: t if t.count("eventful") >= 3 else None)((mnt / ".sbxfs/events").read_text()),
        "create, run and delete in events",
    )
    assert after.startswith(before)
    assert after.endswith("\n")


def test_tail_f_follows_events(mnt):
    tail = spawn(["tail", "-f", "-n", "0", mnt / ".sbxfs/events"])
    try:
        wait_for(
            lambda: any(
                "events" in os.readlink(f"/proc/{tail.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{tail.pid}/fd")
            ),
            "tail has it open",
        )
        box = mnt.box("followed")
        line = tail.stdout.readline()
        while b"followed" not in line:
            line = tail.stdout.readline()
        box.delete()
    finally:
        kill(tail)


def test_a_failure_is_told_in_errors_with_box_operation_and_reason(mnt, box):
    expect_errno(errno.EINVAL, (box.run / "timeout").write_text, "soon\n")
    assert "soon" in box.error() or "timeout" in box.error()
    last = (mnt / ".sbxfs/errors").read_text(errors="replace").splitlines()[-1]
    for word in (box.name, "EINVAL", "timeout"):
        assert word in last, last


def test_the_box_error_is_emptied_by_nothing_but_shows_the_newest(box):
    expect_errno(errno.EINVAL, (box.run / "timeout").write_text, "soon\n")
    first = box.error()
    expect_errno(errno.EINVAL, (box.run / "cwd").write_text, "../..\n")
    assert box.error() != first and "cwd" in box.error()


def test_statfs_answers_and_has_room(mnt, box):
    for place in (mnt.path, box.path, box.ws):
        st = os.statvfs(place)
        assert st.f_namemax == 255 and st.f_bsize > 0
    assert os.statvfs(box.ws).f_bavail > 0


def test_the_mount_is_nosuid_nodev_noexec(mnt):
    options = mountpoints()[str(mnt.path)].split()[5].split(",")
    assert {"nosuid", "nodev"} <= set(options) and "noexec" in options


def test_the_control_inodes_cannot_collide_with_the_workspace(box):
    box.go("open('f','w').close(); print(1)").ok()
    for path in (box.path, box.run, box.run / "stdout", box / "status"):
        assert os.stat(path).st_ino >> 63 == 1, path
    assert os.stat(box.ws / "f").st_ino >> 63 == 0
    assert sh(["du", "-s", box.path]).ok()


def test_extended_attributes_are_told_to_be_unsupported(box):
    (box.ws / "f").write_text("x")
    expect_errno(errno.EOPNOTSUPP, os.setxattr, box.ws / "f", "user.a", b"1")


@pytest.mark.skipif(not ROOT, reason="explained: root: other users' processes")
def test_another_user_sees_nothing_without_allow_other(mnt):
    done = sh(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "ls", mnt.path])
    assert done.rc != 0 and b"Permission denied" in done.err
