# SPDX-License-Identifier: Apache-2.0
"""What all mount tests share: the daemon, boxes, waiting for events, running tools with a hang bound.

Environment:
  SBXFS       the binary (default: build/fs/sbxfs of this source tree)
  SBX_SCALE   multiplies cycles and seconds of the long tests (default 1.0)
  SBX_SLOW    multiplies hang bounds, for sanitizer builds and slow machines (default 1.0)
  SBX_STRICT  1: a skip is a failure, except for the reasons in EXPLAINED
  SBX_KEEP    1: temporary folders (state, log, config) are left for a look
  TMPDIR      where state folders are made (default: /var/tmp); a real disk with a few G of room
"""
import errno
import fcntl
import functools
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
import termios
import time
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SBXFS = Path(os.environ.get("SBXFS") or HERE.parents[1] / "build/fs/sbxfs").resolve()
SCALE = float(os.environ.get("SBX_SCALE", "1.0"))
SLOW = float(os.environ.get("SBX_SLOW", "1.0"))
STRICT = os.environ.get("SBX_STRICT") == "1"
ROOT = os.geteuid() == 0
TMP = os.environ.get("TMPDIR") or "/var/tmp"
HANG = 30 * SLOW  # seconds after which one step counts as hanging

# Skips that are right even with SBX_STRICT=1, each with its explanation.
EXPLAINED = {
    "root": "only root can do this: mount(8) without fusermount3, device nodes, other users' processes",
    "user": "about an ordinary user's daemon; the pass as an ordinary user runs it",
    "cgroup": "limits cannot be set here (no delegated cgroup); the test of the told reason runs instead",
    "sanitizer": "the sanitizer's own memory and descriptors make this meaningless",
    "v2": "about cgroup v1 only",
    "later": "processes/ belongs to a later step",
    "loop": "no loop device or file system tool for a small disk in this container",
    "allow_other": "/etc/fuse.conf has no user_allow_other, so an ordinary user cannot share the mount",
}


def skip(key, detail=""):
    """Skip for a reason of the list above."""
    pytest.skip(f"explained: {key}: {EXPLAINED[key]}{' - ' + detail if detail else ''}")


def need(tool, package=None):
    """The path of a tool, or a skip that names the Debian package."""
    path = shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not path:
        pytest.skip(f"needs {tool}: apt-get install {package or tool}")
    return path


def scaled(n, least=1):
    return max(least, type(n)(n * SCALE))


# ---- waiting and running ----


def wait_for(cond, what, seconds=HANG):
    """Poll until cond() is true; its value. The only place that sleeps."""
    end = time.monotonic() + seconds
    while True:
        value = cond()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds:.0f} s still not: {what}")
        time.sleep(0.003)


class Tool:
    """Outcome of a program: rc, out, err (bytes), text (out as str)."""

    def __init__(self, argv, rc, out, err):
        self.argv, self.rc, self.out, self.err = argv, rc, out, err

    @property
    def text(self):
        return self.out.decode(errors="replace")

    def ok(self):
        assert self.rc == 0, f"{self.argv} -> {self.rc}\n{self.text}\n{self.err.decode(errors='replace')}"
        return self


def spawn(argv, **kw):
    """Start a program in an own process group; a str goes to bash."""
    if isinstance(argv, str):
        argv = ["bash", "-c", argv]
    kw.setdefault("stdin", subprocess.DEVNULL)
    kw.setdefault("stdout", subprocess.PIPE)
    kw.setdefault("stderr", subprocess.PIPE)
    kw.setdefault("start_new_session", True)
    return subprocess.Popen([str(a) for a in argv], **kw)


def kill(proc, sig=signal.SIGKILL):
    """The whole group of a program started by spawn(); never waits for ever."""
    try:
        os.killpg(proc.pid, sig)
    except ProcessLookupError:
        pass
    if sig == signal.SIGKILL:
        try:
            proc.wait(5 * SLOW)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{proc.args} survives SIGKILL, state {proc_state(proc.pid)}") from None


def finish(proc, seconds=HANG, data=None):
    """Wait for a spawned program; a hang is an error and leaves nothing behind."""
    try:
        out, err = proc.communicate(data, timeout=seconds)
    except subprocess.TimeoutExpired:
        state = proc_state(proc.pid)
        kill(proc)
        raise AssertionError(f"hangs (state {state}): {proc.args}") from None
    return Tool(proc.args, proc.returncode, out or b"", err or b"")


def sh(argv, seconds=HANG, data=None, **kw):
    """Run a program (str: bash) to its end."""
    if data is not None:
        kw["stdin"] = subprocess.PIPE
    return finish(spawn(argv, **kw), seconds, data)


def proc_state(pid):
    """One letter of /proc/PID/stat (R, S, D, T, Z), "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def proc_wchan(pid):
    try:
        return Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return ""


def waits_in_fuse(pid):
    """Is a thread of this process, or of a descendant, asleep in a FUSE request?"""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    return any("request_wait" in proc_wchan(t) or "fuse" in proc_wchan(t) for t in tasks) or any(
        waits_in_fuse(c) for c in children(pid)
    )


def something_is_parked():
    """Does a daemon hold a request back? A program that only looks a name up is asleep in FUSE for a moment, too."""
    for m in MOUNTS:
        if m.alive():
            stats = dict(line.split() for line in (m.path / ".sbxfs/stats").read_text().splitlines())
            if int(stats["waiting_requests"]) > 0:
                return True
    return False


def until_waiting(proc, what="the reader"):
    """Return when a spawned program waits in the mount; it must not have ended."""
    wait_for(
        lambda: proc.poll() is not None or (waits_in_fuse(proc.pid) and something_is_parked()),
        f"{what} waits: {proc.args}",
    )
    if proc.poll() is not None:
        done = finish(proc)
        raise AssertionError(f"{what} did not wait: {done.argv} -> {done.rc}, {done.out[-300:]!r}, {done.err[-300:]!r}")


def children(pid):
    """Pids of the children of all threads."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    except OSError:
        pass
    return found


def terminal(argv, steps, seconds=HANG, env=None):
    """Drive a program on a pseudo terminal: for each (text to see, keys to press), then wait for its end.

    Returns the exit status and everything that it showed."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    proc = subprocess.Popen(
        [str(a) for a in argv],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm", **(env or {})},
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    shown, seen, end = b"", 0, time.monotonic() + seconds
    steps = list(steps)
    try:
        while True:
            while steps and (at := shown.find(steps[0][0].encode(), seen)) >= 0:
                seen = at + len(steps[0][0])
                keys = steps.pop(0)[1]  # or a function of the process
                if callable(keys):
                    keys(proc)
                else:
                    os.write(master, keys.encode())
            if not select.select([master], [], [], 0.05)[0]:
                if proc.poll() is not None:
                    break
                if time.monotonic() > end:
                    raise AssertionError(f"{argv} waits for {steps[:1]}; it showed {shown[-600:]!r}")
                continue
            try:
                data = os.read(master, 65536)
            except OSError:  # EIO: the last one closed the terminal
                break
            if not data:
                break
            shown += data
    finally:
        if proc.poll() is None:
            try:
                proc.wait(5 * SLOW)
            except subprocess.TimeoutExpired:
                kill(proc)
        os.close(master)
    assert not steps, f"{argv} ended before {steps[0]}; it showed {shown[-600:]!r}"
    return proc.returncode, shown


def expect_errno(codes, call, *args, **kw):
    """call() must fail with exactly this errno (or one of them)."""
    codes = codes if isinstance(codes, tuple) else (codes,)
    names = " or ".join(errno.errorcode[c] for c in codes)
    try:
        value = call(*args, **kw)
    except OSError as e:
        assert e.errno in codes, f"want {names}, got {errno.errorcode.get(e.errno, e.errno)}: {e}"
        return e
    raise AssertionError(f"want {names}, but it succeeded: {value!r}")


# ---- boxes ----


class Result:
    def __init__(self, out, err, code):
        self.out, self.err, self.code = out, err, code

    @property
    def text(self):
        return self.out.decode(errors="replace")

    def __repr__(self):
        return f"exit {self.code}, stdout {self.out[-300:]!r}, stderr {self.err[-2000:]!r}"

    def ok(self):
        assert self.code == 0, self
        return self


class Box:
    """A sandbox of a mount, seen through the mount."""

    def __init__(self, path):
        self.path = Path(path)
        self.run = self.path / "run"
        self.ws = self.path / "workspace"
        self.name = self.path.name
        self.counts = 0

    def __truediv__(self, name):
        return self.path / name

    def __str__(self):
        return str(self.path)

    def save(self, text, name="code.py", slot="."):
        data = text if isinstance(text, bytes) else text.encode()
        (self.run / slot / name).write_bytes(data)

    def exit(self, slot="."):
        return int((self.run / slot / "exit").read_text())

    def go(self, text, name="code.py", slot="."):
        """Save code, wait for the run, take its results."""
        self.save(text, name, slot)
        at = self.run / slot
        return Result((at / "stdout").read_bytes(), (at / "stderr").read_bytes(), self.exit(slot))

    def start(self, text, name="code.py", slot="."):
        """Save code and return when it really runs: it must print READY as soon as it does."""
        self.save(text, name, slot)
        self.until_logged("READY", slot)

    def until_logged(self, word, slot="."):
        logs = self.run / slot / "logs"
        wait_for(lambda: word.encode() in logs.read_bytes(), f"{word!r} in {logs}: {logs}")

    def json(self, slot="."):
        return json.loads((self.run / slot / "result.json").read_text())

    def status(self, slot="."):
        text = (self.run / slot / "status").read_text()
        assert text.endswith("\n") and text.count("\n") == 1, text
        return text[:-1]

    def until_status(self, word, slot="."):
        wait_for(lambda: self.status(slot).split()[0] == word, f"run status {word!r}, it is {self.status(slot)!r}")

    def error(self):
        return (self.path / "error").read_text()

    def no_failure(self):
        """Nothing failed here; that there are no limits (an ordinary user without cgroups) is no failure."""
        text = self.error()
        return text == "" or text.startswith("no limits of cpu and memory here: ")

    def ready(self):
        (self.path / "ready").read_bytes()
        return self

    def info(self):
        return json.loads((self.path / "info.json").read_text())

    def delete(self):
        self.path.rmdir()


def counted(mark="new"):
    """One line of Python that counts its runs in workspace/runs and says what it is."""
    return f"open('runs','a').write('{mark}\\n');print('{mark}')\n"


def count(box):
    """How often counted() programs ran."""
    try:
        return len((box.ws / "runs").read_text().splitlines())
    except FileNotFoundError:
        return 0


def started(box):
    """How many runs a box has started so far, this one's own not counted: run IDs are numbers in order of their start."""
    if not (box.run / "count").is_dir():
        (box.run / "count").mkdir()
    box.save(":\n", "code.sh", slot="count")
    number = box.json("count")["id"] - 1 - box.counts
    box.counts += 1
    return number


def limits(**kw):
    """Configuration of the default template's limits."""
    return {"templates": {"default": {"limits": kw}}}


@functools.lru_cache(maxsize=1)
def why_no_limits():
    """What `sbxfs check` says if cgroup limits cannot be set here; "" = they can."""
    lines = [line for line in sh([SBXFS, "check"], seconds=60).text.splitlines() if line.startswith("limits")]
    assert lines, "check has a line about limits"
    return "" if re.match(r"limits\s+ok", lines[0]) else lines[0]


def need_limits():
    """Skip where limits cannot be set: a bomb would hit the host. The test below looks whether the reason is told."""
    if why_no_limits():
        skip("cgroup", why_no_limits())


# ---- the daemon ----

MOUNTS = []  # every live Mount, for the watchdog and for reports


def mountpoints():
    """What is mounted, from mountinfo: a stat() could hang."""
    with open("/proc/self/mountinfo") as f:
        return {line.split()[4].encode().decode("unicode_escape"): line for line in f}


def loop_devices(folder):
    """Loop devices whose file lies below a folder, deleted or not."""
    found = []
    for d in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if d.read_text().startswith(str(folder) + "/"):
                found.append(d.parts[3])
        except OSError:
            pass
    return found


def yaml(value, indent=0):
    """Enough YAML for a config file."""
    pad = "  " * indent
    if isinstance(value, dict):
        lines = []
        for key, item in value.items():
            if isinstance(item, dict):
                lines.append(f"{pad}{key}:\n{yaml(item, indent + 1)}")
            else:
                lines.append(f"{pad}{key}: {json.dumps(item)}\n")
        return "".join(lines)
    raise TypeError(value)


def merged(a, b):
    out = dict(a)
    for key, item in (b or {}).items():
        out[key] = merged(out[key], item) if isinstance(item, dict) and isinstance(out.get(key), dict) else item
    return out


class Mount:
    """One daemon with its state folder, mount point and log.

    config: added to the config file (nested dicts); options: more -o options; limits: {RLIMIT: soft};
    allow: regular expressions of log lines that may say error."""

    def __init__(self, config=None, options=(), limits=None, env=None, uid=None, state=None, source="local"):
        self.base = Path(tempfile.mkdtemp(prefix="sbxfs-test-", dir=TMP)).resolve()
        self.base.chmod(0o755)
        self.state = Path(state) if state else self.base / "state"
        self.path = self.base / "mnt"
        self.path.mkdir()
        self.log_file = self.base / "log"
        self.config_file = self.base / "config.yaml"
        self.config = merged({"state_dir": str(self.state)}, config)
        self.config_file.write_text(yaml(self.config))
        self.options, self.limits, self.env, self.source = list(options), limits or {}, env or {}, source
        self.allowed, self.ids, self.proc, self.boxes = [], set(), None, 0
        MOUNTS.append(self)

    def __truediv__(self, name):
        return self.path / name

    def command(self):
        return [
            str(SBXFS),
            "-f",
            self.source,
            str(self.path),
            "-o",
            ",".join([f"config={self.config_file}", *self.options]),
        ]

    def start(self):
        def child():
            for which, soft in self.limits.items():
                resource.setrlimit(which, (soft, soft))

        log = open(self.log_file, "ab")
        self.proc = subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            close_fds=True,
            start_new_session=True,
            env={**os.environ, **self.env},
            preexec_fn=child,
        )
        log.close()
        wait_for(lambda: self.proc.poll() is not None or str(self.path) in mountpoints(), "mounted")
        if self.proc.poll() is not None:
            raise AssertionError(f"the daemon ended with {self.proc.returncode} instead of mounting:\n{self.log()}")
        (self.path / ".sbxfs/version").read_text()
        return self

    @property
    def pid(self):
        return self.proc.pid

    def alive(self):
        return self.proc is not None and self.proc.poll() is None

    def log(self):
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def allow(self, *patterns):
        """These failures are what the test is about: the log may have them."""
        self.allowed += patterns

    def box(self, name=None):
        self.boxes += 1
        path = self.path / (name or f"b{self.boxes}")
        path.mkdir()
        box = Box(path)
        self.note(box)
        return box

    def note(self, box):
        """Remember the container's id, to look for its leftovers."""
        try:
            info = box.info()
        except (OSError, ValueError):
            return
        for key in ("id", "container"):
            if isinstance(info.get(key), str) and len(info[key]) > 3:
                self.ids.add(info[key])

    def mounted(self):
        return str(self.path) in mountpoints()

    def unmount(self, *flags):
        return sh(["fusermount3", "-u", *flags, str(self.path)])

    def stop(self):
        """Unmount; the daemon must end with 0, and leave nothing."""
        problems = []
        if self.proc is not None:
            problems = self.end()
        problems += self.log_problems() + self.leftovers()
        return problems

    def end(self):
        problems = []
        last = None

        def gone():
            nonlocal last
            if not self.mounted():
                return True
            last = self.unmount()
            return last.rc == 0 or not self.mounted()

        if self.alive():
            try:
                wait_for(gone, "unmounted", 10 * SLOW)
            except AssertionError:
                problems.append(f"cannot unmount: {last.err.decode()!r}")
        self.force_unmount()
        try:
            rc = self.proc.wait(HANG)
            if rc != 0:
                problems.append(f"the daemon ended with {rc}, not 0")
        except subprocess.TimeoutExpired:
            held = self.holders()
            problems.append(f"the daemon does not end after the unmount; others hold the mount: {held}\n{self.stacks()}")
            self.proc.kill()
            self.proc.wait()
        self.proc = None
        return problems

    def holders(self):
        """Processes in other mount namespaces that have a copy of the mount: as long as they live it is not really gone."""
        found, here = [], os.readlink("/proc/self/ns/mnt")
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/ns/mnt") != here and f" {self.path} " in Path(f"/proc/{pid}/mountinfo").read_text():
                    found.append((int(pid), Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:100]))
            except OSError:
                pass
        return found

    def stacks(self):
        """What the threads of the daemon wait for, and gdb's view if there is one."""
        out = []
        for task in os.listdir(f"/proc/{self.pid}/task"):
            out.append(f"{task}: {proc_wchan(self.pid)}")
        if shutil.which("gdb"):
            out.append(sh(["gdb", "-p", str(self.pid), "-batch", "-ex", "thread apply all bt 12"]).text[-6000:])
        return "\n".join(out)

    def force_unmount(self):
        for _ in range(3):
            if not self.mounted():
                return
            sh(["fusermount3", "-u", "-z", str(self.path)])

    def kill(self, sig=signal.SIGKILL):
        """End the daemon by a signal; after SIGKILL the dead mount is taken away too. The exit status."""
        os.kill(self.pid, sig)
        rc = self.proc.wait(HANG)
        if sig == signal.SIGKILL:
            self.force_unmount()
        self.proc = None
        return rc

    def restart(self):
        problems = self.end()
        assert not problems, problems
        return self.start()

    def log_problems(self):
        bad = []
        for line in self.log().splitlines():
            report = any(
                w in line
                for w in (
                    "ERROR: AddressSanitizer",
                    "ERROR: LeakSanitizer",
                    "WARNING: ThreadSanitizer",
                    "runtime error:",
                )
            )
            if report or (" error: " in line and not any(re.search(p, line) for p in self.allowed)):
                bad.append("log: " + line)
        if any("Sanitizer" in b for b in bad):
            bad.append(self.log()[-8000:])
        return bad

    def processes(self):
        """(pid, command line) of everything that belongs to this state: it names the folder, has it mounted in a
        mount namespace of its own, or is in a cgroup of one of its containers. Without the daemon itself."""
        found = []
        state, here = str(self.state), os.readlink("/proc/self/ns/mnt")
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if self.proc is not None and int(pid) == self.proc.pid:
                continue
            try:
                cmd = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if not cmd or proc_state(pid) in ("Z", ""):
                    continue
                mine = state in cmd or any(i in Path(f"/proc/{pid}/cgroup").read_text() for i in self.ids)
                if not mine and os.readlink(f"/proc/{pid}/ns/mnt") != here:
                    mine = state + "/" in Path(f"/proc/{pid}/mountinfo").read_text(errors="replace")
            except OSError:
                continue
            if mine:
                found.append((int(pid), cmd))
        return found

    def cgroups(self):
        if not self.ids:
            return []
        return [d for d, _, _ in os.walk("/sys/fs/cgroup") if any(i in os.path.basename(d) for i in self.ids)]

    def leftovers(self):
        def look():
            left = []
            if self.mounted():
                left.append(f"still mounted: {self.path}")
            left += [f"process left: {pid} {cmd}" for pid, cmd in self.processes()]
            left += [f"cgroup left: {c}" for c in self.cgroups()]
            left += [f"mounted below the state: {m}" for m in mountpoints() if m.startswith(str(self.state) + "/")]
            left += [f"loop device left: {d}" for d in loop_devices(self.state)]
            return left

        try:
            wait_for(lambda: not look(), "nothing left", 5 * SLOW)
        except AssertionError:
            return look()
        return []

    def remove(self):
        """Forget the folder; whatever a failed test left is ended first, by its pid."""
        if self in MOUNTS:
            MOUNTS.remove(self)
        for pid, _ in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        for m in mountpoints():
            if m.startswith(str(self.state) + "/"):
                sh(["umount", "-l", m])
        if os.environ.get("SBX_KEEP") != "1":
            shutil.rmtree(self.base, onerror=make_removable)


def make_removable(function, path, _):
    """A box may leave folders without permissions. The folder of all temporary folders is not ours."""
    try:
        if not os.path.samefile(os.path.dirname(path), TMP):
            os.chmod(os.path.dirname(path), 0o700)
        if stat.S_ISDIR(os.lstat(path).st_mode):
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    except OSError:
        pass
