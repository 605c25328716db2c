# SPDX-License-Identifier: Apache-2.0
"""The command line: what it takes, what it says, and when it returns."""
import os
import re
import shutil
import signal
import subprocess

import pytest
from helpers import HANG, ROOT, SBXFS, Mount, finish, mountpoints, sh, skip, spawn, wait_for


@pytest.fixture
def place():
    """A mount point and a config, but no daemon."""
    m = Mount()
    yield m
    m.force_unmount()
    m.remove()


def refused(done, *words):
    """Status 1, one clear line on stderr with these words, nothing on stdout."""
    err = done.err.decode()
    assert done.rc == 1, (done.rc, err)
    assert done.out == b""
    assert len(err.splitlines()) == 1, err
    for word in words:
        assert re.search(word, err), f"{word!r} is not in {err!r}"


def test_help_says_how_it_is_called():
    done = sh([SBXFS, "--help"]).ok()
    for word in ("MOUNTPOINT", "config=", "local", "--version", "-f", "allow_other", "ephemeral", "check"):
        assert word in done.text, word
    assert done.err == b""


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(flag):
    assert re.search(r"sbxfs.*\d+\.\d+", sh([SBXFS, flag]).ok().text)


def test_no_mount_point_is_refused():
    done = sh([SBXFS])
    assert done.rc == 1 and b"MOUNTPOINT" in done.err or b"mount point" in done.err


def test_an_unknown_flag_is_refused(place):
    done = sh([SBXFS, "--frobnicate", place.path])
    assert done.rc == 1 and b"frobnicate" in done.err


def test_an_unknown_option_is_refused(place):
    done = sh([SBXFS, "-f", "local", place.path, "-o", f"config={place.config_file},frobnicate=1"])
    assert done.rc == 1 and b"frobnicate" in done.err
    assert not place.mounted()


def test_a_wrong_source_is_refused_and_the_right_ones_are_named(place):
    refused(sh([SBXFS, "-f", "nonsense", place.path, "-o", f"config={place.config_file}"]), "nonsense", "local")


def test_a_missing_mount_point_is_refused(place):
    refused(
        sh([SBXFS, "-f", "local", place.base / "missing", "-o", f"config={place.config_file}"]),
        str(place.base / "missing"),
        "[Nn]o such|does not exist",
    )


def test_a_mount_point_that_is_a_file_is_refused(place):
    refused(
        sh([SBXFS, "-f", "local", place.config_file, "-o", f"config={place.config_file}"]),
        str(place.config_file),
        "directory",
    )


def test_a_mount_point_that_is_busy_is_refused_and_the_other_mount_goes_on(fresh_mnt):
    m = fresh_mnt()
    other = fresh_mnt(start=False)
    refused(sh([SBXFS, "-f", "local", m.path, "-o", f"config={other.config_file}"]), str(m.path))
    assert m.box().go("print(1)").text == "1\n"


def test_a_mount_point_that_is_not_empty_is_a_case_of_its_own(place):
    """libfuse 3 mounts over it, as mount(8) does; whichever way, nothing of it may be lost."""
    (place.path / "file").write_text("x")
    proc = subprocess.Popen(place.command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: proc.poll() is not None or place.mounted(), "mounted or refused")
    place.force_unmount()
    proc.communicate(timeout=HANG)
    assert (place.path / "file").read_text() == "x"


BAD_CONFIG = {
    "unknown key": ("state_dir: /x\nstat_dir: /y\n", "2", "stat_dir"),
    "unknown key in a template": ("templates:\n  default:\n    limits:\n      memroy: 1G\n", "4", "memroy"),
    "bad size": ("templates:\n  default:\n    limits:\n      memory: lots\n", "4", "memory"),
    "bad count": ("templates:\n  default:\n    limits:\n      pids: -3\n", "4", "pids"),
    "memory that no program could live in": ("templates:\n  default:\n    limits:\n      memory: 64K\n", "4", "memory"),
    "zero pids": ("templates:\n  default:\n    limits:\n      pids: 0\n", "4", "pids"),
    "bad cpu": ("templates:\n  default:\n    limits:\n      cpu: many\n", "4", "cpu"),
    "bad timeout": ("templates:\n  default:\n    limits:\n      timeout: soon\n", "4", "timeout"),
    "bad network": ("templates:\n  default:\n    network: 5g\n", "3", "network"),
    "not YAML": ("state_dir: [\n", "[12]", ""),
    "a list where a map belongs": ("templates:\n  - x\n", "[12]", "templates"),
    "bad pattern": ("policy:\n  deny: ['(']\n", "2", "deny"),
    "relative state": ("state_dir: relative/path\n", "1", "state_dir"),
    "tabs": ("state_dir:\t\n\t- x\n", "[12]", ""),
}


@pytest.mark.parametrize("what", BAD_CONFIG)
def test_a_bad_config_is_refused_with_file_line_and_key(place, what):
    text, line, word = BAD_CONFIG[what]
    place.config_file.write_text(text)
    done = sh(place.command())
    refused(done, re.escape(str(place.config_file)) + f":{line}: ", word)
    assert not place.mounted()


def test_an_unknown_key_names_the_nearest_known_one(place):
    place.config_file.write_text("stat_dir: /x\n")
    refused(sh(place.command()), "state_dir")


def test_a_config_that_is_not_there_is_refused(place):
    os.unlink(place.config_file)
    refused(sh(place.command()), str(place.config_file), "[Nn]o such file")


def test_a_config_that_is_a_folder_or_unreadable_is_refused(place):
    os.unlink(place.config_file)
    place.config_file.mkdir()
    refused(sh(place.command()), str(place.config_file))
    if not ROOT:
        place.config_file.rmdir()
        place.config_file.write_text("")
        place.config_file.chmod(0)
        refused(sh(place.command()), str(place.config_file), "[Pp]ermission denied")


def test_a_state_folder_that_cannot_be_made_is_refused(place):
    place.config_file.write_text("state_dir: /proc/nothing/here\n")
    refused(sh(place.command()), "/proc/nothing")


def test_an_unknown_runtime_is_refused_with_its_name(place):
    place.config_file.write_text(f"state_dir: {place.state}\noci_runtime: /no/such/runtime\n")
    done = run_or_mount(place)
    if done is not None:
        refused(done, "/no/such/runtime")
        return
    # It may also mount, as workspaces work without a runtime: then the box fails and says why.
    (place.path / "b").mkdir()
    wait_for(lambda: (place.path / "b/status").read_text() == "failed\n", "the box failed")
    assert "/no/such/runtime" in (place.path / "b/error").read_text()
    place.end()


def run_or_mount(m):
    """Start it; the outcome if it ends, None when it has mounted."""
    m.proc = subprocess.Popen(
        m.command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    wait_for(lambda: m.proc.poll() is not None or m.mounted(), "mounted or refused")
    if m.proc.poll() is None:
        return None
    done, m.proc = finish(m.proc), None
    return done


def test_an_unknown_template_is_refused(place):
    done = sh([SBXFS, "-f", "local", place.path, "-o", f"config={place.config_file},template=nope"])
    refused(done, "nope")


def test_a_template_of_the_config_is_used(fresh_mnt):
    m = fresh_mnt(config={"templates": {"small": {"env": {"FLAVOUR": "small"}}}}, options=["template=small"])
    assert m.box().go("import os; print(os.environ['FLAVOUR'])").text == "small\n"


@pytest.mark.parametrize("value", ["nonsense", ""])
def test_a_bad_value_of_links_is_refused(place, value):
    done = sh([SBXFS, "-f", "local", place.path, "-o", f"config={place.config_file},links={value}"])
    assert done.rc == 1 and b"links" in done.err


def background_pid(m):
    """The daemon that has gone to the background, found by its command line."""
    found = [int(p) for p in os.listdir("/proc") if p.isdigit() and str(m.config_file) in cmdline(p)]
    return found[0] if found else None


def cmdline(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def end_background(m):
    pid = background_pid(m)
    wait_for(lambda: m.unmount().rc == 0 or not m.mounted(), "unmounted")
    wait_for(lambda: pid is None or not os.path.exists(f"/proc/{pid}"), "the daemon has ended")
    problems = m.leftovers()
    assert not problems, problems


def test_without_f_it_returns_when_the_mount_answers(place):
    done = sh([a for a in place.command() if a != "-f"])
    assert done.rc == 0 and done.out == b"" and done.err == b"", done.err
    assert str(place.path) in mountpoints()
    box = place.box()
    assert box.go("print(1)").text == "1\n"
    end_background(place)


def test_without_f_and_without_source_it_is_local(place):
    sh([SBXFS, place.path, "-o", f"config={place.config_file}"]).ok()
    assert "local" in mountpoints()[str(place.path)]
    assert place.box().go("print(1)").text == "1\n"
    end_background(place)


def test_without_f_a_failure_is_told_and_the_status_is_1(place):
    refused(sh([SBXFS, "nonsense", place.path, "-o", f"config={place.config_file}"]), "nonsense")
    place.config_file.write_text("state_dir: /proc/nothing/here\n")
    refused(sh([SBXFS, "local", place.path, "-o", f"config={place.config_file}"]), "/proc/nothing")


def test_the_background_daemon_holds_no_terminal_folder_or_pipe_of_the_shell(place):
    proc = spawn([SBXFS, "local", place.path, "-o", f"config={place.config_file}"], cwd=place.base)
    out, err = proc.communicate(timeout=HANG)  # ends only when nobody holds the pipes
    assert proc.returncode == 0, err
    pid = wait_for(lambda: background_pid(place), "the daemon")
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    end_background(place)


def test_relative_paths_on_the_command_line_work_in_the_background(place):
    sh([SBXFS, "local", "mnt", "-o", "config=config.yaml"], cwd=place.base).ok()
    assert place.box().go("print(1)").text == "1\n"
    end_background(place)


@pytest.fixture
def installed():
    """mount(8) finds the program in the system's folders only: it is linked there for the test, if it is not installed."""
    if not ROOT:
        skip("root")
    if not shutil.which("mount.fuse3", path="/usr/sbin:/sbin"):
        pytest.skip("needs mount.fuse3: apt-get install fuse3")
    link = None
    if not shutil.which("sbxfs", path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"):
        link = "/usr/local/bin/sbxfs"
        os.symlink(SBXFS, link)
    yield
    if link:
        os.unlink(link)


def umount(m):
    sh(["umount", m.path]).ok()
    wait_for(lambda: not m.mounted() and background_pid(m) is None, "ended")
    assert not m.leftovers()


def test_mount_t_fuse_sbxfs_works(place, installed):
    sh(["mount", "-t", "fuse.sbxfs", "local", place.path, "-o", f"config={place.config_file}"]).ok()
    assert mountpoints()[str(place.path)].split(" - ")[1].split()[0] == "fuse.sbxfs"
    assert place.box().go("print(1)").text == "1\n"
    umount(place)


def test_a_line_of_fstab_works(place, installed):
    fstab = place.base / "fstab"
    fstab.write_text(f"local {place.path} fuse.sbxfs noauto,config={place.config_file} 0 0\n")
    sh(["mount", "-T", fstab, place.path]).ok()
    assert place.box().go("print(1)").text == "1\n"
    umount(place)


def allows_other():
    if ROOT:
        return True
    try:
        with open("/etc/fuse.conf") as f:
            return any(line.strip() == "user_allow_other" for line in f)
    except OSError:
        return False


def test_allow_other_lets_others_read_but_not_write(fresh_mnt):
    if not ROOT:
        skip("root", "it takes a second user")
    m = fresh_mnt(options=["allow_other"])
    m.allow("EACCES", "EROFS", "EPERM")
    box = m.box()
    box.go("print('shared')").ok()
    (box.ws / "f").write_text("x")
    (box.ws / "f").chmod(0o666)
    os.chmod(box.ws, 0o777)

    def other(script):
        return sh(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-c", script])

    assert other(f"ls {m.path}").ok().text.split() == [box.name]
    assert other(f"cat {box.ws}/f").ok().text == "x"
    assert other(f"cat {box.path}/status").ok().text == "running\n"
    for script in (
        f"mkdir {m.path}/evil",
        f"rmdir {box.path}",
        f"echo 'print(1)' > {box.run}/code.py",
        f"echo x > {box.ws}/f",
        f"touch {box.ws}/new",
        f"rm {box.ws}/f",
        f"echo 5 > {box.run}/timeout",
        f"mv {box.ws}/f {box.ws}/g",
        f"chmod 600 {box.ws}/f",
        f"ln {box.ws}/f {box.ws}/h",
    ):
        done = other(script)
        assert done.rc != 0 and re.search(rb"Permission denied|Operation not permitted|Read-only", done.err), (
            script,
            done.err,
        )
    assert (box.ws / "f").read_text() == "x" and os.listdir(box.ws) == ["f"]
    assert box.go("print('fine')").text == "fine\n"


def test_allow_other_of_an_ordinary_user_depends_on_fuse_conf(fresh_mnt):
    if ROOT:
        skip("user")
    if not allows_other():
        skip("allow_other")
    m = fresh_mnt(options=["allow_other"])
    assert m.box().go("print(1)").text == "1\n"


def test_check_prints_one_line_for_each_thing():
    done = sh([SBXFS, "check"], seconds=60)
    lines = done.text.splitlines()
    assert done.rc in (0, 1)
    for word in ("/dev/fuse", "fusermount3", "user namespace", "runtime", "limit", "python", "node", "network"):
        assert sum(bool(re.search(word, line, re.I)) for line in lines) >= 1, f"no line about {word}: {done.text}"
    assert all(re.search(r"\bok\b|:", line) for line in lines), lines
    assert not re.search(r"^\s+", done.text, re.M), "one line each"


def test_check_leaves_nothing(tmp):
    def mounts():  # not those of other tests at this moment
        return {m for m in mountpoints() if not re.search(r"/sbxfs-(test|tmp)-", m)}

    before = mounts()
    sh([SBXFS, "check"], seconds=60)
    assert mounts() == before


def test_check_of_a_wrong_source_is_refused():
    done = sh([SBXFS, "check", "nonsense"])
    assert done.rc == 1 and b"nonsense" in done.err + done.out


def test_the_usual_options_of_libfuse_are_taken(fresh_mnt):
    m = fresh_mnt(options=["noatime", "fsname=mine"])
    assert " - fuse.sbxfs mine " in mountpoints()[str(m.path)]
    assert m.box().go("print(1)").text == "1\n"


def test_the_source_is_shown_in_the_list_of_mounts(fresh_mnt):
    m = fresh_mnt()
    assert " - fuse.sbxfs " in mountpoints()[str(m.path)]


def test_debug_output_shows_requests_and_never_code(place):
    place.base.joinpath("log").touch()
    with open(place.log_file, "ab") as log:
        place.proc = subprocess.Popen(
            [*place.command()[:1], "-d", *place.command()[1:]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    wait_for(lambda: place.mounted() or place.proc.poll() is not None, "mounted")
    assert place.box().go("print('not-in-the-log-77')").text == "not-in-the-log-77\n"
    assert not place.end()
    assert "LOOKUP" in place.log() or "lookup" in place.log()
    assert "not-in-the-log-77" not in place.log()


@pytest.mark.parametrize("sig", ["SIGHUP", "SIGTERM", "SIGINT"])
def test_signals_that_end_the_daemon_unmount_and_give_0(fresh_mnt, sig):
    m = fresh_mnt()
    m.box().ready()
    assert m.kill(getattr(signal, sig)) == 0
    assert not m.mounted()


def test_names_of_the_host_are_not_needed(fresh_mnt):
    """The daemon starts with an empty environment."""
    m = fresh_mnt(start=False)
    m.proc = subprocess.Popen(
        ["env", "-i", f"PATH={os.environ['PATH']}", *m.command()],
        stdin=subprocess.DEVNULL,
        stdout=open(m.log_file, "ab"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    wait_for(lambda: m.mounted() or m.proc.poll() is not None, "mounted")
    assert m.box().go("print(1)").text == "1\n", m.log()
