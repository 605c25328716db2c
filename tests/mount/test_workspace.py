# SPDX-License-Identifier: Apache-2.0
"""workspace/ is a real file tree: what programs do to files works, and both sides see the same."""
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import zlib

import pytest
from helpers import ROOT, expect_errno, need, scaled, sh

LIBC = ctypes.CDLL(None, use_errno=True)
NOREPLACE, EXCHANGE = 1, 2


def renameat2(old, new, flags):
    if LIBC.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags) < 0:
        raise OSError(ctypes.get_errno(), "renameat2", old)


def inside(box, code):
    """Runs code in the box; its output, without the newline."""
    return box.go(code).ok().text.rstrip("\n")


# ---- bytes ----


def test_what_is_written_on_one_side_is_read_on_the_other(box):
    data = os.urandom(3_000_001)
    (box.ws / "f").write_bytes(data)
    assert inside(box, "import zlib; print(zlib.crc32(open('f','rb').read()))") == str(zlib.crc32(data))
    inside(box, "f = open('f', 'r+b'); f.seek(1_000_000); f.write(b'from inside'); f.close()")
    assert (box.ws / "f").read_bytes() == data[:1_000_000] + b"from inside" + data[1_000_011:]


@pytest.mark.parametrize("seconds", [0, 2.3])
def test_a_change_of_the_same_length_is_seen_at_the_next_open(box, seconds):
    """Also when the kernel may keep pages over an open: the file was old enough when they were read."""
    (box.ws / "f").write_text("aaaa")
    time.sleep(seconds)
    assert (box.ws / "f").read_text() == "aaaa"
    for text in ("bbbb", "cccc", "dddd"):
        inside(box, f"f = open('f', 'r+'); f.write('{text}'); f.close()")
        assert (box.ws / "f").read_text() == text


def test_a_change_with_the_old_mtime_put_back_is_seen(box):
    (box.ws / "f").write_text("aaaa")
    os.utime(box.ws / "f", (1000, 1000))
    assert (box.ws / "f").read_text() == "aaaa"
    assert (box.ws / "f").read_text() == "aaaa"
    inside(box, "import os; f = open('f', 'r+'); f.write('bbbb'); f.close(); os.utime('f', (1000, 1000))")
    assert (box.ws / "f").read_text() == "bbbb"


def test_attributes_are_never_old(box):
    for n in range(5):
        inside(box, f"open('f', 'w').write('x' * {n * 100}); import os; os.chmod('f', {0o600 + n})")
        st = os.stat(box.ws / "f")
        assert (st.st_size, stat.S_IMODE(st.st_mode)) == (n * 100, 0o600 + n)
    inside(box, "import os; os.unlink('f')")
    assert not (box.ws / "f").exists()


def test_appends_of_many_writers_on_both_sides_are_whole_lines(box):
    n = scaled(300)
    box.save(f"for i in range({n}): open('log', 'a').write('inside %06d\\n' % i)")

    def host(k):
        for i in range(n):
            with open(box.ws / "log", "a") as f:
                f.write(f"host{k}  {i:06d}\n")

    threads = [threading.Thread(target=host, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert box.exit() == 0
    lines = (box.ws / "log").read_text().splitlines()
    assert len(lines) == len(set(lines)) == 5 * n and {len(x) for x in lines} == {13}


def test_truncate_by_path_by_handle_and_at_open(box):
    f = box.ws / "f"
    f.write_text("x" * 100)
    os.truncate(f, 10)
    assert os.stat(f).st_size == 10
    with open(f, "r+b") as h:
        h.truncate(5)
        assert os.fstat(h.fileno()).st_size == 5
        h.truncate(20)
        assert h.read() == b"x" * 5 + b"\0" * 15
    open(f, "w").close()
    assert inside(box, "import os; print(os.stat('f').st_size)") == "0"


def test_an_unlinked_open_file_lives_on(box):
    fd = os.open(box.ws / "f", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(fd, b"abcdef")
    os.unlink(box.ws / "f")
    os.ftruncate(fd, 3)
    os.fchmod(fd, 0o600)
    os.utime(fd, (5, 6))
    st = os.fstat(fd)
    assert (st.st_size, stat.S_IMODE(st.st_mode), st.st_mtime, st.st_nlink) == (3, 0o600, 6, 0)
    assert os.pread(fd, 10, 0) == b"abc"
    # removed by the box while the host has it open
    (box.ws / "g").write_text("still here")
    with open(box.ws / "g") as g:
        inside(box, "import os; os.unlink('g')")
        assert os.fstat(g.fileno()).st_size == 10 and g.read() == "still here"
    os.close(fd)


def test_mmap_shared_and_private(box):
    with open(box.ws / "m", "w+b") as f:
        f.truncate(3 * mmap.PAGESIZE)
        with mmap.mmap(f.fileno(), 0) as m:
            m[5000:5005] = b"hello"
            m.flush()
            assert inside(box, "print(open('m', 'rb').read()[5000:5005].decode())") == "hello"
            m[1:2] = b"x"
    assert (box.ws / "m").read_bytes()[1:2] == b"x"
    assert inside(box, "print(open('m', 'rb').read()[1:2].decode())") == "x"
    with open(box.ws / "m", "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE) as m:
        assert m[5000:5005] == b"hello"


def test_o_direct(box):
    buf = mmap.mmap(-1, 65536)
    buf[:] = b"d" * 65536
    fd = os.open(box.ws / "d", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    try:
        assert os.pwrite(fd, buf, 0) == 65536
        got = mmap.mmap(-1, 65536)
        assert os.preadv(fd, [got], 0) == 65536 and got[:] == buf[:]
    finally:
        os.close(fd)


def test_holes_fallocate_and_copy_file_range(box):
    fd = os.open(box.ws / "h", os.O_RDWR | os.O_CREAT)
    other = os.open(box.ws / "c", os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(fd, 1 << 20)
        os.pwrite(fd, b"data", 1 << 19)
        assert os.lseek(fd, 0, os.SEEK_DATA) == 1 << 19
        assert os.lseek(fd, 1 << 19, os.SEEK_HOLE) > 1 << 19
        expect_errno(errno.ENXIO, os.lseek, fd, 1 << 20, os.SEEK_DATA)
        os.posix_fallocate(fd, 1 << 20, 1 << 20)
        assert os.fstat(fd).st_size == 2 << 20 and os.fstat(fd).st_blocks >= 2048
        assert LIBC.fallocate(fd, 3, ctypes.c_long(1 << 20), ctypes.c_long(1 << 20)) == 0  # punch a hole
        assert os.fstat(fd).st_blocks < 2048
        done = 0
        while done < 1 << 20:
            done += os.copy_file_range(fd, other, (1 << 20) - done, done, done)
        assert os.pread(other, 4, 1 << 19) == b"data"
    finally:
        os.close(fd)
        os.close(other)


def test_statfs_tells_about_the_disk(box):
    s = os.statvfs(box.ws)
    assert s.f_blocks > 0 and 0 < s.f_bavail <= s.f_blocks and s.f_namemax == 255


# ---- names ----


def test_create_exclusively(box):
    os.close(os.open(box.ws / "x", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    expect_errno(errno.EEXIST, os.open, box.ws / "x", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    inside(box, "open('y', 'w').write('box')")
    expect_errno(errno.EEXIST, os.open, box.ws / "y", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    with open(box.ws / "y", "a") as f:
        f.write("+host")
    assert (box.ws / "y").read_text() == "box+host"


def test_all_kinds_of_rename(box):
    ws = box.ws
    (ws / "a").write_text("a")
    (ws / "b").write_text("b")
    expect_errno(errno.EEXIST, renameat2, ws / "a", ws / "b", NOREPLACE)
    renameat2(ws / "a", ws / "b", EXCHANGE)
    assert ((ws / "a").read_text(), (ws / "b").read_text()) == ("b", "a")
    os.rename(ws / "a", ws / "b")
    assert (ws / "b").read_text() == "b" and not (ws / "a").exists()
    (ws / "d/e").mkdir(parents=True)
    (ws / "d/e/f").write_text("deep")
    os.rename(ws / "d", ws / "d2")
    assert (ws / "d2/e/f").read_text() == "deep"
    os.rename(ws / "d2/e", ws / "e")
    assert (ws / "e/f").read_text() == "deep"
    renameat2(ws / "e", ws / "b", EXCHANGE)
    assert (ws / "b/f").read_text() == "deep" and (ws / "e").read_text() == "b"
    (ws / "full").mkdir()
    (ws / "full/x").touch()
    expect_errno((errno.ENOTEMPTY, errno.EEXIST), os.rename, ws / "b", ws / "full")
    expect_errno(errno.EINVAL, os.rename, ws / "b", ws / "b/below")


def test_a_working_folder_survives_renames_on_the_host(box):
    (box.ws / "a/b").mkdir(parents=True)
    (box.ws / "c").mkdir()
    script = "cd a/b && mv ../../a ../../c/ && pwd -P && echo x > f && cat ../../../c/a/b/f"
    assert sh(["sh", "-c", f"cd {box.ws}; {script}"]).ok().text.splitlines()[-1] == "x"


def test_a_folder_that_the_box_moves_under_a_working_folder(box):
    (box.ws / "a/b/c").mkdir(parents=True)
    fd = os.open(box.ws / "a/b/c", os.O_RDONLY)
    try:
        inside(box, "import os; os.rename('a/b/c', 'c'); os.symlink('../../../../../../etc/passwd', 'c/l'); open('c/f', 'w').write('x')")
        # the descriptor goes on; what it holds is judged by where it was
        with open(os.open("f", os.O_RDONLY, dir_fd=fd)) as f:
            assert f.read() == "x"
        assert os.readlink("l", dir_fd=fd).startswith(".outside")
        expect_errno(errno.ENOENT, os.open, box.ws / "a/b/c", os.O_RDONLY)
        assert os.readlink(box.ws / "c/l").startswith(".outside")
    finally:
        os.close(fd)


def test_no_rename_or_link_leaves_the_workspace(mnt, box):
    other = mnt.box()
    (box.ws / "f").write_text("x")
    for to in (other.ws / "f", box.run / "f", box.path / "f"):
        expect_errno((errno.EXDEV, errno.EPERM), os.rename, box.ws / "f", to)
        expect_errno((errno.EXDEV, errno.EPERM), os.link, box.ws / "f", to)
    expect_errno((errno.EXDEV, errno.EPERM), os.rename, box.run / "args", box.ws / "args")
    shutil.move(box.ws / "f", other.ws / "f")  # copies, as between file systems
    assert (other.ws / "f").read_text() == "x"
    other.delete()


def test_unlink_rmdir_and_their_errors(box):
    (box.ws / "d").mkdir()
    (box.ws / "d/f").touch()
    expect_errno((errno.ENOTEMPTY, errno.EEXIST), os.rmdir, box.ws / "d")
    expect_errno(errno.EISDIR, os.unlink, box.ws / "d")
    expect_errno(errno.ENOTDIR, os.rmdir, box.ws / "d/f")
    expect_errno(errno.ENOENT, os.unlink, box.ws / "none")
    os.unlink(box.ws / "d/f")
    os.rmdir(box.ws / "d")


def test_hard_links_share_everything(box):
    (box.ws / "a").write_text("one")
    os.link(box.ws / "a", box.ws / "b")
    with open(box.ws / "a", "r+") as a, open(box.ws / "b") as b:
        a.write("two")
        a.flush()
        assert b.read() == "two", "one page cache"
        fcntl.flock(a, fcntl.LOCK_EX)
        expect_errno(errno.EAGAIN, fcntl.flock, b, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.unlink(box.ws / "a")
    assert (box.ws / "b").read_text() == "two" and os.stat(box.ws / "b").st_nlink == 1


def test_a_listing_is_complete_while_its_entries_go(box):
    n = scaled(3000)
    inside(box, f"for i in range({n}): open('f%d' % i, 'w').close()")
    assert len(os.listdir(box.ws)) == n
    assert {e.name for e in os.scandir(box.ws) if e.is_file() and e.stat().st_size == 0} == {f"f{i}" for i in range(n)}
    for e in os.scandir(box.ws):
        os.unlink(e.path)
    assert os.listdir(box.ws) == []


# ---- attributes ----


def test_modes_and_times(box):
    f = box.ws / "f"
    f.touch()
    os.chmod(f, 0o741)
    os.utime(f, ns=(1_234_567_890_123_456_789, 987_654_321_987_654_321))
    st = os.stat(f)
    assert stat.S_IMODE(st.st_mode) == 0o741
    assert (st.st_atime_ns, st.st_mtime_ns) == (1_234_567_890_123_456_789, 987_654_321_987_654_321)
    assert inside(box, "import os; s = os.stat('f'); print(oct(s.st_mode), s.st_mtime_ns)") == "0o100741 987654321987654321"
    os.symlink("f", box.ws / "l")
    os.utime(box.ws / "l", (7, 8), follow_symlinks=False)
    assert os.lstat(box.ws / "l").st_mtime == 8 and os.stat(f).st_mtime_ns == 987_654_321_987_654_321


def test_set_user_id_is_taken_off(box):
    (box.ws / "f").touch()
    os.chmod(box.ws / "f", 0o6755)
    assert stat.S_IMODE(os.stat(box.ws / "f").st_mode) == 0o755


def test_the_host_sees_its_own_user_and_the_box_its_own(box):
    (box.ws / "f").touch()
    (box.ws / "d").mkdir()
    os.symlink("f", box.ws / "l")
    inside(box, "open('g', 'w').close()")
    for name in "fdlg":
        st = os.lstat(box.ws / name)
        assert (st.st_uid, st.st_gid) == (os.geteuid(), os.getegid())
    assert inside(box, "import os; print({(os.lstat(n).st_uid == os.getuid()) for n in os.listdir()})") == "{True}"
    inside(box, "import os; open('f', 'w').write('mine'); os.chmod('f', 0o600); os.rmdir('d'); os.unlink('l')")
    os.chown(box.ws / "f", os.geteuid(), os.getegid())
    if ROOT:
        expect_errno(errno.EPERM, os.chown, box.ws / "f", 1, 1)
        assert "owned by" in box.error()


def test_no_extended_attributes(box):
    (box.ws / "f").touch()
    expect_errno((errno.EOPNOTSUPP, errno.ENOSYS), os.setxattr, box.ws / "f", "user.x", b"1")


def test_a_deleted_box_leaves_stale_handles_and_its_name_free(mnt):
    box = mnt.box()
    (box.ws / "f").write_text("old")
    fd = os.open(box.ws / "f", os.O_RDWR)
    folder = os.open(box.ws, os.O_RDONLY)
    box.delete()
    mnt.allow("was deleted")
    try:
        expect_errno(errno.ESTALE, os.pread, fd, 10, 0)
        expect_errno(errno.ESTALE, os.pwrite, fd, b"x", 0)
        expect_errno((errno.ESTALE, errno.ENOENT), os.open, "f", os.O_RDONLY, dir_fd=folder)
        os.mkdir(box.path)
        assert os.listdir(box.ws) == []
        expect_errno(errno.ESTALE, os.pread, fd, 10, 0)
    finally:
        os.close(fd)
        os.close(folder)
        if box.path.exists():
            os.rmdir(box.path)


# ---- tools ----


@pytest.fixture
def sources(tmp_path):
    """A small tree with what trees have."""
    top = tmp_path / "src"
    for d in range(5):
        (top / f"d{d}/sub").mkdir(parents=True)
        for f in range(8):
            (top / f"d{d}/sub/f{f}.c").write_text(f"int f{f}(void) {{ return {d}; }}\n" * (f * 40 + 1))
    os.symlink("d0/sub/f0.c", top / "link")
    os.symlink("../d1", top / "d0/up")
    os.link(top / "d1/sub/f1.c", top / "hard")
    os.chmod(top / "d2/sub/f2.c", 0o755)
    os.utime(top / "d3/sub/f3.c", (1_000_000_000, 1_000_000_000))
    return top


COPIES = {
    "cp": "cp -a $S $W/copy && cp -a $W/copy $T/back",
    "rsync": "rsync -aH $S/ $W/copy/ && rsync -aH $W/copy/ $T/back/ && test -z \"$(rsync -aHin $S/ $W/copy/)\"",
    "tar": "mkdir $W/copy $T/back && tar -C $S -cf - . | tar -C $W/copy -xf - && tar -C $W/copy -cf - . | tar -C $T/back -xf -",
    "busybox": "busybox cp -a $S $W/copy && busybox cp -a $W/copy $T/back",
}


@pytest.mark.parametrize("tool", COPIES)
def test_a_tree_goes_in_and_comes_out_unchanged(box, sources, tmp_path, tool):
    need(tool)
    env = {**os.environ, "S": str(sources), "W": str(box.ws), "T": str(tmp_path)}
    sh(COPIES[tool], env=env).ok()
    sh("diff -r --no-dereference $S $T/back && diff -r --no-dereference $S $W/copy", env=env).ok()
    for path in ("d2/sub/f2.c", "d3/sub/f3.c"):
        a, b = os.stat(sources / path), os.stat(tmp_path / "back" / path)
        assert (a.st_mode, int(a.st_mtime)) == (b.st_mode, int(b.st_mtime))
    sh("rm -rf $W/copy", env=env).ok()


def test_git_works_in_a_workspace(box, sources):
    need("git")
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "W": str(box.ws), "S": str(sources)}
    sh(
        """set -e; cd $W; cp -a $S src; cd src; git init -q .; git add -A
        git -c user.email=a@b -c user.name=x commit -qm one; test -z "$(git status --porcelain)"
        echo change >> d0/sub/f0.c; test "$(git status --porcelain | wc -l)" = 1
        git stash -q 2>/dev/null || git checkout -q .; git gc -q; git fsck; git clone -q . ../clone; diff -r d1 ../clone/d1""",
        env={**env, "GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "a@b"},
    ).ok()


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_sqlite_works_in_a_workspace(box, journal):
    c = sqlite3.connect(box.ws / "x.db")
    c.execute(f"pragma journal_mode={journal}")
    c.execute("create table t(a)")
    for i in range(100):
        with c:
            c.execute("insert into t values(?)", (i,))
    c.close()
    assert inside(box, "import sqlite3; print(sqlite3.connect('x.db').execute('select sum(a) from t').fetchone()[0])") == "4950"


def test_parallel_random_work_on_both_sides_keeps_the_daemon_well(box):
    work = """if 1:
        import os, random, sys, time
        random.seed(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
        names = 'abcdef'
        end = time.time() + 3
        def path(): return '/'.join(random.choice(names) for _ in range(random.randint(1, 3)))
        def write(p):
            with open(p, 'a') as f: f.write('x' * random.randint(0, 5000))
        ops = [lambda: os.mkdir(path()), lambda: write(path()), lambda: os.rename(path(), path()), lambda: os.unlink(path()),
               lambda: os.rmdir(path()), lambda: os.link(path(), path()), lambda: os.symlink(path(), path()),
               lambda: open(path()).read(), lambda: os.listdir(path()), lambda: os.truncate(path(), 10), lambda: os.chmod(path(), 0o755)]
        while time.time() < end:
            try: random.choice(ops)()
            except OSError: pass
        """
    box.save(work)
    hosts = [subprocess.Popen([sys.executable, "-c", work, str(k)], cwd=box.ws) for k in range(2, 5)]
    assert [h.wait(60) for h in hosts] == [0, 0, 0]
    assert box.exit() == 0
    # both sides agree on what there is now
    want = inside(box, "import os\nfor d, ds, fs in os.walk('.'):\n ds.sort()\n for n in sorted(ds + fs): print(os.path.join(d, n), os.lstat(os.path.join(d, n)).st_ino)")
    got = []
    for d, ds, fs in os.walk(box.ws):
        ds.sort()
        rel = os.path.relpath(d, box.ws)
        got += [f"{'.' if rel == '.' else './' + rel}/{n} {os.lstat(os.path.join(d, n)).st_ino}" for n in sorted(ds + fs)]
    assert "\n".join(got) == want
