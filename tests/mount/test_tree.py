# SPDX-License-Identifier: Apache-2.0
"""Every file of the tree against docs/tree.md: TREE below says for each its mode, what a read gives, what a write takes and
refuses; PROVOKED makes every error that is documented. A file, a mode or an error that one of the three does not have is a failure."""
import errno
import json
import os
import re
import resource
import signal
import stat
import sys
import threading

import pytest
from helpers import HERE, ROOT, SBXFS, Box, expect_errno, finish, limits, need_limits, sh, skip, spawn, wait_for

DOCS = HERE.parents[1] / "docs/tree.md"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"
LIMIT = r"(max|\d+)\n"
NUMBERS = r"([a-z_]+ [0-9.]+\n)*"
BIG = b"x" * (128 * 1024)


class File:
    """read: a regular expression that the whole text matches, or a function of it; good: (written, read back);
    bad: (written, errno, what `error` then says)."""

    kind = "file"

    def __init__(self, mode, read, good=(), bad=(), writable=False):
        self.mode, self.read, self.good, self.bad = mode, read, good, bad
        self.writable = writable or bool(good or bad)


class Folder(File):
    kind = "folder"

    def __init__(self, mode, writable=False):
        super().__init__(mode, None, writable=writable)


class Link(File):
    kind = "link"

    def __init__(self, target, writable=False):
        super().__init__(None, target, writable=writable)


def stats(text):
    names = [line.split()[0] for line in text.splitlines()]
    assert names == [
        "boxes",
        "runs_started",
        "runs_active",
        "failures",
        "spool_bytes",
        "waiting_requests",
        "open_files",
        "nodes",
    ]
    assert re.fullmatch(NUMBERS, text)


def info(text):
    value = json.loads(text)
    assert list(value) == [
        "name",
        "provider",
        "id",
        "status",
        "template",
        "runtime",
        "network",
        "workspace",
        "created",
        "limits",
    ]
    assert re.fullmatch(TIME, value["created"]), value["created"]


def result(text):
    if text:
        value = json.loads(text)
        assert list(value)[:10] == [
            "id",
            "exitCode",
            "signal",
            "timedOut",
            "oom",
            "truncated",
            "language",
            "startedAt",
            "durationMs",
            "error",
        ], list(value)


def usage(text):
    assert re.fullmatch(NUMBERS, text), text
    assert {line.split()[0] for line in text.splitlines()} <= {
        "cpu_percent",
        "cpu_seconds",
        "memory_bytes",
        "memory_percent",
        "pids",
    }


ANY = r"(?s:.*)"
MONITOR = rf"time\tcpu_percent\tmemory_bytes\tmemory_percent\n({TIME}(\t([0-9.]+|-)){{3}}\n)*"
RUN_STATUS = r"(none|pending|running|exited \d+|signaled \d+|timeout|lost|refused)( truncated)?( oom)?\n"
NUMBER = r"(\d+\n)?"
ENV = {
    "good": [(b"A=1\nB=two words", b"A=1\nB=two words\n"), (b"", b"")],
    "bad": [
        (b"no equals sign\n", errno.EINVAL, r"env: line 1 has no '='"),
        (b"A=1\n2B=x\n", errno.EINVAL, r"env: line 2: a name is"),
        (b"A=\0\n", errno.EINVAL, r"env: a NUL byte"),
        (b"A=" + BIG + b"\n", errno.EINVAL, r"env: a line is longer than 128K"),
        (b"A=1\n" * (256 * 1024 + 1), errno.EFBIG, r"env: too long"),
    ],
}
SETTINGS = {
    "args": File(
        0o644,
        ANY,
        good=[(b"one\ntwo words\n\nlast", b"one\ntwo words\n\nlast\n"), (b"", b"")],
        bad=[
            (b"a\0b\n", errno.EINVAL, r"args: a NUL byte"),
            (BIG, errno.EINVAL, r"args: a line is longer than 128K"),
            (b"a\n" * (512 * 1024 + 1), errno.EFBIG, r"args: too long"),
        ],
    ),
    "env": File(0o644, ANY, **ENV),
    "stdin": File(0o644, ANY, good=[(b"no newline", b"no newline"), (bytes(range(256)), bytes(range(256))), (b"", b"")]),
    "cwd": File(
        0o644,
        r"[^\n]+\n",
        good=[(b"a/b", b"a/b\n"), (b" a/./b/ \n", b"a/b\n"), (b".\n", b".\n")],
        bad=[
            (b"..\n", errno.EINVAL, r"cwd: '\.\.' is not a folder below the workspace"),
            (b"/etc\n", errno.EINVAL, r"cwd: '/etc' is not"),
            (b"a\nb\n", errno.EINVAL, r"cwd: "),
        ],
    ),
    "timeout": File(
        0o644,
        r"(\d+(\.\d+)?|max)\n",
        good=[(b"500ms", b"0.5\n"), (b"2h\n", b"7200\n"), (b"max\n", b"max\n"), (b"7", b"7\n")],
        bad=[
            (b"soon\n", errno.EINVAL, r"timeout: write a time such as 30s"),
            (b"0\n", errno.EINVAL, r"timeout: write a time"),
            (b"-1\n", errno.EINVAL, r"timeout: write a time"),
            (b"1 2\n", errno.EINVAL, r"timeout: write a time"),
        ],
    ),
    "language": File(
        0o644,
        r"\w+\n",
        good=[(b"python", b"python\n"), (b"sh\n", b"sh\n"), (b"auto\n", b"auto\n")],
        bad=[
            (b"klingon\n", errno.EINVAL, r"language: 'klingon' is not known; known are"),
            (b"\n", errno.EINVAL, r"language: write a name, or auto"),
        ],
    ),
}
LIVE = {
    "status": File(0o444, RUN_STATUS),
    "logs": File(0o444, ANY),
    "stream": File(0o444, ANY),
    "error": File(0o444, r"([^\n]+\n)?"),
}
RESULTS = {
    "stdout": File(0o440, ANY),
    "stderr": File(0o440, ANY),
    "exit": File(0o440, NUMBER),
    "result.json": File(0o440, result),
}
COMMANDS = [
    (b"\n", errno.EINVAL, r"write a command line"),
    (b"a\0b\n", errno.EINVAL, r"a command line cannot hold a NUL byte"),
    (BIG, errno.EINVAL, r"a command line has at most 131072 bytes"),
]
CODE = "code code.py code.js code.mjs code.cjs code.ts code.sh code.bash code.rb code.pl code.php code.lua code.go"

# section of docs/tree.md -> name -> what it is
TREE = {
    "MOUNT/": {"BOX/": Folder(0o755, True), ".sbxfs/": Folder(0o755)},
    ".sbxfs/": {
        "README": File(0o444, r"(?s:sbxfs: sandboxes as files\..+\n)"),
        "version": File(0o444, r"sbxfs \d+\.\d+\S*\n"),
        "source": File(0o444, r"local\n"),
        "config": File(0o444, r"(?s:.*state_dir: .*\n)"),
        "stats": File(0o444, stats),
        "events": File(0o444, rf"({TIME} \S+ [^\n]+\n)*"),
        "errors": File(0o444, rf"({TIME} \S+ \S+ \S+ E[A-Z]+ [^\n]+\n)*"),
        "templates/": Folder(0o555),
    },
    ".sbxfs/templates/NAME/": {
        "spec": File(0o444, r"(?s:.*limits:.*\n)"),
        "BOX": Link(r"\.\./\.\./\.\./[\w.-]+", True),
    },
    "BOX/": {
        "status": File(
            0o644,
            r"(creating|running|paused|stopped|failed|deleting)\n",
            good=[(b"start", b"running\n"), (b"start\n", b"running\n")],
            bad=[(b"fly\n", errno.EINVAL, r"'fly' is not one of start, stop, pause, restart")],
        ),
        "ready": File(0o444, r"running\n"),
        "error": File(0o444, r"([^\n]+\n)?"),
        "env": File(0o644, ANY, **ENV),
        "usage": File(0o444, usage),
        "ports": File(0o444, r"(\d+( \S+)?\n)*"),
        "info.json": File(0o444, info),
        "runtime": File(0o444, r"[^\n]+\n"),
        "limits/": Folder(0o755),
        "monitor/": Folder(0o555),
        "run/": Folder(0o755),
        "processes/": Folder(0o755),
        "workspace/": Folder(0o755, True),
    },
    "BOX/monitor/": {name: File(0o444, MONITOR) for name in ("1m", "10m", "1h", "SPAN")},
    "BOX/limits/": {
        "cpu": File(0o644, r"(max|\d+(\.\d+)?)\n", bad=[(b"many\n", errno.EINVAL, r"'many' is not a number of cores")]),
        "memory": File(0o644, LIMIT, bad=[(b"1M\n", errno.EINVAL, r"'1M' is too small: at least 16M")]),
        "disk": File(0o644, LIMIT, good=[(b"max", b"max\n")], bad=[(b"1K\n", errno.EINVAL, r"'1K' is too small")]),
        "pids": File(
            0o644,
            LIMIT,
            good=[(b"100", b"100\n"), (b"max\n", b"max\n")],
            bad=[(b"3\n", errno.EINVAL, r"'3' is too small: at least 4")],
        ),
        "output": File(
            0o644,
            LIMIT,
            good=[(b"1K", b"1024\n"), (b"max\n", b"max\n")],
            bad=[(b"0\n", errno.EINVAL, r"'0' is too small: at least 1")],
        ),
        "timeout": File(
            0o644,
            r"(max|\d+(\.\d+)?)\n",
            good=[(b"500ms", b"0.5\n"), (b"2h\n", b"7200\n"), (b"max\n", b"max\n")],
            bad=[(b"soon\n", errno.EINVAL, r"'soon' is not a time")],
        ),
    },
    "BOX/run/": {
        **{name: File("as made", ANY, writable=True) for name in CODE.split()},
        **RESULTS,
        **LIVE,
        "process": Link(r"(\.\./)?\.\./processes/\d+"),
        **SETTINGS,
        "SLOT/": Folder(0o755, True),
    },
    "BOX/processes/": {
        "new": File(0o644, r"", bad=COMMANDS),
        "last": Link(r"\d+"),
        "ID/": Folder(0o555, True),
        "NAME/": Folder(0o555, True),
    },
    "BOX/processes/ID/": {
        "command": File((0o444, 0o644), r"(?s:.+\n)?", bad=COMMANDS),
        **RESULTS,
        "stdout": File((0o440, 0o444), ANY),
        "stderr": File((0o440, 0o444), ANY),
        **LIVE,
        "pid": File(0o444, NUMBER),
        "signal": File(0o644, r"", bad=[(b"SIGNOTHING\n", errno.EINVAL, r"'SIGNOTHING' is not a signal")]),
        "started": File(0o444, rf"({TIME}\n)?"),
        "duration_ms": File(0o444, NUMBER),
    },
}


# ---- docs/tree.md ----


def documented():
    """section -> name -> (mode, writable, errors); "Everywhere" and the code have lists of errors of their own."""
    found, errors, section, columns = {}, {}, None, []
    for line in DOCS.read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        if not line.startswith("|"):
            continue
        cells = [c.strip() for c in line[1:-1].split("|")]
        names = re.findall(r"`([^`]+)`", cells[0])
        if cells[0] in ("name", "error"):
            columns = cells
        elif columns[0] == "error" and names:
            errors.setdefault(section, set()).update(names)
        elif names:
            code = columns[2] == "language"
            for name in names:
                assert name not in found.setdefault(section, {}), f"{section} {name} twice"
                found[section][name] = (
                    cells[1],
                    code or cells[3] != "",
                    set() if code else set(re.findall(r"`(E[A-Z]+)`", cells[4])),
                )
    return found, errors


def told_mode(entry):
    if entry.kind == "link":
        return "link"
    modes = entry.mode if isinstance(entry.mode, tuple) else (entry.mode,)
    return "; ".join(m if isinstance(m, str) else f"{m:04o}" for m in modes)


def test_the_documentation_has_each_file_of_this_table_with_its_mode_and_nothing_else():
    found, _ = documented()
    assert {s: sorted(names) for s, names in found.items()} == {s: sorted(names) for s, names in TREE.items()}
    for section, names in TREE.items():
        for name, entry in names.items():
            mode, writable, _ = found[section][name]
            assert (mode, writable) == (told_mode(entry), entry.writable), f"{section} {name}"


# ---- a mount with one of everything ----


class Scene:
    def __init__(self, mnt):
        self.mnt = mnt
        box = self.box = mnt.box("scene")
        (box.run / "slot").mkdir()
        box.go("print('out')\nimport sys\nprint('err', file=sys.stderr)").ok()
        box.go("echo 1\n", "code.sh", slot="slot").ok()
        (box.run / ".code.py.swp").write_text("scratch")
        (box / "processes/new").write_text("echo up; exec sleep 1000\n")
        self.number = os.readlink(box / "processes/last")
        (box / "processes/named").mkdir()
        (box / "processes/named/command").write_text("echo up; exec sleep 1000\n")
        (box / "processes/waiting").mkdir()
        (box / "processes/new").write_text("echo over\n")
        (box / "processes/last/exit").read_text()
        for name in (self.number, "named"):
            wait_for(lambda n=name: (box / "processes" / n / "logs").read_text() == "up\n", f"{name} is up")
        (box.ws / "folder").mkdir()
        (box.ws / "folder/file").write_text("x")


@pytest.fixture(scope="module")
def scene(mnt):
    s = Scene(mnt)
    yield s
    mnt.note(s.box)
    s.box.delete()


def place(path):
    """The (section, name) of TREE that a path below the mount belongs to; None: below workspace/."""
    parts = path.split("/")
    if parts[0] == ".sbxfs":
        if len(parts) == 1:
            return "MOUNT/", ".sbxfs/"
        if len(parts) == 2:
            return ".sbxfs/", parts[1] + ("/" if parts[1] == "templates" else "")
        if len(parts) == 3:
            return ".sbxfs/", "templates/"  # the folder of one: like the one above, but writable, see below
        return ".sbxfs/templates/NAME/", "spec" if parts[3] == "spec" else "BOX"
    if len(parts) == 1:
        return "MOUNT/", "BOX/"
    name = parts[1] + "/" if parts[1] + "/" in TREE["BOX/"] else parts[1]
    if len(parts) == 2:
        return "BOX/", name
    if name == "workspace/":
        return None
    if name == "limits/":
        return "BOX/limits/", parts[2]
    if name == "monitor/":
        return "BOX/monitor/", parts[2] if parts[2] in TREE["BOX/monitor/"] else "SPAN"
    if name == "run/":
        if parts[2] == "slot":
            return "BOX/run/", "SLOT/" if len(parts) == 3 else parts[3]
        return "BOX/run/", parts[2]
    if len(parts) == 3 and parts[2] in TREE["BOX/processes/"]:
        return "BOX/processes/", parts[2]
    if len(parts) == 3:
        return "BOX/processes/", "ID/" if parts[2].isdigit() else "NAME/"
    return "BOX/processes/ID/", parts[3]


def walk(top):
    """Every path that listing finds, with the listing's own type."""
    todo = [""]
    while todo:
        here = todo.pop()
        with os.scandir(top / here) as entries:
            for entry in entries:
                path = f"{here}/{entry.name}".lstrip("/")
                yield path, entry
                if entry.is_dir(follow_symlinks=False):
                    todo.append(path)


SCRATCH = {".code.py.swp"}
HIDDEN = {"exit", "result.json", "stream"}  # of a background process that goes on: found, not listed


def test_walking_the_tree_meets_what_is_documented_and_nothing_else(scene):
    seen = {}
    for path, entry in walk(scene.mnt.path):
        where = place(path)
        if where is None or os.path.basename(path) in SCRATCH:
            continue
        section, name = where
        assert name in TREE[section], f"{path} is not in the table: document it in docs/tree.md, and add it here"
        seen.setdefault(where, []).append(path)
        want, st = TREE[section][name], os.lstat(scene.mnt / path)
        kind = {stat.S_IFDIR: "folder", stat.S_IFREG: "file", stat.S_IFLNK: "link"}[stat.S_IFMT(st.st_mode)]
        assert kind == want.kind, path
        assert (kind == "folder", kind == "link") == (entry.is_dir(follow_symlinks=False), entry.is_symlink()), path
        assert entry.inode() == st.st_ino, path
        assert st.st_uid == os.geteuid(), path
        if path.count("/") == 2 and path.startswith(".sbxfs/templates/"):
            assert stat.S_IMODE(st.st_mode) == 0o755, path
        elif want.mode == "as made":
            assert stat.S_IMODE(st.st_mode) == 0o644, path
        elif want.mode is not None:
            modes = want.mode if isinstance(want.mode, tuple) else (want.mode,)
            assert stat.S_IMODE(st.st_mode) in modes, f"{path}: {oct(st.st_mode)}"
            assert kind == "folder" or bool(st.st_mode & 0o200) in {bool(m & 0o200) for m in modes}, path
    assert stat.S_IMODE(os.stat(scene.mnt.path).st_mode) == 0o755
    missing = {(s, n) for s, names in TREE.items() for n in names} - set(seen)
    missing -= {("MOUNT/", ".sbxfs/"), (".sbxfs/", "templates/"), ("BOX/monitor/", "SPAN")}
    missing -= {(s, n) for s, n in missing if s == ".sbxfs/" or s == ".sbxfs/templates/NAME/"}
    missing -= {("BOX/run/", n) for n in CODE.split()}
    assert not missing, f"documented, but not met: {missing}"


def test_the_hidden_folder_has_what_is_documented_and_nothing_else(scene):
    for path, _ in walk(scene.mnt / ".sbxfs"):
        section, name = place(".sbxfs/" + path)
        want, st = TREE[section][name], os.lstat(scene.mnt / ".sbxfs" / path)
        template = path.startswith("templates/") and path.count("/") == 1
        assert want.mode is None or stat.S_IMODE(st.st_mode) == (0o755 if template else want.mode), path
    assert {n.rstrip("/") for n in TREE[".sbxfs/"]} == set(os.listdir(scene.mnt / ".sbxfs"))
    assert set(os.listdir(scene.mnt / ".sbxfs/templates/default")) == {"spec", "scene"}
    assert os.path.samefile(scene.mnt / ".sbxfs/templates/default/scene", scene.box.path)
    assert stat.S_IMODE(os.stat(scene.mnt / ".sbxfs").st_mode) == 0o755


def test_what_a_background_process_hides_while_it_goes_on_is_found_by_name(scene):
    listed = set(os.listdir(scene.box / "processes/named"))
    assert listed == set(TREE["BOX/processes/ID/"]) - HIDDEN
    for name in HIDDEN:
        st = os.lstat(scene.box / "processes/named" / name)
        assert stat.S_IMODE(st.st_mode) == TREE["BOX/processes/ID/"][name].mode, name
    over = os.readlink(scene.box / "processes/last")
    assert set(os.listdir(scene.box / "processes" / over)) == set(TREE["BOX/processes/ID/"])


def reading(path):
    """What a reader of the tree gets without waiting for a server: None where it would wait."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        out = b""
        while data := os.read(fd, 1 << 20):
            out += data
        return out
    except BlockingIOError:
        return out
    finally:
        os.close(fd)


def test_each_file_reads_as_documented(scene):
    some = 0
    extra = [f"scene/monitor/{n}" for n in ("90s", "2m", "3600s")]
    for path in [p for p, _ in walk(scene.mnt.path)] + [f".sbxfs/{p}" for p, _ in walk(scene.mnt / ".sbxfs")] + extra:
        where = place(path)
        if where is None or os.path.basename(path) in SCRATCH:
            continue
        entry = TREE[where[0]][where[1]]
        if entry.kind == "folder":
            continue
        if entry.kind == "link":
            assert re.fullmatch(entry.read, os.readlink(scene.mnt / path)), path
            assert os.path.isdir(scene.mnt / path), path
        else:
            text = reading(scene.mnt / path).decode()
            if callable(entry.read):
                entry.read(text)
            else:
                assert re.fullmatch(entry.read, text), f"{path}: {text!r}"
            assert os.stat(scene.mnt / path).st_size in (len(text.encode()), 0) or "\n" in text, path
        some += 1
    assert some > 80


def test_what_is_not_writable_is_eacces_for_root_too_and_cannot_be_truncated(scene):
    for path, _ in walk(scene.mnt.path):
        where = place(path)
        if where is None or os.path.basename(path) in SCRATCH:
            continue
        st = os.lstat(scene.mnt / path)
        if stat.S_ISREG(st.st_mode) and not st.st_mode & 0o222:
            expect_errno(errno.EACCES, os.open, scene.mnt / path, os.O_WRONLY)
            expect_errno(errno.EACCES, os.truncate, scene.mnt / path, 0)


def values(bad):
    for section, names in TREE.items():
        for name, entry in names.items():
            for value in entry.bad if bad else entry.good:
                yield pytest.param(section, name, *value, id=f"{section}{name}-{value[0][:12]!r}")


def file_of(box, section, name):
    """The file of a fresh box that an entry with values stands for."""
    if section == "BOX/processes/ID/":
        (box / "processes/own").mkdir()
        if name == "signal":
            (box / "processes/own/command").write_text("exec sleep 1000")
        return box / "processes/own" / name
    return box.path / section.removeprefix("BOX/") / name


@pytest.mark.parametrize("section,name,text,back", values(False))
def test_a_good_value_is_read_back_and_what_is_read_back_is_good(box, section, name, text, back):
    box.ready()
    path = file_of(box, section, name)
    for value in (text, back) if name != "status" else (text,):  # a state is no verb
        path.write_bytes(value)
        assert path.read_bytes() == back
    assert box.no_failure()


@pytest.mark.parametrize("section,name,text,code,reason", values(True))
def test_a_bad_value_fails_with_its_errno_changes_nothing_and_tells_the_reason(box, section, name, text, code, reason):
    box.ready()
    path = file_of(box, section, name)
    before = path.read_bytes()
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)

    def put():
        nonlocal fd
        try:
            os.write(fd, text)
        finally:
            done, fd = fd, None
            os.close(done)  # texts of several lines are judged here

    expect_errno(code, put)
    assert re.match(reason, box.error()), box.error()
    last = (box.path.parent / ".sbxfs/errors").read_text().splitlines()[-1]
    assert f" {box.name} " in last and errno.errorcode[code] in last
    assert path.read_bytes() == before


# ---- every error that is documented ----

PROVOKED = {}  # (section, name) -> errno name -> function


def provokes(section, name, *codes):
    def add(function):
        for code in codes:
            assert code not in PROVOKED.setdefault((section, name), {}), (section, name, code)
            PROVOKED[section, name][code] = function
        return function

    return add


class Trouble:
    """What the functions below work with: a box of the common mount, and mounts made for the purpose."""

    def __init__(self, box, fresh_mnt, tmp):
        self.box, self.fresh, self.tmp = box, fresh_mnt, tmp

    def process(self, command):
        folder = self.box / "processes/own"
        folder.mkdir()
        (folder / "command").write_text(command)
        return folder

    def strict(self):
        """A box with hard limits of the daemon."""
        config = {"max_wait": "1s", "code_max": "64K", "policy": {"deny": ["FORBIDDEN"]}}
        m = self.fresh(config=config)
        m.allow("")
        box = m.box()
        wait_for(lambda: (box / "status").read_text() == "running\n", "running")
        return box

    def held(self):
        """A mount whose sandboxes come up only when the returned function is called."""
        real = re.search(r"OCI runtime\s+ok: (\S+)", sh([SBXFS, "check", "local"]).text)[1]
        os.chmod(self.tmp, 0o755)
        gate = self.tmp / "gate"
        wrapper = self.tmp / os.path.basename(real)
        wrapper.write_text(
            f'#!/bin/sh\ncase "$*" in *" run "*) while [ -e {gate} ]; do sleep 0.02; done;; esac\nexec {real} "$@"\n'
        )
        wrapper.chmod(0o755)
        m = self.fresh(config={"oci_runtime": str(wrapper)})
        m.allow("")
        m.box("first").ready().delete()
        gate.touch()

        def go_on():
            """The box b2, which was deleted meanwhile, comes up and goes."""
            gate.unlink(missing_ok=True)
            wait_for(lambda: " b2 deleted\n" in (m / ".sbxfs/events").read_text(), "b2 is deleted")

        return m, go_on


def parked(box, path, also):
    """The errno with which the open() of a waiting reader ends, and what makes it end."""
    result = []

    def reader():
        try:
            os.close(os.open(path, os.O_RDONLY))
            result.append(None)
        except OSError as e:
            result.append(e)

    stats_file = box.path.parent / ".sbxfs/stats"

    def waiting():
        return int(re.search(r"waiting_requests (\d+)", stats_file.read_text())[1])

    before = waiting()
    thread = threading.Thread(target=reader)
    thread.start()
    wait_for(lambda: waiting() > before, "the reader waits")
    also()
    thread.join(30)
    assert not thread.is_alive(), "the reader waits for ever"
    if result[0]:
        raise result[0]


def busy(box):
    box.start("import time; print('READY', flush=True); time.sleep(1000)")
    wait_for(lambda: (box.run / "logs").read_bytes() == b"READY\n", "the whole line is there")


def truncated_at(path, size):
    with open(path, "wb", buffering=0) as f:
        os.pwrite(f.fileno(), b"x", size)


@provokes("Everywhere", "", "EACCES")
def _(t):
    os.open(t.box / "info.json", os.O_WRONLY)


@provokes("Everywhere", "", "EPERM")
def _(t):
    for path in (t.box.path, t.box.run, t.box / "status", t.box.run / "stdout", t.box / "processes/new"):
        expect_errno(errno.EPERM, os.rename, path, path.parent / "other")
    for folder in (t.box.path.parent, t.box.path, t.box / "processes", t.box / "monitor"):
        expect_errno(errno.EPERM, os.open, folder / "file", os.O_CREAT | os.O_WRONLY)
        expect_errno(errno.EPERM, os.symlink, "x", folder / "link")
    expect_errno(errno.EPERM, os.mkdir, t.box / "folder")
    expect_errno(errno.EPERM, os.chown, t.box / "status", os.geteuid() + 1, -1)
    os.link(t.box / "status", t.box / "link")


@provokes("Everywhere", "", "EEXIST")
def _(t):
    expect_errno(errno.EEXIST, os.mkdir, t.box.run / "stdout")
    expect_errno(errno.EEXIST, os.mkdir, t.box / "processes/new")
    os.mkdir(t.box.path)


@provokes("Everywhere", "", "ENOENT")
def _(t):
    expect_errno(errno.ENOENT, os.rmdir, t.box.path.parent / "nothing")
    expect_errno(errno.ENOENT, os.rmdir, t.box / "processes/12345")
    expect_errno(errno.ENOENT, os.rmdir, t.box.run / "nothing")
    expect_errno(errno.ENOENT, os.unlink, t.box.run / "nothing")
    os.open(t.box / "nothing", os.O_RDONLY)


@provokes("Everywhere", "", "EISDIR")
def _(t):
    expect_errno(errno.EISDIR, os.unlink, t.box.run)
    os.open(t.box.run, os.O_WRONLY)


@provokes("Everywhere", "", "ENOTDIR")
def _(t):
    expect_errno(errno.ENOTDIR, os.rmdir, t.box.run / "stdout")
    os.rmdir(t.box / "status")


@provokes("Everywhere", "", "ESTALE")
def _(t):
    box, slot = t.box, t.box.run / "slot"
    slot.mkdir()
    (box.ws / "file").write_text("x")
    gone = os.open(slot / "args", os.O_RDONLY)
    handles = [os.open(p, os.O_RDONLY) for p in (box / "status", box.run / "args", box.ws / "file", box / "processes/new")]
    code = os.open(box.run / "code.py", os.O_CREAT | os.O_WRONLY)
    folder = os.open(box.run, os.O_RDONLY)
    try:
        slot.rmdir()
        slot.mkdir()
        expect_errno(errno.ESTALE, os.read, gone, 1)
        name = box.name
        box.delete()
        box.path.mkdir()
        assert name == box.name
        expect_errno((errno.ESTALE, errno.ENOENT), os.open, "args", os.O_RDONLY, dir_fd=folder)
        for fd in handles[:3]:
            expect_errno(errno.ESTALE, os.pread, fd, 1, 0)
        expect_errno(errno.ESTALE, os.fstat, code)
        os.pread(handles[0], 1, 0)
    finally:
        for fd in [gone, code, folder, *handles]:
            os.close(fd)


@provokes("Everywhere", "", "ECANCELED")
def _(t):
    busy(t.box)
    for name in ("exit", "result.json"):
        other = Box(t.box.path.parent / f"other-{name[:4]}")
        other.path.mkdir()
        busy(other)
        expect_errno(errno.ECANCELED, parked, other, other.run / name, other.delete)
    parked(t.box, t.box.run / "stdout", t.box.delete)


@provokes("Everywhere", "", "EINTR")
def _(t):
    busy(t.box)
    # Python itself would open again: asked of libc
    code = """import ctypes, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.siginterrupt(signal.SIGUSR1, True)
libc = ctypes.CDLL(None, use_errno=True)
print(libc.open(sys.argv[1].encode(), 0), ctypes.get_errno())"""
    reader = spawn([sys.executable, "-c", code, t.box.run / "stdout"])
    stats_file = t.box.path.parent / ".sbxfs/stats"
    wait_for(lambda: "waiting_requests 1\n" in stats_file.read_text(), "the reader waits")
    os.kill(reader.pid, signal.SIGUSR1)
    got, number = map(int, finish(reader).ok().text.split())
    assert got == -1
    raise OSError(number, os.strerror(number))


@provokes("Everywhere", "", "EOPNOTSUPP")
def _(t):
    expect_errno(errno.EOPNOTSUPP, os.setxattr, t.box / "status", "user.a", b"1")
    (t.box.ws / "file").touch()
    os.setxattr(t.box.ws / "file", "user.a", b"1")


@provokes("Everywhere", "", "EXDEV")
def _(t):
    (t.box.run / "slot").mkdir()
    (t.box.ws / "file").write_text("x")
    (t.box.run / "scratch").write_text("x")
    expect_errno(errno.EXDEV, os.rename, t.box.run / "scratch", t.box.run / "slot/scratch")
    expect_errno(errno.EXDEV, os.rename, t.box.run / "scratch", t.box.ws / "scratch")
    os.rename(t.box.ws / "file", t.box.run / "code.py")


@provokes("Everywhere", "", "EMFILE")
def _(t):
    m = t.fresh(limits={resource.RLIMIT_NOFILE: 160})
    m.allow("")
    box, held = m.box(), []
    try:
        while len(held) < 1000:
            held.append(os.open(box.ws / f"f{len(held)}", os.O_CREAT | os.O_RDWR))
    finally:
        for fd in held:
            os.close(fd)


@provokes("MOUNT/", "BOX/", "EINVAL")
def _(t):
    os.mkdir(t.box.path.parent / "-no")


@provokes(".sbxfs/templates/NAME/", "BOX", "EINVAL")
def _(t):
    os.mkdir(t.box.path.parent / ".sbxfs/templates/default/-no")


def not_supported(box, name, value):
    """Write a limit that an ordinary user cannot have; where it can be had there is nothing to see."""
    box.ready()
    at = box / "limits" / name
    try:
        at.write_text(value)
    except OSError as e:
        if e.errno == errno.EOPNOTSUPP:
            assert "cgroup" in box.error() or "limits" in box.error(), box.error()
        raise
    skip("user", "limits can be had here")


@provokes("BOX/limits/", "cpu", "EOPNOTSUPP")
def _(t):
    not_supported(t.box, "cpu", "0.5")


@provokes("BOX/limits/", "memory", "EOPNOTSUPP")
def _(t):
    not_supported(t.box, "memory", "256M")


@provokes("BOX/limits/", "disk", "EOPNOTSUPP")
def _(t):
    (t.box / "limits/disk").write_text("1G")


@provokes("BOX/limits/", "memory", "EBUSY")
def _(t):
    need_limits()
    if not os.path.exists("/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        skip("v2")
    t.box.start("x = b'x' * (100 << 20)\nprint('READY', flush=True)\nimport time; time.sleep(1000)")
    (t.box / "limits/memory").write_text("50M")


@provokes("BOX/limits/", "disk", "EBUSY")
def _(t):
    if not ROOT:
        skip("root", "a loop device")
    box = t.fresh(config=limits(disk="20M")).box()
    (box.ws / "file").write_bytes(bytes(15 << 20))
    (box / "limits/disk").write_text("10M")


@provokes("BOX/", "status", "EOPNOTSUPP")
def _(t):
    t.box.ready()
    try:
        (t.box / "status").write_text("pause")
    except OSError:
        assert "pause" in t.box.error() or "cgroup" in t.box.error(), t.box.error()
        raise
    (t.box / "status").write_text("start")
    skip("user", "this machine can pause")


@provokes("BOX/", "ready", "EIO")
def _(t):
    (t.box / "status").write_text("stop")
    wait_for(lambda: (t.box / "status").read_text() == "stopped\n", "stopped")
    try:
        (t.box / "ready").read_text()
    finally:
        assert t.box.error() == "the sandbox is stopped; write start to status\n"


@provokes("BOX/", "ready", "EAGAIN")
def _(t):
    m, go_on = t.held()
    box = m.box()
    try:
        os.close(os.open(box / "ready", os.O_RDONLY | os.O_NONBLOCK))
    finally:
        assert (box / "status").read_text() == "creating\n"
        expect_errno(errno.ECANCELED, parked, box, box / "ready", box.delete)
        go_on()


@provokes("BOX/monitor/", "SPAN", "ENOENT")
def _(t):
    for name in ("90", "2h", "0s", "1500ms", "m"):
        expect_errno(errno.ENOENT, os.stat, t.box / "monitor" / name)
    os.open(t.box / "monitor/never", os.O_RDONLY)


@provokes("BOX/run/", "", "EFBIG")
def _(t):
    box = t.strict()
    try:
        with open(box.run / "code.py", "wb", buffering=0) as f:
            f.write(b"#" * (64 * 1024 + 1))
    finally:
        assert re.match("code is at most 65536 bytes here", box.error())


@provokes("BOX/run/", "", "EACCES")
def _(t):
    box = t.strict()
    (box.run / "x.tmp").write_text("echo FORBIDDEN")
    expect_errno(errno.EACCES, os.rename, box.run / "x.tmp", box.run / "code.sh")
    try:
        with open(box.run / "code.sh", "wb", buffering=0) as f:
            f.write(b"echo forbidden")
    finally:
        assert box.status() == "refused"
        assert re.match("refused by policy.deny, pattern 1: FORBIDDEN", (box.run / "error").read_text())


@provokes("BOX/run/", "", "ENOSPC")
def _(t):
    for i in range(300):
        (t.box.run / f"scratch{i}").touch()


@provokes("BOX/run/", "", "EPERM")
def _(t):
    t.box.save("print(1)")
    expect_errno(errno.EPERM, os.symlink, "/etc/hostname", t.box.run / "code.sh")
    expect_errno(errno.EPERM, os.mkfifo, t.box.run / "code.sh")
    os.link(t.box.run / "code.py", t.box.run / "code.sh")


@provokes("BOX/run/", "", "ENOTEMPTY")
def _(t):
    (t.box.run / ".folder").mkdir()
    (t.box.run / ".folder/file").touch()
    os.rmdir(t.box.run / ".folder")


@provokes("BOX/run/", "", "ENAMETOOLONG")
def _(t):
    os.mkdir(t.box.run / ("." + "x" * 127))


@provokes("BOX/run/", "", "EISDIR")
def _(t):
    (t.box.run / "slot").mkdir()
    (t.box.run / "scratch").write_text("x")
    expect_errno(errno.EISDIR, os.rename, t.box.run / "scratch", t.box.run / "slot")
    t.box.save("print(1)")
    os.rename(t.box.run / "code.py", t.box.run / "slot")


@provokes("BOX/run/", "", "EINVAL")
def _(t):
    try:
        os.mkdir(t.box.run / "code.py")
    finally:
        assert t.box.error() == "'code.py' is the name of code, not of a slot\n"


@provokes("BOX/run/", "", "EAGAIN")
@provokes("BOX/processes/", "new", "EAGAIN")
def _(t):
    m, go_on = t.held()
    box = m.box()
    (box.run / "x").write_text(":\n")
    try:
        fd = os.open(box / "processes/new", os.O_WRONLY)
        try:
            for _ in range(4096):
                os.write(fd, b":")
            e = expect_errno(errno.EAGAIN, os.write, fd, b":")
        finally:
            os.close(fd)
        assert re.match("4096 programs are going on in", box.error())
        box.save(":\n", "code.sh")
        wait_for(lambda: box.status() == "refused", "a save that nobody hears of is refused")
        expect_errno(errno.EIO, (box.run / "exit").read_text)
        assert re.match("4096 runs are going on in", (box.run / "error").read_text())
        expect_errno(errno.EAGAIN, os.rename, box.run / "x", box.run / "code.sh")
        raise e
    finally:
        box.delete()
        go_on()


def unknown_end(t):
    """A run whose end nobody can know: its sandbox is stopped under it."""
    busy(t.box)
    (t.box / "status").write_text("stop")
    t.box.until_status("lost")


@provokes("BOX/run/", "stdout", "EIO")
@provokes("BOX/run/", "stderr", "EIO")
@provokes("BOX/run/", "exit", "EIO")
@provokes("BOX/processes/ID/", "stdout", "EIO")
@provokes("BOX/processes/ID/", "stderr", "EIO")
@provokes("BOX/processes/ID/", "exit", "EIO")
def _(t):
    unknown_end(t)
    for name in ("stdout", "stderr", "exit"):
        expect_errno(errno.EIO, (t.box.run / name).read_bytes)
        expect_errno(errno.EIO, (t.box.run / "process" / name).read_bytes)
    assert (t.box.run / "error").read_text() == "the sandbox was stopped while it ran\n"
    assert t.box.json()["exitCode"] is None and t.box.json()["error"] == "the sandbox was stopped while it ran"
    (t.box.run / "exit").read_bytes()


@provokes("BOX/run/", "stdout", "EDEADLK")
@provokes("BOX/run/", "stderr", "EDEADLK")
@provokes("BOX/run/", "exit", "EDEADLK")
@provokes("BOX/run/", "result.json", "EDEADLK")
def _(t):
    with open(t.box.run / "code.py", "w") as f:
        f.write("print(1)")
        f.flush()
        for name in ("stderr", "exit", "result.json"):
            expect_errno(errno.EDEADLK, os.open, t.box.run / name, os.O_RDONLY)
        assert t.box.error() == "the reader itself holds the code open for writing: close it first\n"
        os.open(t.box.run / "stdout", os.O_RDONLY)


@provokes("BOX/run/", "stdout", "ETIMEDOUT")
@provokes("BOX/run/", "stderr", "ETIMEDOUT")
@provokes("BOX/run/", "exit", "ETIMEDOUT")
@provokes("BOX/run/", "result.json", "ETIMEDOUT")
@provokes("BOX/processes/ID/", "stdout", "ETIMEDOUT")
@provokes("BOX/processes/ID/", "stderr", "ETIMEDOUT")
@provokes("BOX/processes/ID/", "exit", "ETIMEDOUT")
@provokes("BOX/processes/ID/", "result.json", "ETIMEDOUT")
def _(t):
    box = t.strict()
    busy(box)
    readers = [spawn(["cat", box.run / n]) for n in RESULTS] + [spawn(["cat", box.run / "process" / n]) for n in RESULTS]
    for reader in readers:
        done = finish(reader)
        assert done.rc == 1 and b"timed out" in done.err, done.err
    assert box.error().startswith("a reader waited for the run longer than max_wait")
    os.open(box.run / "stdout", os.O_RDONLY)


@provokes("BOX/run/", "stream", "EAGAIN")
@provokes("BOX/processes/ID/", "stream", "EAGAIN")
def _(t):
    busy(t.box)
    fd = os.open(t.box.run / "stream", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert os.read(fd, 100) == b"READY\n"
        expect_errno(errno.EAGAIN, os.read, fd, 100)
    finally:
        os.close(fd)
    fd = os.open(t.process("exec sleep 1000") / "stream", os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.read(fd, 1)
    finally:
        os.close(fd)


@provokes("BOX/processes/ID/", "exit", "EAGAIN")
@provokes("BOX/processes/ID/", "result.json", "EAGAIN")
def _(t):
    process = t.process("exec sleep 1000")
    expect_errno(errno.EAGAIN, os.open, process / "result.json", os.O_RDONLY | os.O_NONBLOCK)
    os.open(process / "exit", os.O_RDONLY | os.O_NONBLOCK)


@provokes("BOX/run/", "stdin", "EFBIG")
def _(t):
    truncated_at(t.box.run / "stdin", 64 << 20)


@provokes("BOX/run/", "SLOT/", "EINVAL")
def _(t):
    try:
        os.mkdir(t.box.run / "-no")
    finally:
        assert re.match("slot name '-no': up to 63 letters", t.box.error())


@provokes("BOX/run/", "SLOT/", "ENOSPC")
def _(t):
    for i in range(1025):
        os.mkdir(t.box.run / f"slot{i}")


@provokes("BOX/processes/", "NAME/", "EINVAL")
def _(t):
    for name in ("12", "-no", "a b"):
        expect_errno(errno.EINVAL, os.mkdir, t.box / "processes" / name)
        assert t.box.error().startswith(f"process name '{name}': letters")
    os.mkdir(t.box / "processes/.x")


@provokes("BOX/processes/", "NAME/", "ENOSPC")
def _(t):
    try:
        for i in range(257):
            os.mkdir(t.box / f"processes/p{i}")
    finally:
        assert t.box.error().startswith("256 processes in")
        (t.box / "processes/p7/command").write_text(":")
        os.mkdir(t.box / "processes/other")
        (t.box / "processes/new").write_text(":")


@provokes("BOX/processes/ID/", "command", "EBUSY")
def _(t):
    process = t.process("exec sleep 1000")
    try:
        (process / "command").write_text("echo again\n")
    finally:
        assert t.box.error() == "this process was started already: rmdir it, or make another\n"


@provokes("BOX/processes/ID/", "signal", "ESRCH")
def _(t):
    process = t.process(":")
    assert (process / "exit").read_text() == "0\n"

    def gone():
        try:
            (process / "signal").write_text("CONT\n")
        except ProcessLookupError as e:
            return e

    raise wait_for(gone, "nothing of it is left")


for section, names in TREE.items():
    for name, entry in names.items():
        for _, code, _ in entry.bad:
            PROVOKED.setdefault((section, name), {}).setdefault(errno.errorcode[code], None)


def test_every_error_of_the_documentation_is_provoked_here_and_no_other():
    found, errors = documented()
    told = {(s, n): codes for s, names in found.items() for n, (_, _, codes) in names.items() if codes}
    told.update({(s, ""): codes for s, codes in errors.items()})
    assert {w: sorted(c) for w, c in told.items()} == {w: sorted(c) for w, c in PROVOKED.items()}


@pytest.mark.bound(120)
@pytest.mark.parametrize(
    "code,function",
    [
        pytest.param(code, function, id=f"{section}{name}-{code}")
        for (section, name), codes in PROVOKED.items()
        for code, function in codes.items()
        if function
    ],
)
def test_the_documented_error_comes(mnt, box, fresh_mnt, tmp, code, function):
    mnt.allow("")
    expect_errno(getattr(errno, code), function, Trouble(box, fresh_mnt, tmp))
