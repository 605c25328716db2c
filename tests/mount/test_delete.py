# SPDX-License-Identifier: Apache-2.0
"""Deleting with every tool: no message and exit 0, whatever goes on; and what is deleted is gone for good."""
import errno
import os
import shutil
import threading

import pytest
from helpers import ROOT, expect_errno, need, scaled, sh, wait_for

EXEC = ["-type", "d", "-exec", "rmdir", "{}", ";", "-o", "-exec", "rm", "-f", "{}", ";"]
PERL = r"remove_tree($ARGV[0], {error => \my $e}); die map { values %$_ } @$e if @$e"

# how a folder is deleted with everything in it
WAYS = {
    "rm": lambda p: ["rm", "-rf", p],
    "rm one by one": lambda p: ["rm", "-r", p],
    "busybox rm": lambda p: [need("busybox"), "rm", "-rf", p],
    "find": lambda p: ["find", p, "-delete"],
    "busybox find": lambda p: [need("busybox"), "find", p, "-depth", *EXEC],
    "find and exec": lambda p: ["find", p, "-depth", *EXEC],
    "perl": lambda p: ["perl", "-MFile::Path=remove_tree", "-e", PERL, p],
    "python": shutil.rmtree,
}

# what goes on in the box meanwhile
SCENES = {
    "an empty box": lambda box: None,
    "a box that starts": lambda box: None,
    "a run that goes on": lambda box: box.start("import time; print('READY', flush=True); time.sleep(1000)"),
    "a run that ended": lambda box: box.go("print(1)").ok(),
    "processes": lambda box: processes(box),
    "slots": lambda box: slots(box),
    "many files": lambda box: many_files(box),
    "files without permissions": lambda box: box.go(
        "import os\nos.makedirs('a/b/c'); open('a/b/f','w').write('x'); os.chmod('a/b/f', 0); os.chmod('a/b', 0o555)"
    ).ok(),
    "a program that writes files": lambda box: box.start(
        "import os, itertools\nprint('READY', flush=True)\nfor i in itertools.count():\n"
        "    os.makedirs(f'd{i % 50}', exist_ok=True); open(f'd{i % 50}/{i}', 'w').write('x')\n"
    ),
    "settings and scratch": lambda box: settings(box),
    "everything": lambda box: [do(box) for do in (many_files, slots, settings, processes)],
}


def pairs(ways, *left_out):
    """Every way with everything in the box, and every scene with the usual way. In folders without permissions only root
    deletes, as everywhere; the sandbox's own rmdir needs none."""
    if not ROOT:
        left_out += ("files without permissions",)
    return [(way, "everything") for way in ways] + [
        ("rm", scene) for scene in SCENES if scene not in ("everything", *left_out)
    ]


def processes(box):
    for i in range(3):
        (box / "processes/new").write_text("echo up; exec sleep 1000\n")
        (box / f"processes/p{i}").mkdir()
    (box / "processes/p0/command").write_text("trap '' TERM; echo up; while :; do sleep 1000; done\n")
    (box / "processes/p1/command").write_text("sleep 1000 & sleep 1000 & wait\n")
    wait_for(lambda: (box / "processes/p0/logs").read_text() == "up\n", "p0 is up")


def slots(box):
    for name in ("a", "b", "c"):
        (box.run / name).mkdir()
        box.go("print(1)", slot=name).ok()
    box.save("import time; time.sleep(1000)", slot="a")


def many_files(box):
    box.go(
        "import os\nfor d in range(20):\n    os.makedirs(f'd{d}/e')\n    for f in range(25):\n"
        "        open(f'd{d}/e/{f}', 'w').write('x')\n        os.symlink('/etc/passwd', f'd{d}/l{f}')\nos.mkfifo('pipe')"
    ).ok()


def settings(box):
    (box / "env").write_text("A=1\n")
    (box.run / "args").write_text("a\n")
    (box.run / ".code.py.swp").write_text("x")
    os.symlink("x", box.run / ".#lock")
    box.save("print(1)", "code.sh")


def delete(how, path):
    if callable(how) and how is shutil.rmtree:
        how(path)
        return
    done = sh(how(path), seconds=60)
    assert (done.rc, done.out, done.err) == (0, b"", b""), (done.rc, done.out[-500:], done.err[-2000:])


@pytest.mark.bound(120)
@pytest.mark.parametrize("way,scene", pairs(WAYS) + [("busybox rm", "a program that writes files")])
def test_a_box_is_deleted_by(mnt, way, scene):
    box = mnt.box()
    if scene != "a box that starts":
        box.ready()
    SCENES[scene](box)
    mnt.note(box)
    delete(WAYS[way], box.path)
    assert not os.path.lexists(box.path) and box.name not in os.listdir(mnt.path)
    again = mnt.box(box.name)
    assert again.go("import os; print(os.listdir())").ok().text == "[]\n", "a new one of that name works at once"
    assert os.listdir(again / "processes") == ["new", "1"] and (again.run / "args").read_text() == ""
    again.delete()


def test_rmdir_deletes_a_box_with_folders_without_permissions(mnt):
    box = mnt.box().ready()
    SCENES["files without permissions"](box)
    box.delete()
    assert not box.path.exists()
    again = mnt.box(box.name)
    assert again.go("import os; print(os.listdir())").ok().text == "[]\n"
    again.delete()


# ---- what is in a box ----

INSIDE = {
    "rm": lambda p: f"cd {p} && rm -rf *",
    "busybox rm": lambda p: f"cd {p} && {need('busybox')} rm -rf *",
    "from outside": lambda p: f"rm -rf {p}/*",
    "each by itself": lambda p: f"for f in {p}/*; do rm -rf $f || exit; done",
    "find": lambda p: f"find {p} -mindepth 1 -delete",
    "find in it": lambda p: f"cd {p} && find . -mindepth 1 -depth {' '.join(EXEC).replace(';', chr(92) + ';')}",
    "rsync": lambda p: f"d=$(mktemp -d); {need('rsync')} -a --delete $d/ {p}/; r=$?; rmdir $d; exit $r",
}


def whole(box):
    """Everything of a new box is there and works, with an empty workspace."""
    assert set(os.listdir(box.path)) == set(os.listdir(box.path.parent / "reference"))
    assert os.listdir(box.ws) == [] and os.listdir(box / "processes") == ["new"]
    assert set(os.listdir(box.run)) == set(os.listdir(box.path.parent / "reference/run"))
    for name in os.listdir(box.path):
        os.stat(box / name)
    assert box.ready().error() == "" or box.no_failure()
    assert box.go("import os; open('f', 'w').write('x'); print(os.listdir())").ok().text == "['f']\n"
    (box / "processes/new").write_text("echo again\n")
    assert (box / "processes/last/exit").read_text() == "0\n"
    (box.run / "slot").mkdir()
    assert box.go("print('slot')", slot="slot").ok().text == "slot\n"
    (box.ws / "g").write_text("y")
    assert box.go("print(open('g').read())").ok().text == "y\n"


@pytest.fixture
def reference(mnt):
    box = mnt.box("reference")
    yield box
    box.delete()


@pytest.mark.bound(120)
@pytest.mark.parametrize(
    "way,scene",
    # an ordinary user's rsync opens what has no w before it removes it, and would wait for a run that goes on
    [
        (way, "settings and scratch" if way == "rsync" and not ROOT else scene)
        for way, scene in pairs(INSIDE, "a program that writes files", "a box that starts")
    ],
)
def test_deleting_what_is_in_a_box_leaves_a_box_that_works(mnt, box, reference, way, scene):
    box.ready()
    SCENES[scene](box)
    done = sh(INSIDE[way](box.path), seconds=60)
    assert (done.rc, done.out, done.err) == (0, b"", b""), (done.rc, done.out[-500:], done.err[-2000:])
    whole(box)


def test_a_box_is_whole_for_who_stood_in_a_fixed_folder_while_it_was_deleted(mnt, box, reference):
    """The kernel marks a folder that rmdir() took away as dead: nobody who holds it may hold the others to it."""
    box.ready()
    folders = [box.path, box.run, box.ws, box / "processes", box / "monitor"]
    held = [os.open(f, os.O_RDONLY) for f in folders]
    try:
        for f in folders[1:]:
            sh(["rm", "-rf", f]).ok()
        whole(box)
    finally:
        for fd in held:
            os.close(fd)


def test_rmdir_of_a_fixed_folder_changes_nothing_for_who_comes_after(box):
    box.go("print(1)").ok()
    here = os.open(box.run, os.O_RDONLY)
    try:
        os.rmdir(box.run)
        assert (box.run / "stdout").read_text() == "1\n"
        assert "stdout" in os.listdir(box.run)
        assert box.go("print(2)").ok().text == "2\n"
    finally:
        os.close(here)


def test_everything_of_a_mount_is_deleted(fresh_mnt):
    m = fresh_mnt()
    boxes = [m.box() for _ in range(5)]
    for i, box in enumerate(boxes[1:]):
        list(SCENES.values())[2 + i](box.ready())
    done = sh(f"rm -rf {m.path}/*")
    assert (done.rc, done.out, done.err) == (0, b"", b"")
    assert os.listdir(m.path) == [".sbxfs"] and (m / ".sbxfs/version").read_text()
    wait_for(lambda: not m.processes() and not m.cgroups(), "nothing of them is left")
    done = sh(f"rm -rf {m.path}/.sbxfs")
    assert (done.rc, done.out, done.err) == (0, b"", b"")
    assert set(os.listdir(m / ".sbxfs")) >= {"README", "errors", "events", "templates"}
    assert m.box("after").go("print(1)").ok().text == "1\n"


# ---- who is in the middle of something ----


@pytest.mark.parametrize("name", ["stdout", "stderr", "exit", "result.json", "stream"])
def test_a_waiting_reader_of_a_deleted_box_gets_an_errno_and_the_reason_is_told(mnt, name):
    box = mnt.box()
    box.start("import time; print('READY', flush=True); time.sleep(1000)")
    result = []

    def reader():
        try:
            with open(box.run / name, "rb", buffering=0) as f:
                while f.read(4096):
                    pass
            result.append(None)
        except OSError as e:
            result.append(e.errno)

    thread = threading.Thread(target=reader)
    thread.start()
    wait_for(lambda: "waiting_requests 1\n" in (mnt / ".sbxfs/stats").read_text(), "it waits")
    box.delete()
    thread.join(30)
    # the stream ends with the program, which may be told first
    assert result == [errno.ECANCELED] or (name == "stream" and result == [None]), result
    if result[0]:
        errors = (mnt / ".sbxfs/errors").read_text().splitlines()
        assert any(f" {box.name} " in e and "ECANCELED the sandbox was deleted while a reader waited" in e for e in errors)


def test_old_handles_are_stale_and_a_new_box_of_the_name_is_not_touched(mnt):
    box = mnt.box("phoenix")
    box.go("open('f', 'w').write('old')").ok()
    paths = [box / "status", box.run / "args", box.run / "timeout", box.ws / "f", box / "env"]
    handles = [os.open(p, os.O_RDWR) for p in paths]
    folders = [os.open(p, os.O_RDONLY) for p in (box.path, box.run, box.ws, box / "processes")]
    try:
        box.delete()
        new = mnt.box("phoenix")
        for fd in handles:
            expect_errno(errno.ESTALE, os.pread, fd, 10, 0)
            expect_errno(errno.ESTALE, os.fstat, fd)
        for fd in handles[:3]:
            try:
                os.pwrite(fd, b"1\n", 0)
                os.fsync(fd)
            except OSError as e:
                assert e.errno == errno.ESTALE, e
        for fd in folders:
            expect_errno((errno.ESTALE, errno.ENOENT), os.open, "x", os.O_CREAT | os.O_WRONLY, dir_fd=fd)
            expect_errno((errno.ESTALE, errno.ENOENT), os.listdir, fd)
        assert (new.run / "args").read_text() == "" and (new.run / "timeout").read_text() == "300\n"
        assert new.go("import os; print(os.listdir())").ok().text == "[]\n"
        new.delete()
    finally:
        for fd in handles + folders:
            try:
                os.close(fd)
            except OSError as e:
                assert e.errno == errno.ESTALE


@pytest.mark.bound(120)
def test_a_name_is_made_and_deleted_again_and_again(mnt):
    for i in range(scaled(40, 8)):
        box = mnt.box("again")
        if i % 2:
            box.save(f"open('f{i}', 'w').write('x')")
        if i % 3 == 0:
            assert box.go(f"print({i})").ok().text == f"{i}\n"
        delete(WAYS["rm" if i % 4 else "python"], box.path)
        assert "again" not in os.listdir(mnt.path)


def test_an_unmount_right_after_a_delete_leaves_nothing(fresh_mnt):
    for _ in range(scaled(10, 3)):
        m = fresh_mnt()
        running = m.box().ready()
        running.save("import time; time.sleep(1000)")
        starting = m.box()
        m.note(starting)
        sh(["rm", "-rf", running.path, starting.path]).ok()
        problems = m.stop()
        assert not problems, problems
