# SPDX-License-Identifier: Apache-2.0
"""Whatever tool saves the code: one save is one run, of the right bytes."""
import ctypes
import errno
import os
import signal

import pytest
from helpers import count, counted, expect_errno, finish, kill, need, sh, spawn, started, terminal, wait_for

OLD, NEW = counted("old"), counted("new")
PYTHON = "/usr/bin/python3"

# Scripts for bash. $F run/code.py  $RUN run/  $CODE the new code without its newline  $SRC a file with the new code on
# another file system  $T a folder there. "old" tools change an old text (they are given $F with OLD, which ran before).
FRESH = {
    "bash echo": 'echo "$CODE" > $F',
    "bash printf": """printf '%s\\n' "$CODE" > $F""",
    "bash heredoc": 'cat <<EOF > $F\n$CODE\nEOF\n',
    "bash group": 'set -- ${CODE%;*} ${CODE#*;}; { echo "$1"; /bin/echo "$2"; } > $F',
    "bash subshell": 'set -- ${CODE%;*} ${CODE#*;}; (echo "$1"; /bin/echo "$2") > $F',
    "bash exec 3>, two echoes and a child": 'set -- ${CODE%;*} ${CODE#*;}; exec 3> $F; echo "$1" >&3; /bin/true; echo "$2" >&3; exec 3>&-',
    "bash set -C (O_EXCL)": 'set -C; echo "$CODE" > $F',
    "dash echo": """dash -c 'printf "%s\\n" "$CODE" > $F'""",
    "busybox sh": """busybox sh -c 'echo "$CODE" > $F'""",
    "busybox cp": "busybox cp $SRC $F",
    "busybox tee": "busybox tee $F < $SRC",
    "tee": "tee $F < $SRC",
    "cat": "cat $SRC > $F",
    "cp": "cp $SRC $F",
    "cp -p": "cp -p $SRC $F",
    "cp --reflink=auto": "cp --reflink=auto $SRC $F",
    "mv from another file system": "mv $SRC $F",
    "mv within run/": "cp $SRC $RUN/tmp.1 && mv $RUN/tmp.1 $F",
    "install": "install -m 600 $SRC $F",
    "sort -o": "sort -o $F $SRC",
    "rsync": "touch -d '+1 minute' $SRC; rsync $SRC $F",
    "rsync --inplace": "touch -d '+1 minute' $SRC; rsync --inplace $SRC $F",
    "rsync -a": "mkdir $T/d && mv $SRC $T/d/code.py && rsync -a $T/d/ $RUN/",
    "dd": "dd if=$SRC of=$F",
    "dd conv=fsync": "dd if=$SRC of=$F conv=fsync",
    "dd bs=3": "dd if=$SRC of=$F bs=3",
    "dd oflag=direct": "dd if=$SRC of=$F oflag=direct",
    "tar x": "mv $SRC $T/code.py && tar -C $T -c code.py | tar -C $RUN -x",
    "curl -o": "curl -s -o $F file://$SRC",
    "awk": """awk 'BEGIN { print ENVIRON["CODE"] > ENVIRON["F"] }'""",
    "jq": 'jq -r -n "env.CODE" > $F',
    "perl": """perl -e 'open(F, ">", $ENV{F}); print F "$ENV{CODE}\\n"'""",
    "node writeFileSync": """node -e 'require("fs").writeFileSync(process.env.F, process.env.CODE + "\\n")'""",
    "node writeFile": """node -e 'require("fs").promises.writeFile(process.env.F, process.env.CODE + "\\n")'""",
    "node appendFile": """node -e 'require("fs").appendFile(process.env.F, process.env.CODE + "\\n", () => 0)'""",
    "node createWriteStream": """node -e 'const s = require("fs").createWriteStream(process.env.F); for (const c of process.env.CODE + "\\n") s.write(c); s.end()'""",
    "VS Code style": """node -e 'const f = require("fs"), d = f.openSync(process.env.F, "w", 0o666); f.writeSync(d, process.env.CODE + "\\n"); f.fsyncSync(d); f.closeSync(d)'""",
    "emacs --batch": """emacs -Q --batch $F --eval '(progn (insert (getenv "CODE") "\\n") (save-buffer))'""",
    "gzip -dc": "gzip -c $SRC | gzip -dc > $F",
    "git show": "cd $T && git init -q && mv $SRC code.py && git add code.py && git show :code.py > $F",
    "git --work-tree checkout": "cd $T && git init -q && mv $SRC code.py && git add code.py && git --work-tree=$RUN checkout-index -f code.py",
}
CHANGES = {
    "bash echo over a longer text": 'echo "$CODE" > $F',
    "cp": "cp $SRC $F",
    "cp --remove-destination": "cp --remove-destination $SRC $F",
    "cp -b": "cp -b $SRC $F",
    "mv from another file system": "mv -f $SRC $F",
    "mv -b": "mv -b $SRC $F",
    "install -b": "install -b $SRC $F",
    "sort -o": "sort -u -o $F $SRC",
    "sed -i": "sed -i s/old/new/g $F",
    "sed -i.bak": "sed -i.bak s/old/new/g $F",
    "busybox sed -i": "busybox sed -i s/old/new/g $F",
    "perl -pi": "perl -pi -e s/old/new/g $F",
    "perl -pi.orig": "perl -pi.orig -e s/old/new/g $F",
    "patch": "diff -u $F $SRC > $T/p; patch $F < $T/p",
    "ed": """printf '%s\\n' ',s/old/new/g' w q | ed -s $F""",
    "ex": "ex -u NONE -i NONE -s -c '%s/old/new/g' -c wq $F",
    "rsync": "touch -d '+1 minute' $SRC; rsync $SRC $F",
    "rsync --inplace": "touch -d '+1 minute' $SRC; rsync --inplace $SRC $F",
    "rsync -a": "mkdir $T/d && mv $SRC $T/d/code.py && touch -d '+1 minute' $T/d/code.py && rsync -a $T/d/code.py $RUN/",
    "dd conv=notrunc": "dd if=$SRC of=$F conv=notrunc",
    "tar x over it": "mv $SRC $T/code.py && tar -C $T -c code.py | tar -C $RUN -x",
    "tar x --unlink-first": "mv $SRC $T/code.py && tar -C $T -c code.py | tar -C $RUN -x --unlink-first",
    "emacs --batch": """emacs -Q --batch $F --eval '(progn (while (search-forward "old" nil t) (replace-match "new")) (save-buffer))'""",
    "emacs --batch, precious": """emacs -Q --batch --eval '(setq file-precious-flag t)' $F --eval '(progn (while (search-forward "old" nil t) (replace-match "new")) (save-buffer))'""",
    "sponge style": "sed s/old/new/g $F > $T/x; cat $T/x > $F",
    **{
        f"vim backupcopy={copy} {more}": f"vim -u NONE -i NONE -N -T dumb --not-a-term -c 'set backupcopy={copy} backupskip= {more}' -c '%s/old/new/g' -c wq $F"
        for copy in ("yes", "no", "auto", "breakhardlink")
        for more in ("writebackup", "backup undofile undodir=.", "fsync swapfile")
    },
}
PACKAGES = {"node": "nodejs", "vim": "vim-nox", "ex": "vim-nox", "emacs": "emacs-nox", "awk": "gawk", "git": "git"}
TOOLS = "dash busybox rsync curl awk jq perl node emacs patch ed vim ex git".split()


def environment(box, tmp):
    src = tmp / "src.py"
    src.write_text(NEW)
    return {
        **os.environ,
        "F": str(box.run / "code.py"),
        "RUN": str(box.run),
        "CODE": NEW[:-1],
        "SRC": str(src),
        "T": str(tmp),
        "HOME": str(tmp),
    }


def need_tools(script):
    for tool in TOOLS:
        if tool in script.replace("/", " ").split():
            need(tool, PACKAGES.get(tool))


def check_one_run(box, ran_before=0):
    assert (box.run / "stdout").read_text() == "new\n", (box.run / "stderr").read_text()
    assert box.exit() == 0
    assert started(box) == ran_before + 1, "one save is one run"
    assert count(box) == ran_before + 1
    assert (box.run / "stdout").read_text() == "new\n"


@pytest.mark.parametrize("tool", FRESH)
def test_one_run_of_new_code_written_by(box, tmp, tool):
    need_tools(FRESH[tool])
    sh(FRESH[tool], env=environment(box, tmp)).ok()
    check_one_run(box)
    code = (box.run / "code.py").read_text()
    assert code.replace("\n", ";").replace(";;", ";") == NEW.replace(
        "\n", ";"
    ), "groups write the two statements in two lines"


@pytest.mark.parametrize("tool", CHANGES)
def test_one_run_of_code_changed_by(box, tmp, tool):
    need_tools(CHANGES[tool])
    assert box.go(OLD).text == "old\n"
    sh(CHANGES[tool], env=environment(box, tmp)).ok()
    check_one_run(box, 1)
    assert (box.run / "code.py").read_text() == NEW


@pytest.mark.parametrize("how", ["bash >>", "dash >>", "python a", "node appendFileSync", "tee -a"])
def test_an_append_runs_the_whole_text_once(box, how):
    assert box.go(OLD).text == "old\n"
    script = {
        "bash >>": 'echo "$CODE" >> $F',
        "dash >>": """dash -c 'printf "%s\\n" "$CODE" >> $F'""",
        "python a": f"""{PYTHON} -c 'import os; open(os.environ["F"], "a").write(os.environ["CODE"] + "\\n")'""",
        "node appendFileSync": """node -e 'require("fs").appendFileSync(process.env.F, process.env.CODE + "\\n")'""",
        "tee -a": 'echo "$CODE" | tee -a $F',
    }[how]
    need_tools(script)
    sh(script, env={**os.environ, "F": str(box.run / "code.py"), "CODE": NEW[:-1]}).ok()
    assert (box.run / "stdout").read_text() == "old\nnew\n"
    assert started(box) == 2
    assert count(box) == 1 + 2, "the second run runs both lines"
    assert (box.run / "code.py").read_text() == OLD + NEW


def test_two_appends_at_once_lose_nothing(box):
    box.go(OLD)
    fds = [os.open(box.run / "code.py", os.O_WRONLY | os.O_APPEND) for _ in range(2)]
    for i, fd in enumerate(fds):
        os.write(fd, f"print('from {i}')\n".encode())
        os.close(fd)
    out = (box.run / "stdout").read_text()
    assert sorted(out.splitlines()) == ["from 0", "from 1", "old"]


# Python as the writer: a body for a function with f (path of code.py), run (folder), new (bytes), tmp (folder).
PYTHON_WRITERS = {
    "open w": "open(f, 'wb').write(new)",
    "pathlib": "pathlib.Path(f).write_bytes(new)",
    "os.replace of a NamedTemporaryFile": """
t = tempfile.NamedTemporaryFile(dir=run, delete=False)
t.write(new)
t.close()
os.replace(t.name, f)""",
    "write, rename, close": """
fd = os.open(run + '/tmp.x', os.O_CREAT | os.O_WRONLY)
os.write(fd, new)
os.rename(run + '/tmp.x', f)
os.close(fd)""",
    "fsync twice": """
with open(f, 'wb') as o:
    for part in (new[:10], new[10:]):
        o.write(part)
        o.flush()
        os.fsync(o.fileno())""",
    "one byte per write": """
fd = os.open(f, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
for i in range(len(new)):
    os.write(fd, new[i:i + 1])
os.close(fd)""",
    "backwards by pwrite": """
fd = os.open(f, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
for i in reversed(range(len(new))):
    os.pwrite(fd, new[i:i + 1], i)
os.close(fd)""",
    "dup and close": """
fd = os.open(f, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
other = os.dup(fd)
os.write(fd, new)
os.close(fd)
os.close(other)""",
    "closed by exit": """
fd = os.open(f, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
os.write(fd, new)
os._exit(0)""",
    "killed by SIGKILL": """
fd = os.open(f, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
os.write(fd, new)
os.kill(os.getpid(), 9)""",
    "mmap": """
fd = os.open(f, os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, len(new))
m = mmap.mmap(fd, len(new))
m[:] = new
m.close()
os.close(fd)""",
    "mmap, the descriptor closed first": """
fd = os.open(f, os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, len(new))
m = mmap.mmap(fd, len(new))
os.close(fd)
m[:] = new
m.close()""",
    "ftruncate to shorter": """
open(run + '/tmp.y', 'wb').write(new + b'x' * 5000)
fd = os.open(run + '/tmp.y', os.O_RDWR)
os.ftruncate(fd, len(new))
os.close(fd)
os.rename(run + '/tmp.y', f)""",
    "exchange": """
open(run + '/tmp.z', 'wb').write(new)
open(run + '/code.txt', 'wb').write(b'')
os.rename(run + '/code.txt', run + '/tmp.q')
fd = os.open(f, os.O_CREAT | os.O_WRONLY)
os.close(fd)
libc = ctypes.CDLL(None, use_errno=True)
if libc.renameat2(-100, (run + '/tmp.z').encode(), -100, f.encode(), 2):
    raise OSError(ctypes.get_errno(), 'renameat2')""",
    "sendfile from another file system": """
open(tmp + '/s', 'wb').write(new)
i = os.open(tmp + '/s', os.O_RDONLY)
fd = os.open(f, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
os.sendfile(fd, i, 0, len(new))
os.close(fd)""",
    "shutil.copyfile": """
open(tmp + '/s', 'wb').write(new)
shutil.copyfile(tmp + '/s', f)""",
    "shutil.copy2": """
open(tmp + '/s', 'wb').write(new)
shutil.copy2(tmp + '/s', f)""",
    "shutil.move": """
open(tmp + '/s', 'wb').write(new)
shutil.move(tmp + '/s', f)""",
    "copy_file_range within run/": """
open(run + '/tmp.s', 'wb').write(new)
i = os.open(run + '/tmp.s', os.O_RDONLY)
fd = os.open(f, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
try:
    os.copy_file_range(i, fd, len(new))
except OSError:
    os.write(fd, new)
os.close(fd)""",
}


def python(body, box, tmp):
    prologue = "import ctypes, mmap, os, pathlib, shutil, sys, tempfile\nf, run, tmp = sys.argv[1:4]\nnew = sys.argv[4].encode()\n"
    return sh([PYTHON, "-c", prologue + body, box.run / "code.py", box.run, tmp, NEW])


@pytest.mark.parametrize("how", PYTHON_WRITERS)
def test_one_run_of_code_written_by_python(box, tmp, how):
    done = python(PYTHON_WRITERS[how], box, tmp)
    assert done.rc == (-9 if "SIGKILL" in how else 0), done.err
    check_one_run(box)
    assert (box.run / "code.py").read_text() == NEW


def test_ftruncate_of_the_code_itself_is_a_save(box, tmp):
    box.go(NEW + "print('more')\n")
    python("fd = os.open(f, os.O_RDWR); os.ftruncate(fd, len(new)); os.close(fd)", box, tmp).ok()
    check_one_run(box, 1)


def test_one_run_of_code_typed_in_nano(box, tmp):
    need("nano")
    box.go(OLD)
    rc, _ = terminal(
        ["nano", "-I", box.run / "code.py"],
        [("old", "\x0b" + NEW[:-1]), ("new')", "\x0f"), ("Write", "\r"), ("Wrote", "\x18")],
    )
    assert rc == 0
    check_one_run(box, 1)


def test_one_run_of_code_typed_in_nano_with_backups(box, tmp):
    need("nano")
    box.go(OLD)
    terminal(
        ["nano", "-I", "-B", box.run / "code.py"],
        [("old", "\x0b" + NEW[:-1]), ("new')", "\x0f"), ("Write", "\r"), ("Wrote", "\x18")],
    )
    check_one_run(box, 1)


def test_one_run_of_code_typed_in_emacs(box, tmp):
    need("emacs", "emacs-nox")
    box.go(OLD)
    rc, _ = terminal(
        ["emacs", "-nw", "-Q", box.run / "code.py"],
        [("old", "\x0b" + NEW[:-1]), ("new", "\x18\x13"), ("Wrote", "\x18\x03")],
        env={"HOME": str(tmp)},
    )
    assert rc == 0
    check_one_run(box, 1)


def test_two_saves_of_one_vim_session_are_two_runs(box, tmp):
    need("vim", "vim-nox")
    box.go(OLD)
    rc, _ = terminal(
        ["vim", "-u", "NONE", "-i", "NONE", "-N", box.run / "code.py"],
        [("old", ":w\r"), ("written", ":%s/old/new/g\r:w\r"), ("written", ":q\r")],
    )
    assert rc == 0
    check_one_run(box, 2)


def size(path):
    """0 as long as it is not there."""
    return path.stat().st_size if path.exists() else 0


def test_a_writer_ended_by_ctrl_c_runs_what_it_wrote(box):
    # It cannot be told from a normal close: FUSE-level facts; whoever needs all or nothing writes a temporary file and renames.
    cat = spawn(f"cat > {box.run}/code.py", stdin=-1)
    cat.stdin.write(NEW.encode())
    cat.stdin.flush()
    wait_for(lambda: size(box.run / "code.py") == len(NEW), "cat has written it")
    kill(cat, signal.SIGINT)
    assert cat.wait(30) != 0
    cat.stdin.close()
    cat.stdout.close()
    cat.stderr.close()
    check_one_run(box)


# What is not a save. They run with OLD saved and run before, and nothing may have run after.
NO_RUN = {
    "touch": "touch $F",
    "touch -d": "touch -d '2020-01-01' $F",
    "chmod": "chmod 600 $F; chmod 644 $F",
    "cat": "cat $F",
    "cp out": "cp $F $T/x",
    "open r+": "exec 3<>$F; exec 3>&-",
    "open for append": "exec 3>>$F; exec 3>&-",
    "truncate by path": f"""{PYTHON} -c 'import os; os.truncate(os.environ["F"], 5)'""",
    "ls -l, stat, find": "ls -l $RUN; stat $F; find $RUN",
    "grep -r": "grep -r old $RUN --include=code.py",
    "unlink": "rm $F",
    "rename away": "mv $F $RUN/old.txt",
    "unlinked while open": """exec 3>$F; echo "$CODE" >&3; rm $F; exec 3>&-""",
    "renamed away while open": """exec 3>$F; echo "$CODE" >&3; mv $F $RUN/x.tmp; exec 3>&-""",
    **{
        f"scratch {name}": f'echo "$CODE" > $RUN/{name}'
        for name in (
            "code.py~",
            "code.py.bak",
            ".code.py.swp",
            "4913",
            "#code.py#",
            "code.txt",
            "codes.py",
            "code.",
            "CODE.PY",
        )
    },
    "a scratch link": "ln -s user@host.1:2 $RUN/.#code.py && rm $RUN/.#code.py",
}


@pytest.mark.parametrize("what", NO_RUN)
def test_nothing_runs_by(box, tmp, what):
    box.go(OLD)
    sh(NO_RUN[what], env=environment(box, tmp)).ok()
    assert started(box) == 1
    assert count(box) == 1
    assert (box.run / "stdout").read_text() == "old\n"


@pytest.mark.parametrize("how", [": >", "truncate -s0", "cp /dev/null", "python w"])
def test_an_empty_save_runs_nothing_but_clears_the_results(box, how):
    box.go(OLD)
    ino = os.stat(box.run / "stdout").st_ino
    f = box.run / "code.py"
    sh(
        {
            ": >": f": > {f}",
            "truncate -s0": f"truncate -s0 {f}",
            "cp /dev/null": f"cp /dev/null {f}",
            "python w": f"{PYTHON} -c \"open('{f}', 'w').close()\"",
        }[how]
    ).ok()
    wait_for(lambda: box.status() == "none", "status none")
    for name in ("stdout", "stderr", "exit", "logs"):
        assert (box.run / name).read_bytes() == b"", name
    assert os.stat(box.run / "stdout").st_ino != ino
    assert started(box) == 1
    assert count(box) == 1


def test_scratch_files_stay_in_the_daemon_and_can_be_removed(mnt, box):
    (box.run / "notes.tmp").write_text("scratch-5a1f")
    assert (box.run / "notes.tmp").read_text() == "scratch-5a1f"
    assert "notes.tmp" in os.listdir(box.run)
    assert not sh(["find", mnt.state, "-name", "notes.tmp"]).text
    assert not (box.ws / "notes.tmp").exists()
    os.unlink(box.run / "notes.tmp")
    assert "notes.tmp" not in os.listdir(box.run)


def test_scratch_space_is_bounded(mnt, box):
    mnt.allow("scratch", "notes", "No space", "EFBIG", "ENOSPC")

    def fill():
        for i in range(5000):
            with open(box.run / f"notes{i}.tmp", "wb") as f:
                f.write(b"x" * (1 << 20))

    with pytest.raises(OSError) as e:
        fill()
    assert e.value.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    sh(f"rm {box.run}/notes*.tmp").ok()
    assert box.go(NEW).text == "new\n"


def test_links_under_a_control_name_are_refused(mnt, box):
    box.go(OLD)
    (box.run / "code.js").unlink(missing_ok=True)
    for name in ("code.js", "code"):
        expect_errno(errno.EPERM, os.symlink, "/etc/hostname", box.run / name)
    expect_errno(errno.EPERM, os.link, box.run / "code.py", box.run / "code.sh")
    assert sh(["mkfifo", box.run / "code.rb"]).rc == 1
    assert started(box) == 1
    assert count(box) == 1


def test_exchange_of_two_code_files_runs_both(box):
    box.save(counted("a"))
    (box.run / "code.js").write_text("console.log(1)")
    assert box.exit() == 0
    libc = ctypes.CDLL(None, use_errno=True)
    before = count(box)
    # code.py gets the JavaScript text (a Python error or 1 printed, both are fine), code.js the Python text
    assert libc.renameat2(-100, bytes(box.run / "code.py"), -100, bytes(box.run / "code.js"), 2) == 0
    assert (box.run / "code.py").read_text() == "console.log(1)"
    box.exit()
    assert started(box) == 4
    assert count(box) == before, "the Python text is JavaScript's business now"


def test_a_save_while_a_run_goes_on_starts_another_run(box):
    box.start("import time; print('READY', flush=True); time.sleep(600)")
    assert box.go(NEW).text == "new\n"
    assert count(box) == 1


def test_noise_of_editors_leaves_no_file_in_the_workspace(box, tmp):
    need("vim", "vim-nox")
    box.go(OLD)
    sh(CHANGES["vim backupcopy=auto backup undofile undodir=."], env=environment(box, tmp)).ok()
    box.exit()
    assert sorted(os.listdir(box.ws)) == ["runs"]


def test_half_written_code_does_not_run_before_its_close(box):
    writer = spawn(
        [
            PYTHON,
            "-c",
            f"import sys; f = open({str(box.run / 'code.py')!r}, 'wb', 0); f.write({NEW.encode()!r}); "
            "print('w', flush=True); sys.stdin.read()",
        ],
        stdin=-1,
    )
    assert writer.stdout.readline() == b"w\n"
    assert started(box) == 0
    finish(writer, data=b"").ok()
    check_one_run(box)


# ---- scratch folders ----

RSYNC = {
    "delayed": ["--delay-updates"],
    "partial": ["--partial-dir=.rsync-partial"],
    "partial and delayed": ["--partial-dir=.part", "--delay-updates"],
    "temporary": ["--temp-dir=.tmp"],
}


@pytest.mark.parametrize("slot", [".", "slot"])
@pytest.mark.parametrize("how", RSYNC)
def test_rsync_that_makes_a_folder_of_its_own_runs_the_code_once(box, tmp, how, slot):
    need("rsync")
    if slot == "slot":
        (box.run / slot).mkdir()
    if how == "temporary":
        (box.run / slot / ".tmp").mkdir()
    (tmp / "src").mkdir()
    for i in range(3):
        (tmp / "src/code.py").write_text(counted(f"v{i}"))
        (tmp / "src/args").write_text(f"arg{i}\n")
        # -I: sizes and seconds may be the same
        done = sh(["rsync", "-a", "-I", *RSYNC[how], f"{tmp}/src/", f"{box.run / slot}/"])
        assert (done.rc, done.out, done.err) == (0, b"", b""), done.err
        assert (box.run / slot / "stdout").read_text() == f"v{i}\n"
        assert (box.run / slot / "args").read_text() == f"arg{i}\n"
        assert count(box) == i + 1
    assert [n for n in os.listdir(box.run / slot) if n.startswith(".")] == ([".tmp"] if how == "temporary" else [])
    assert [n for n in os.listdir(box.ws) if n != "runs"] == []


def test_a_scratch_folder_holds_files_that_only_a_rename_makes_code(box):
    folder = box.run / ".work"
    folder.mkdir()
    (folder / "code.py").write_text(counted("early"))
    (folder / "notes").write_text("n")
    assert sorted(os.listdir(folder)) == ["code.py", "notes"] and (folder / "notes").read_text() == "n"
    assert ".work" in os.listdir(box.run) and ".work/notes" not in os.listdir(box.run)
    assert box.status() == "none" and os.stat(folder).st_mode & 0o777 == 0o755
    expect_errno(errno.EEXIST, folder.mkdir)
    expect_errno(errno.ENOTEMPTY, folder.rmdir)
    expect_errno(errno.EISDIR, os.unlink, folder)
    expect_errno(errno.EPERM, os.mkdir, folder / "sub")
    expect_errno(errno.EPERM, os.rename, folder, box.run / ".other")
    expect_errno(errno.ENAMETOOLONG, os.mkdir, box.run / ("." + "x" * 200))
    expect_errno(errno.ENAMETOOLONG, os.open, folder / ("x" * 252), os.O_CREAT | os.O_WRONLY)
    os.rename(folder / "notes", folder / "more")
    os.rename(folder / "more", box.run / "more")
    os.rename(box.run / "more", folder / "notes")
    (folder / "code.py").write_text(counted("late"))
    os.rename(folder / "code.py", box.run / "code.py")
    assert (box.run / "stdout").read_text() == "late\n" and count(box) == 1
    os.unlink(folder / "notes")
    held = os.open(folder, os.O_RDONLY)
    folder.rmdir()
    try:
        expect_errno((errno.ESTALE, errno.ENOENT), os.open, "x", os.O_CREAT | os.O_WRONLY, dir_fd=held)
    finally:
        os.close(held)
    assert not folder.exists() and ".work" not in os.listdir(box.run)


def test_scratch_folders_count_as_scratch_files_and_go_with_rm(box):
    for i in range(2):
        (box.run / f".d{i}").mkdir()
        for k in range(100):
            (box.run / f".d{i}/f{k}").touch()

    def more():
        for k in range(100):
            (box.run / f".d0/more{k}").touch()

    expect_errno(errno.ENOSPC, more)
    assert sh(["rm", "-rf", box.run / ".d0", box.run / ".d1"]).ok().err == b""
    assert [n for n in os.listdir(box.run) if n.startswith(".")] == []
    assert box.go("print(1)").text == "1\n"
