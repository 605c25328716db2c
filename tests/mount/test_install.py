# SPDX-License-Identifier: Apache-2.0
"""What is installed, and what mount(8), fstab, a shell and systemd make of it."""
import os
import re
import subprocess
from pathlib import Path

import pytest
from helpers import ROOT, SBXFS, mountpoints, need, sh, skip, wait_for

BUILD = Path(SBXFS).resolve().parents[1]
SOURCE = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The prefix below DESTDIR, after `meson install`."""
    if not ROOT:
        skip("root", "the build folder is root's")
    dest = tmp_path_factory.mktemp("dest")
    sh([need("meson"), "install", "-C", BUILD, "--no-rebuild", "--destdir", dest], env={**os.environ, "DESTDIR": str(dest)}).ok()
    (prefix,) = [p.parents[1] for p in dest.rglob("bin/sbxfs")]
    return prefix


def test_all_is_installed_where_it_belongs(installed):
    files = {str(p.relative_to(installed)) for p in installed.rglob("*") if p.is_file()}
    assert files == {
        "bin/sbxfs",
        "share/man/man1/sbxfs.1",
        "share/man/man5/sbxfs-config.5",
        "share/bash-completion/completions/sbxfs",
        *(f"share/doc/sbxfs/{n}" for n in ("tree.md", "config.md", "security.md", "agents.md")),
        *(f"share/doc/sbxfs/examples/{n}" for n in ("agent.sh", "sbxfs.service")),
    }
    assert sh([installed / "bin/sbxfs", "--version"]).ok().out.startswith(b"sbxfs ")


@pytest.mark.parametrize("page", ["sbxfs.1", "sbxfs-config.5"])
def test_man_pages_are_without_fault(page):
    done = sh([need("mandoc"), "-T", "lint", "-W", "warning", SOURCE / "docs" / page])
    assert done.rc == 0 and done.out == b"", done.text


FSTAB_OPTIONS = [
    "defaults",
    "rw,nodev,nosuid,noexec",
    "rw,dev,suid,exec",
    "ro",
    "noauto,nofail,user,_netdev,x-systemd.automount,x-systemd.requires=network.target",
    "users,owner,group,comment=text,relatime,nodiratime,noatime,lazytime",
]


@pytest.mark.parametrize("options", FSTAB_OPTIONS)
def test_mount_finds_it_and_takes_what_stands_in_fstab(installed, fresh_mnt, options):
    """mount(8) -> mount.fuse3(8) -> sbxfs in /usr/local/bin; there it is only for this test, in a mount namespace of its own."""
    need("mount.fuse3", "fuse3")
    m = fresh_mnt(start=False)
    fstab = m.base / "fstab"
    fstab.write_text(f"local {m.path} fuse.sbxfs config={m.config_file},{options} 0 0\n")
    script = """
        set -e
        mount --bind "$1" /usr/local/bin
        mount -T "$2" "$3"
        ls -A "$3"
        grep " $3 " /proc/self/mountinfo
        umount "$3"
        ! grep " $3 " /proc/self/mountinfo
    """
    done = sh([need("unshare"), "-m", "sh", "-c", script, "sh", installed / "bin", fstab, m.path]).ok()
    lines = done.text.splitlines()
    assert lines[0] == ".sbxfs", "it answers when mount has returned"
    assert len(lines) == 2 and " - fuse.sbxfs local " in lines[1]
    flags = lines[1].split()[5].split(",")
    assert {"nosuid", "nodev", "noexec"} <= set(flags), "whatever fstab says"
    assert ("ro" in flags) == (options == "ro")
    assert str(m.path) not in mountpoints()


def test_the_older_form_of_fstab_works_too(installed, fresh_mnt):
    m = fresh_mnt(start=False)
    (m.base / "fstab").write_text(f"sbxfs#local {m.path} fuse config={m.config_file} 0 0\n")
    script = 'mount --bind "$1" /usr/local/bin && mount -T "$2" "$3" && ls -A "$3" && umount "$3"'
    done = sh([need("unshare"), "-m", "sh", "-c", script, "sh", installed / "bin", m.base / "fstab", m.path]).ok()
    assert done.text == ".sbxfs\n"


def test_a_wrong_option_in_fstab_is_refused_with_a_reason(installed, fresh_mnt):
    m = fresh_mnt(start=False)
    (m.base / "fstab").write_text(f"local {m.path} fuse.sbxfs config={m.config_file},uid=7 0 0\n")
    script = 'mount --bind "$1" /usr/local/bin && mount -T "$2" "$3"'
    done = sh([need("unshare"), "-m", "sh", "-c", script, "sh", installed / "bin", m.base / "fstab", m.path])
    assert done.rc != 0 and b"uid=7" in done.err, done.err


@pytest.mark.parametrize("options", FSTAB_OPTIONS)
def test_the_same_options_are_taken_without_mount(fresh_mnt, options):
    m = fresh_mnt(options=options.split(","))
    assert {"nosuid", "nodev", "noexec"} <= set(mountpoints()[str(m.path)].split()[5].split(","))


# ---- completion ----


def complete(*words):
    """What bash offers for the last of the words."""
    script = f"""
        . {SOURCE}/docs/sbxfs.bash-completion
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _sbxfs
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return set(sh([need("bash"), "-c", script, "bash", "sbxfs", *words]).ok().text.split())


def test_every_option_is_completed():
    text = sh([SBXFS, "--help"]).ok().text
    options = {f"{name}{value}" for name, value in re.findall(r"^  -o (\w+)(=(?:outside|eperm)|=|)", text, re.M)}
    flags = {f for line in re.findall(r"^  (-.*?)  ", text, re.M) for f in re.findall(r"--?\w+", line)}
    assert complete("-o", "") == options
    assert complete("-") == flags
    assert complete("--h") == {"--help"}
    assert complete("-o", "al") == {"allow_other"}
    assert complete("-o", "ephemeral,al") == {"ephemeral,allow_other"}
    assert complete("-o", "links", "=", "o") == {"outside"}
    assert complete("-o", "links=e") == {"eperm"}
    assert {"check", "local"} <= complete("")
    assert {"local"} <= complete("check", "l")


def test_files_and_folders_are_completed(tmp):
    (tmp / "config.yaml").touch()
    (tmp / "box").mkdir()
    assert complete("-o", f"config={tmp}/c") == {f"{tmp}/config.yaml"}
    assert complete("-o", "config", "=", f"{tmp}/c") == {f"{tmp}/config.yaml"}
    assert complete("local", f"{tmp}/") == {f"{tmp}/box"}


# ---- examples of the documentation ----


def examples():
    yield re.search(r"^\.SH EXAMPLE\n\.nf\n(.*?)^\.fi", (SOURCE / "docs/sbxfs-config.5").read_text(), re.M | re.S).group(1)
    for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", (SOURCE / "docs/config.md").read_text(), re.M):
        text = re.sub(r"^    ", "", block, flags=re.M)
        if re.match(r"\s*[a-z_]+:(?: |\n)", text):
            yield text


@pytest.mark.parametrize("text", list(examples()), ids=lambda t: t.split(":")[0].strip())
def test_examples_of_the_configuration_are_right(fresh_mnt, text):
    m = fresh_mnt(start=False)
    m.config_file.write_text(text.replace("\\(aq", "'").replace("\\-", "-") + f"\nstate_dir: {m.state}\n")
    m.start()
    shown = (m / ".sbxfs/config").read_text()
    # what is shown is a configuration, and the same one
    m.stop()
    m.config_file.write_text(shown)
    m.start()
    assert (m / ".sbxfs/config").read_text() == shown


# ---- systemd ----


def test_the_unit_says_what_the_command_does():
    """Type=forking: active when the parent ends, which is when the mount answers (test_cli.py)."""
    unit = (SOURCE / "docs/examples/sbxfs.service").read_text()
    assert "Type=forking\n" in unit and re.search(r"^ExecStart=sbxfs local \S+$", unit, re.M)


def test_the_parent_ends_when_the_mount_answers_and_not_before(fresh_mnt):
    m = fresh_mnt(start=False)
    for _ in range(10):
        sh([a for a in m.command() if a != "-f"]).ok()
        # one system call later: no wait, no retry
        assert os.listdir(m.path) == [".sbxfs"] and (m / ".sbxfs/version").read_text().startswith("sbxfs ")
        wait_for(lambda: m.unmount().rc == 0 or not m.mounted(), "unmounted")
        wait_for(lambda: not daemons(m), "the daemon has ended")


def daemons(m):
    found = subprocess.run(["pgrep", "-f", str(m.config_file)], capture_output=True, text=True)
    return found.stdout.split()
