# SPDX-License-Identifier: Apache-2.0
"""What a template of the configuration gives its sandboxes."""
import errno
import os
import re
import stat

import pytest
from helpers import Box, expect_errno, finish, spawn, wait_for

LANGUAGES = {
    "languages": {"shout": {"extensions": ["up"], "command": ["sh", "-c", "tr a-z A-Z"]}},
    "templates": {
        "own": {
            "languages": {
                "sh": {"command": ["echo", "not sh:", "{code}"]},
                "quiet": {"extensions": ["up"], "command": ["true"]},
            }
        }
    },
}


def made(m, template, name):
    """A sandbox of a template, running."""
    (m / ".sbxfs/templates" / template / name).mkdir()
    box = Box(m / name)
    m.note(box)
    return box.ready()


def test_a_template_has_languages_of_its_own(fresh_mnt):
    m = fresh_mnt(config=LANGUAGES)
    own, plain = made(m, "own", "one"), m.box().ready()
    assert own.go("echo hello\n", "code.sh").text.startswith("not sh: ")
    assert plain.go("echo hello\n", "code.sh").text == "hello\n"
    assert own.go("x", "code.up").text == ""
    (plain.run / "stdin").write_text("some words\n")
    (plain.run / "language").write_text("shout\n")
    assert plain.go("x", "code").text == "SOME WORDS\n"
    (own.run / "language").write_text("quiet\n")
    spec = (m / ".sbxfs/templates/own/spec").read_text()
    assert 'command: ["echo", "not sh:", "{code}"]' in spec and 'command: ["sh", "-c", "tr a-z A-Z"]' in spec


def test_a_box_named_spec_does_not_hide_the_spec_of_its_template(mnt):
    box = mnt.box("spec")
    folder = mnt / ".sbxfs/templates/default"
    assert sorted(os.listdir(folder)) == sorted(set(os.listdir(folder)))
    assert (folder / "spec").read_text().startswith("network: ") and (box / "info.json").exists()
    expect_errno(errno.EEXIST, (folder / "spec").mkdir)


# ---- runtime ----


def test_a_template_names_its_runtime(fresh_mnt):
    m = fresh_mnt(config={"templates": {"r": {"runtime": 'R "4.3"'}}})
    box = made(m, "r", "one")
    plain = m.box().ready()
    assert (box / "runtime").read_text() == 'R "4.3"\n'
    assert box.info()["runtime"] == 'R "4.3"'
    assert (plain / "runtime").read_text() == "host root\n"
    assert 'runtime: "R \\"4.3\\""' in (m / ".sbxfs/templates/r/spec").read_text()
    m.stop()
    m.start()
    assert (box / "runtime").read_text() == 'R "4.3"\n'


# ---- files ----


def with_files(files, **more):
    return {"templates": {"t": {"files": files}}, **more}


def tree(path):
    """Everything below a folder: path, kind, permissions, contents."""
    out = {}
    for p in sorted(path.rglob("*")):
        st = p.lstat()
        text = os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else None
        out[str(p.relative_to(path))] = (stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode), st.st_mtime_ns, text)
    return out


@pytest.fixture
def source(tmp):
    """A folder to copy, with one of each kind."""
    d = tmp / "source"
    (d / "sub/deep").mkdir(parents=True)
    (d / "sub/deep/data").write_bytes(os.urandom(100000))
    (d / "prog").write_text("#!/bin/sh\necho ran\n")
    (d / "prog").chmod(0o755)
    (d / "link").symlink_to("sub/deep/data")
    (d / "empty").touch()
    os.utime(d / "empty", (1, 1234567890))
    return d


def test_files_of_a_template_are_there_when_the_box_runs(fresh_mnt, source):
    m = fresh_mnt(config=with_files({"lib/tools": str(source), "one/file": {"from": str(source / "prog"), "mode": "500"}}))
    box = made(m, "t", "one")
    assert tree(box.ws / "lib/tools") == tree(source)
    assert (box.ws / "one/file").stat().st_mode & 0o7777 == 0o500
    assert box.go("./lib/tools/prog; ./one/file; touch lib/tools/new lib/new; stat -c %u one/file; id -u", "code.sh").ok()
    out = (box.run / "stdout").read_text().split()
    assert out[:2] == ["ran", "ran"] and out[2] == out[3]
    assert 'from: "' + str(source) in (m / ".sbxfs/templates/t/spec").read_text()
    assert not (m.box().ready().ws / "lib").exists(), "only boxes of the template get them"


def test_the_workspace_itself_is_filled(fresh_mnt, source):
    m = fresh_mnt(config=with_files({".": str(source)}))
    assert tree(made(m, "t", "one").ws) == tree(source)


def test_links_in_a_folder_stay_links(fresh_mnt, source):
    """Also those that lead out of it: nothing behind them is copied."""
    (source / "out").symlink_to("/etc/passwd")
    m = fresh_mnt(config=with_files({"d": str(source)}))
    box = made(m, "t", "one")
    assert box.go("readlink d/out d/link", "code.sh").text == "/etc/passwd\nsub/deep/data\n"


def test_what_cannot_be_copied_fails_the_box_and_start_goes_on(fresh_mnt, source):
    m = fresh_mnt(config=with_files({"a": str(source), "b": str(source / "missing")}))
    m.allow("missing")
    (m / ".sbxfs/templates/t/one").mkdir()
    box = Box(m / "one")
    m.note(box)
    expect_errno(errno.EIO, (box / "ready").read_bytes)
    assert (box / "status").read_text() == "failed\n"
    assert box.error() == f"files of template 't': '{source}/missing': cannot be copied: No such file or directory\n"
    (source / "missing").write_text("now it is there")
    (box / "status").write_text("start\n")
    box.ready()
    assert (box.ws / "b").read_text() == "now it is there"
    assert (box.ws / "a/prog").exists()


def test_a_fifo_in_the_folder_is_told_and_not_waited_on(fresh_mnt, source):
    os.mkfifo(source / "pipe")
    m = fresh_mnt(config=with_files({"a": str(source)}))
    m.allow("neither a file")
    (m / ".sbxfs/templates/t/one").mkdir()
    box = Box(m / "one")
    m.note(box)
    expect_errno(errno.EIO, (box / "ready").read_bytes)
    assert f"'{source}/pipe': neither a file nor a folder nor a link" in box.error()


def test_a_copy_stops_at_the_reserve(fresh_mnt, source):
    m = fresh_mnt(config=with_files({"a": str(source)}, disk_reserve="1024T"))
    m.allow("reserve")
    (m / ".sbxfs/templates/t/one").mkdir()
    box = Box(m / "one")
    m.note(box)
    expect_errno(errno.EIO, (box / "ready").read_bytes)
    assert "down to its reserve" in box.error()


@pytest.fixture
def slow(fresh_mnt):
    """A file whose open waits until somebody says go: the result of a run in another mount."""
    m = fresh_mnt()
    box = m.box().ready()
    box.start("import os, time\nprint('READY', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n")

    class Slow:
        path = str(box.run / "stdout")

        def go(self):
            (box.ws / "go").write_text("")

    s = Slow()
    yield s
    s.go()


def test_while_files_are_copied_everything_answers(fresh_mnt, slow, source):
    m = fresh_mnt(config=with_files({"1": str(source), "2": slow.path}))
    (m / ".sbxfs/templates/t/one").mkdir()
    box = Box(m / "one")
    m.note(box)
    # told when it takes longer than two seconds, with counts; nothing waits meanwhile
    wait_for(lambda: "files of the template: " in (m / ".sbxfs/events").read_text(), "a line about the copy")
    line = [e for e in (m / ".sbxfs/events").read_text().splitlines() if "files of the template" in e][-1]
    assert re.search(r" one files of the template: \d+ %, \d+ of 8 \(97.6K of 97.6K\)$", line), line
    assert (box / "status").read_text() == "creating\n"
    assert "one" in os.listdir(m.path) and "run" in os.listdir(box.path)
    reader = spawn(["cat", box / "ready"])
    quick = m.box().ready()
    assert quick.go("print(1)").text == "1\n"
    box.save("print(open('2').read())")
    assert box.status() == "pending"
    slow.go()
    assert finish(reader).rc == 0
    assert (box.run / "stdout").read_text() == "READY\n\n"


def test_a_box_can_be_deleted_while_its_files_are_copied(fresh_mnt, slow):
    m = fresh_mnt(config=with_files({"2": slow.path}))
    (m / ".sbxfs/templates/t/one").mkdir()
    os.rmdir(m / "one")
    assert os.listdir(m.path) == [".sbxfs"]
    plain = m.box("one").ready()  # the name is free
    assert os.listdir(plain.ws) == []
    slow.go()
    wait_for(lambda: " one deleted" in (m / ".sbxfs/events").read_text(), "the first one is gone")
    assert os.listdir(plain.ws) == []


def test_a_box_that_is_deleted_while_it_waits_for_other_copies_does_not_fail(fresh_mnt, slow):
    m = fresh_mnt(config=with_files({"2": slow.path}))
    for n in range(5):  # one more than are copied at the same time
        (m / f".sbxfs/templates/t/box{n}").mkdir()
        m.note(Box(m / f"box{n}"))
    os.rmdir(m / "box4")
    slow.go()
    wait_for(lambda: " box4 deleted" in (m / ".sbxfs/events").read_text(), "it is gone")
    assert " box4 failed" not in (m / ".sbxfs/events").read_text()
    assert Box(m / "box0").ready().go("cat 2", "code.sh").text == "READY\n"


def test_a_copy_that_was_broken_off_is_finished(fresh_mnt, slow, source):
    m = fresh_mnt(config=with_files({"1": str(source), "2": slow.path, "3": str(source)}))
    (m / ".sbxfs/templates/t/one").mkdir()
    box = Box(m / "one")
    m.note(box)
    wait_for(lambda: (box.ws / "1/prog").exists(), "the first folder is there")
    assert not (box.ws / "3").exists()
    m.kill()
    slow.go()
    m.start()
    assert (box / "status").read_text() == "stopped\n"
    assert box.go("cat 2; cmp 1/prog 3/prog && echo same", "code.sh").text == "READY\nsame\n"
    m.stop()
    m.start()
    (box.ws / "2").unlink()
    assert box.go("ls", "code.sh").text == "1\n3\n", "what was copied is not copied again"
