# SPDX-License-Identifier: Apache-2.0
"""Links and names that code in a box plants for the host's tools: no outside byte is read or written, nothing hangs."""
import errno
import json
import os
import stat

import pytest
from helpers import ROOT, SCALE, expect_errno, finish, need, sh, spawn, wait_for

TOKEN = "outside-8c41e0"


@pytest.fixture
def outside(tmp):
    """A folder of the host with a secret, and a victim that must not change."""
    os.chmod(tmp, 0o755)
    (tmp / "secret").write_text(TOKEN)
    (tmp / "victim").write_text("unharmed")
    yield tmp
    assert (tmp / "victim").read_text() == "unharmed"
    assert sorted(os.listdir(tmp)) == ["secret", "victim"]


def plant(box, **links):
    """Code in the box makes symbolic links."""
    box.go(
        "import os\n"
        + "".join(
            f"os.makedirs(os.path.dirname({n!r}) or '.', exist_ok=True); os.symlink({t!r}, {n!r})\n"
            for n, t in links.items()
        )
    ).ok()


def up(path):
    return "../" * 30 + str(path).lstrip("/")


# what the box plants -> what the host sees. {o}: the folder outside
SHOWN = {
    "inside": ("f", "f"),
    "dangling": ("missing", "missing"),
    "deep inside": ("d/e/f", "d/e/f"),
    "absolute into the workspace": ("/workspace/d/f", "d/f"),
    "the workspace itself": ("/workspace", "."),
    "absolute": ("/etc/passwd", ".outside/etc/passwd"),
    "root": ("/", ".outside"),
    "one up": ("../x", ".outside/x"),
    "far up": ("../../../../etc/passwd", ".outside/etc/passwd"),
    "up after a name": ("d/../../x", ".outside/"),
    "proc self": ("/proc/self/root/etc/passwd", ".outside/proc/self/root/etc/passwd"),
    "dot dot": ("..", ".outside"),
    "absolute with dots": ("/workspace/../etc/passwd", ".outside/"),
}


@pytest.mark.parametrize("what", SHOWN)
def test_a_link_is_shown_so_that_it_stays_inside(box, what):
    target, shown = SHOWN[what]
    plant(box, l=target)
    got = os.readlink(box.ws / "l")
    if shown.startswith(".outside"):
        assert got == shown or (shown.endswith("/") and got.startswith(".outside")) or got.rstrip("/") == shown, got
        expect_errno(errno.ENOENT, os.stat, box.ws / "l")
        assert not (box.ws / ".outside").exists() and ".outside" not in os.listdir(box.ws)
    else:
        assert got == shown
    assert stat.S_ISLNK(os.lstat(box.ws / "l").st_mode)
    assert os.lstat(box.ws / "l").st_size == len(got), "git and tar read as many bytes as lstat says"


@pytest.mark.parametrize(
    "folder,target,shown",
    [
        ("d", "../f", "../f"),
        ("d/e", "../../f", "../../f"),
        ("d", "../../f", ".outside/f"),
        ("d/e", "/workspace/f", "../../f"),
        ("d", "../d/../f", None),
    ],
)
def test_a_link_in_a_folder_may_go_up_as_far_as_the_workspace(box, folder, target, shown):
    (box.ws / "f").write_text("inside")
    (box.ws / "d/e").mkdir(parents=True)
    plant(box, **{folder + "/l": target})
    got = os.readlink(box.ws / folder / "l")
    if shown is None:
        assert got.startswith(".outside") or (box.ws / folder / "l").read_text() == "inside"
    elif shown.startswith(".outside"):
        assert got == shown
        expect_errno(errno.ENOENT, os.stat, box.ws / folder / "l")
    else:
        assert got == shown and (box.ws / folder / "l").read_text() == "inside"


def test_no_link_leads_to_the_hosts_files(box, outside):
    plant(
        box,
        absolute=str(outside / "secret"),
        relative=up(outside / "secret"),
        folder=str(outside),
        **{"chain/a": "b", "chain/b": "c", "chain/c": str(outside), "up": up(outside)},
    )
    for path in ("absolute", "relative", "folder/secret", "chain/a/secret", "up/secret"):
        expect_errno(errno.ENOENT, (box.ws / path).read_text)
        for flags in (os.O_WRONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
            try:
                os.close(os.open(box.ws / path.replace("secret", "victim"), flags))
            except OSError as e:
                assert e.errno in (errno.ENOENT, errno.EPERM, errno.EACCES), e
    for path in ("folder/new", "chain/a/new", "up/new"):
        expect_errno(errno.ENOENT, os.mkdir, box.ws / path)


WALKERS = {
    "cat": "cat $W/* $W/*/* $W/*/*/*",
    "cp -rL": "cp -rL $W $T/copy; cat $T/copy/* $T/copy/*/*",
    "cp -a": "cp -a $W $T/copy; find -L $T/copy -type f -exec cat {} +",
    "tar": "tar -C $W -cf - . | tar -xO",
    "tar -h": "tar -C $W -chf - . | tar -xO",
    "find -L": "find -L $W -type f -exec cat {} +",
    "rsync -a": "rsync -a $W/ $T/copy/; find -L $T/copy -type f -exec cat {} +",
    "rsync -aL": "rsync -aL $W/ $T/copy/; find $T/copy -type f -exec cat {} +",
    "grep -R": "grep -R . $W",
    "zip-like python": "python3 -c 'import os, sys\nfor d, _, fs in os.walk(sys.argv[1], followlinks=False):\n for f in fs:\n  try: print(open(os.path.join(d, f), errors=\"replace\").read())\n  except OSError: pass' $W",
    "git add": "cd $T && git init -q . && git --work-tree=$W add -A; git --work-tree=$W diff --cached",
    "du and ls": "du -aL $W; ls -lRL $W",
    "less and head": "head -n3 $W/*",
}


@pytest.mark.parametrize("walker", WALKERS)
def test_no_walker_reads_or_writes_outside(box, outside, tmp_path, walker):
    need(walker.split()[0] if walker.split()[0] in ("rsync", "git") else "sh")
    (box.ws / "d").mkdir()
    (box.ws / "inside").write_text("inside-text")
    plant(
        box,
        a=str(outside / "secret"),
        b=up(outside / "secret"),
        f=str(outside),
        m=up(outside),
        loop="loop",
        **{
            "d/x": str(outside / "secret"),
            "d/y": "../f/secret",
            "p": "/proc/self/environ",
            "q": "/proc/self/root",
            "r": "/dev/zero",
            "s": "/dev/tty",
        },
    )
    done = sh(
        WALKERS[walker], env={**os.environ, "W": str(box.ws), "T": str(tmp_path), "GIT_CONFIG_GLOBAL": "/dev/null"}
    )
    assert TOKEN.encode() not in done.out + done.err
    assert b"inside-text" in done.out or walker == "du and ls"


def test_links_made_from_the_host_follow_the_same_rule(box, outside):
    (box.ws / "f").write_text("inside")
    os.symlink("f", box.ws / "good")
    assert (box.ws / "good").read_text() == "inside"
    try:
        os.symlink(outside / "secret", box.ws / "bad")
    except OSError as e:
        assert e.errno == errno.EPERM
    else:
        expect_errno(errno.ENOENT, (box.ws / "bad").read_text)


def test_with_links_eperm_outside_links_are_refused(fresh_mnt, outside):
    m = fresh_mnt(options=["links=eperm"])
    m.allow("EPERM", "outside", "link")
    box = m.box()
    plant(box, bad=str(outside / "secret"), good="f")
    (box.ws / "f").write_text("inside")
    expect_errno(errno.EPERM, os.readlink, box.ws / "bad")
    expect_errno(errno.EPERM, os.stat, box.ws / "bad")
    assert (box.ws / "good").read_text() == "inside"
    assert "bad" in os.listdir(box.ws)
    os.unlink(box.ws / "bad")


def test_a_python_venv_can_be_made_copied_and_removed(box, tmp):
    box.go("python3 -m venv --without-pip v && ls -l v/bin", "code.sh").ok()
    for script in (f"cp -a {box.ws}/v {tmp}/copy", f"tar -C {box.ws} -cf {tmp}/v.tar v", f"rm -rf {box.ws}/v"):
        sh(script).ok()


def test_hard_links_in_the_workspace_are_one_file(box):
    box.go("open('a', 'w').write('x'); import os; os.link('a', 'b')").ok()
    a, b = os.stat(box.ws / "a"), os.stat(box.ws / "b")
    assert (a.st_ino, a.st_nlink) == (b.st_ino, 2)
    (box.ws / "a").write_text("changed")
    assert (box.ws / "b").read_text() == "changed"
    expect_errno((errno.EXDEV, errno.EPERM), os.link, box.ws / "a", box.run / "code.rb")
    os.unlink(box.ws / "a")
    assert os.stat(box.ws / "b").st_nlink == 1


@pytest.mark.parametrize("kind", ["fifo", "socket"])
def test_a_special_file_is_shown_but_opening_it_is_refused_and_never_waits(box, kind):
    box.go(
        {"fifo": "import os; os.mkfifo('s')", "socket": "import socket; socket.socket(socket.AF_UNIX).bind('s')"}[kind]
    ).ok()
    mode = os.lstat(box.ws / "s").st_mode
    # The host must not block in open() nor talk to a server in the box through it; what it sees is a file of that kind or,
    # where the kernel itself would open it (a FIFO is opened without asking the file system), one that cannot be opened.
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        done = sh(["/usr/bin/python3", "-c", f"import os; os.open({str(box.ws / 's')!r}, {flags})"], seconds=10)
        assert done.rc == 1 and b"OSError" in done.err or b"Error" in done.err, (oct(mode), done.err)
    assert sh(["cat", box.ws / "s"], seconds=10).rc == 1
    sh(["tar", "-C", box.ws, "-cf", "/dev/null", "."], seconds=10)
    sh(["cp", "-a", box.ws, "/dev/null/x"], seconds=10)
    os.unlink(box.ws / "s")


def test_devices_cannot_be_made_by_the_box_nor_by_the_host(box):
    assert (
        box.go(
            "import os, stat\ntry: os.mknod('d', stat.S_IFCHR | 0o666, os.makedev(1, 5)); print('made')\nexcept OSError as e: print(e.errno)"
        ).text
        == f"{errno.EPERM}\n"
    )
    if ROOT:
        expect_errno(errno.EPERM, os.mknod, box.ws / "d", stat.S_IFCHR | 0o666, os.makedev(1, 5))


NAMES = [
    b"a\nb",
    b"\xff\xfe",
    "ü€😀".encode(),
    b"x" * 255,
    b" ",
    b"-rf",
    b"a\\b",
    b'"',
    b"*",
    b"...",
    b"\x01\x7f",
    b".outside.",
    b"a\tb",
    b"$(x)",
]


@pytest.mark.parametrize("name", NAMES, ids=lambda n: repr(n[:12])[2:-1])
def test_a_name_works_in_both_directions(box, name):
    base = os.fsencode(box.ws)
    assert box.go(
        f"import os; os.mkdir({name!r}); open(os.path.join({name!r}, b'f'), 'w').write('from inside'); print(1)"
    ).ok()
    assert name in os.listdir(base)
    with open(os.path.join(base, name, b"f")) as f:
        assert f.read() == "from inside"
    os.rename(os.path.join(base, name, b"f"), os.path.join(base, name, name))
    with open(os.path.join(base, name, name), "w") as f:
        f.write("from the host")
    assert box.go(f"import os; print(open(os.path.join({name!r}, {name!r})).read())").text == "from the host\n"
    sh(["rm", "-rf", os.path.join(base, name).decode("utf-8", "surrogateescape")]).ok()


def test_a_name_of_256_bytes_is_too_long(box):
    expect_errno(errno.ENAMETOOLONG, os.mkdir, box.ws / ("x" * 256))


def test_a_file_named_outside_in_the_workspace_does_not_give_links_a_target(box, outside):
    """`.outside` never exists: a box that makes one must not turn harmless links into working ones."""
    box.go(
        "import os; os.makedirs('.outside/etc'); open('.outside/etc/passwd', 'w').write('forged'); os.symlink('/etc/passwd', 'l')"
    ).ok()
    expect_errno(errno.ENOENT, os.stat, box.ws / "l")
    expect_errno(errno.ENOENT, os.stat, box.ws / ".outside")
    assert ".outside" not in os.listdir(box.ws)


def test_what_the_last_mount_has_not_deleted_yet_is_in_no_new_ones_way(fresh_mnt):
    m = fresh_mnt()
    box = m.box()
    box.go("import os; os.makedirs('d/.outside/a')").ok()
    number = json.loads((m.state / "boxes" / box.name / "box.json").read_text())["id"]
    for n in range(3):  # a new daemon counts from 0 again
        (m.state / f"trash/discarded-{number}-{n}").mkdir()
    os.rmdir(box.ws / "d")
    assert os.listdir(box.ws) == []


@pytest.mark.parametrize("made", ["folder", "file", "link"])
def test_a_folder_that_is_empty_for_the_host_can_be_removed_whatever_the_box_hides_in_it(mnt, box, made):
    make = {
        "folder": "os.makedirs('d/.outside/a/b'); open('d/.outside/a/record', 'w').write('forged'); os.chmod('d/.outside/a', 0)",
        "file": "open('d/.outside', 'w').write('x')",
        "link": "os.symlink('/etc', 'd/.outside')",
    }[made]
    box.go(f"import os; os.makedirs('d/e'); open('d/f', 'w').write('x'); {make}").ok()
    assert sorted(os.listdir(box.ws / "d")) == ["e", "f"]
    expect_errno(errno.ENOTEMPTY, os.rmdir, box.ws / "d")
    assert box.go("import os; print(os.path.lexists('d/.outside'))").text == "True\n", "it goes with its folder only"
    done = sh(["rm", "-rf", box.ws / "d"])
    assert (done.rc, done.err) == (0, b"")
    assert os.listdir(box.ws) == [] and box.go("import os; print(os.listdir())").text == "[]\n"
    if sh(["find", mnt.state, "-name", "discarded-*"]).text:
        wait_for(lambda: not sh(["find", mnt.state, "-name", "discarded-*"]).text, "deleted behind")


def test_a_very_deep_tree_can_be_walked_and_deleted(mnt):
    box = mnt.box()
    box.go(
        "import os\nfor i in range(400):\n    os.mkdir('d' * 20); os.chdir('d' * 20)\nopen('bottom', 'w').write('x')"
    ).ok()
    assert sh(["find", box.ws, "-name", "bottom"]).text.count("bottom") == 1
    sh(["rm", "-rf", box.path]).ok()
    assert not box.path.exists()


# ---- the attack ----

SWAPPER = """import ctypes, os, sys, time
libc = ctypes.CDLL(None)
def swap(a, b):
    libc.renameat2(-100, a.encode(), -100, b.encode(), 2)
outside, far, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
for w in range(4):
    base = f'w{w}'
    os.makedirs(f'{base}/dir/sub')
    for n in ('secret', 'victim'):
        open(f'{base}/dir/{n}', 'w').write('inside')
        open(f'{base}/dir/sub/{n}', 'w').write('inside')
        open(f'{base}/{n}', 'w').write('inside')
        os.symlink((outside, far)[w % 2] + '/' + n, f'{base}/link-{n}')
    os.symlink((outside, far)[w % 2], f'{base}/evil')
    os.mkdir(f'{base}/parking')
open('READY', 'w').close()
end = time.monotonic() + seconds
pids = []
for w in range(4):
    pid = os.fork()
    if pid == 0:
        os.chdir(f'w{w}')
        while time.monotonic() < end:
            swap('dir', 'evil')
            swap('secret', 'link-secret')
            swap('victim', 'link-victim')
            try: os.rename('dir/sub', 'parking/sub')
            except OSError: pass
            swap('evil', 'dir')
            try: os.rename('parking/sub', 'dir/sub')
            except OSError: pass
            swap('link-secret', 'secret')
        os._exit(0)
    pids.append(pid)
for pid in pids: os.waitpid(pid, 0)
print('swapped')
"""

ATTACKED = {
    "cat": "cat $W/w*/secret $W/w*/dir/secret $W/w*/dir/sub/secret $W/w*/evil/secret",
    "cp -r": "rm -rf $T/c1; cp -r $W $T/c1; grep -r . $T/c1",
    "cp -rL": "rm -rf $T/c2; cp -rL $W $T/c2; grep -r . $T/c2",
    "tar": "tar -C $W -chf - . | tar -xO",
    "find -L": "find -L $W -type f -exec cat {} +",
    "writes": "for i in 0 1 2 3; do echo overwritten > $W/w$i/victim; echo overwritten > $W/w$i/dir/victim; echo x > $W/w$i/dir/new; rm -f $W/w$i/dir/new; "
    "cp /etc/hostname $W/w$i/evil/victim; mkdir $W/w$i/dir/newdir; rmdir $W/w$i/dir/newdir; truncate -s 0 $W/w$i/dir/sub/victim; done",
    "moves": "for i in 0 1 2 3; do touch $W/m$i; mv $W/m$i $W/w$i/dir/m; mv $W/w$i/dir/m $W/m$i; ln $W/m$i $W/w$i/dir/hard; rm -f $W/m$i $W/w$i/dir/m $W/w$i/dir/hard; chmod 777 $W/w$i/dir/victim; done",
}


@pytest.mark.bound(60 * max(SCALE, 0.05) + 120)
def test_a_box_that_swaps_links_and_folders_gets_no_outside_byte_read_or_written(box, outside, tmp_path):
    seconds = max(3.0, 60 * SCALE)
    mode = os.stat(outside / "victim").st_mode
    (box.run / "attack").mkdir()
    (box.run / "attack/args").write_text(f"{outside}\n{up(outside)}\n{seconds}\n")
    (box.run / "attack/timeout").write_text("max\n")
    box.save(SWAPPER, slot="attack")
    wait_for(lambda: (box.ws / "READY").exists(), "the attack has begun")
    env = {**os.environ, "W": str(box.ws), "T": str(tmp_path)}
    rounds = dict.fromkeys(ATTACKED, 0)
    running = {}
    while box.status("attack") == "running":
        for name, script in ATTACKED.items():
            if name not in running:
                running[name] = spawn(f"{{ {script}; }} 2>&1 | grep -c {TOKEN}", env=env)
        for name, proc in list(running.items()):
            if proc.poll() is not None:
                done = finish(running.pop(name))
                assert done.text.strip() == "0", f"{name} read an outside byte"
                rounds[name] += 1
        wait_for(
            lambda: any(p.poll() is not None for p in running.values()) or box.status("attack") != "running",
            "a walker ends",
            60,
        )
    for name, proc in running.items():
        assert finish(proc, 60).text.strip() == "0", f"{name} read an outside byte"
        rounds[name] += 1
    assert (box.run / "attack/stdout").read_text() == "swapped\n"
    assert min(rounds.values()) >= 1, rounds
    assert (outside / "victim").read_text() == "unharmed" and os.stat(outside / "victim").st_mode == mode
    assert os.stat(outside / "victim").st_nlink == 1
