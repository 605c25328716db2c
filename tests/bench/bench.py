# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmark: makes a daemon with a state folder and a mount of its own, lets bench-cycle, bench-files and
bench-readers measure, and prints a table.  Started by run.sh, which says what is needed.

Every comparison is made in turns within each block; a row quotes the median of the blocks, and as ratio the median of the
blocks' ratios: a busy moment of the machine then meets both sides."""
import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

SBXFS = os.environ["SBXFS"]
TOOLS = Path(os.environ["BENCH_DIR"]).resolve()
EXAMPLES = Path("/usr/share/doc/libfuse3-dev/examples")
ID_BASE, ID_STEP = 0x70000000, 65536  # lib/local/state.h
MIB = 1 << 20


class Missing(Exception):
    """What a row needs and is not there: the row fails, the others go on."""


def need(tool):
    path = shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not path:
        raise Missing(f"{tool} is not installed")
    return path


def output(argv, **kw):
    done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw)
    if done.returncode != 0:
        raise Missing(f"{Path(str(argv[0])).name} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def until(cond, what, seconds=30):
    end = time.monotonic() + seconds
    while not cond():
        if time.monotonic() > end:
            raise Missing(f"after {seconds} s still not: {what}")
        time.sleep(0.005)


def mounted(path):
    return f" {path} " in Path("/proc/self/mountinfo").read_text()


# ---- the daemon ----


class Daemon:
    def __init__(self, base, name):
        self.path, self.state, self.log = base / name, base / f"{name}-state", base / f"{name}.log"
        self.path.mkdir()
        self.config = base / f"{name}.yaml"
        self.config.write_text(
            f"state_dir: {self.state}\noci_runtime: runc\ntemplates:\n  default:\n    limits:\n      output: 1G\n"
        )
        self.proc = None

    def start(self):
        with open(self.log, "ab") as log:
            self.proc = subprocess.Popen(
                [SBXFS, "-f", "local", str(self.path), "-o", f"config={self.config}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(lambda: self.proc.poll() is not None or mounted(self.path), "mounted")
        if self.proc.poll() is not None:
            raise Missing(f"the daemon does not start: {self.log.read_text().strip()[-300:]}")
        (self.path / ".sbxfs/version").read_text()
        return self

    def box(self, name):
        box = self.path / name
        box.mkdir()
        (box / "ready").read_text()
        return box

    def thread_count(self):
        return len(os.listdir(f"/proc/{self.proc.pid}/task"))

    def rss_mb(self):
        pages = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.proc.pid}/status").read_text())
        return int(pages[1]) / 1024

    def stop(self, delete):
        if not self.proc:
            return
        if delete and self.proc.poll() is None and mounted(self.path):
            for name in os.listdir(self.path):
                with contextlib.suppress(OSError):
                    (self.path / name).rmdir()
        self.proc.send_signal(signal.SIGTERM)
        try:
            self.proc.wait(60)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
            subprocess.run(["fusermount3", "-u", "-z", str(self.path)])
        self.proc = None


# ---- rows ----


class Row:
    """One line of the table. ok: True, False, or None where there is no target."""

    def __init__(self, work, value, against="", ratio="", target="", ok=None):
        self.work, self.value, self.against, self.ratio, self.target, self.ok = work, value, against, ratio, target, ok


class Bench:
    def __init__(self, base, quick):
        self.base, self.quick = base, quick
        self.rows = []
        self.daemon = Daemon(base, "mnt").start()
        self.blocks = 3 if quick else 9

    def add(self, *row, **kw):
        self.rows.append(Row(*row, **kw))
        r = self.rows[-1]
        print(f"  {r.work}: {r.value} {r.against} {r.ratio}", file=sys.stderr)

    def cycle(self, count, *subjects):
        """[medians of subject 1 by block, ...] in ms"""
        argv = [TOOLS / "bench-cycle", self.blocks, count]
        for i, subject in enumerate(subjects):
            argv += ["::"] * (i > 0) + list(subject)
        lines = output(argv).splitlines()
        return [[float(v) / 1000 for v in column] for column in zip(*map(str.split, lines))]

    # write and read in one process, against other ways to start a sandboxed program

    def row_cycle(self):
        box, other = self.daemon.box("cycle"), self.daemon.box("other")
        folder = self.base / "bwrap"
        folder.mkdir()
        os.chown(folder, 1000, 1000)
        ours = ["run", "0\n", box / "run/code.sh", ":", box / "run/exit"]
        bwrap = ["spawn", "", "/", need("bwrap"), "--unshare-all", "--new-session", "--die-with-parent"]
        bwrap += ["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"]
        bwrap += ["--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        bwrap += ["--bind", folder, "/workspace", "--chdir", "/workspace", "--uid", "1000", "--gid", "1000"]
        bwrap += ["--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/workspace", "/bin/sh", "-c", ":"]
        # the container of another box: exactly the same configuration
        name = json.loads((other / "info.json").read_text())["id"]
        root = f"/run/sbxfs/{name.split('-')[1]}/oci"
        runc = ["spawn", "", "/", need("runc"), "--root", root, "exec", "--user", "1000:1000", "--cwd", "/workspace"]
        runc += [name, "/bin/sh", "-c", ":"]
        sbx, bw, rc = self.cycle(20 if self.quick else 60, ours, bwrap, runc)
        self.compare("write `:` to code.sh, read exit", "bwrap", sbx, bw, 1.0)
        self.compare("write `:` to code.sh, read exit", "runc exec, same container settings", sbx, rc, 0.2)

    def compare(self, work, other, ours, theirs, most, unit="ms"):
        """Ours may take at most @most of their time."""
        ratio = median(a / b for a, b in zip(ours, theirs))
        target = f"at most {most:g}" if most is not None else ""
        self.add(
            work, f"{median(ours):.3g} {unit}", f"{median(theirs):.3g} {unit} ({other})", f"{ratio:.2f}", target,
            ok=ratio <= most if most is not None else None,
        )

    def row_shell(self):
        box = self.daemon.box("shell")
        ours = ["spawn", "1\n", box / "run", "bash", "-c", "echo 'print(1)' > code.py; cat stdout"]
        plain = ["spawn", "1\n", "/", "bash", "-c", "/usr/bin/python3 -c 'print(1)'"]
        both = self.cycle(10 if self.quick else 40, ours, plain)
        self.compare("`bash -c \"echo 'print(1)' > code.py; cat stdout\"`", "`bash -c \"python3 -c 'print(1)'\"`", *both, 1.25)

    # files, against libfuse's example

    def passthrough(self):
        """A folder beside the state, seen through passthrough_ll: (process, mount)."""
        source, mnt, binary = self.base / "plain", self.base / "plain-mnt", self.base / "passthrough_ll"
        text = self.base / "passthrough_ll.c"
        source.mkdir()
        mnt.mkdir()
        if (EXAMPLES / "passthrough_ll.c").exists():
            shutil.copy(EXAMPLES / "passthrough_ll.c", text)
        elif (EXAMPLES / "passthrough_ll.c.gz").exists():
            text.write_text(output(["gzip", "-dc", EXAMPLES / "passthrough_ll.c.gz"]))
        else:
            raise Missing(f"no passthrough_ll.c in {EXAMPLES} (Debian: libfuse3-dev)")
        for name in ("passthrough_helpers.h",):
            if (EXAMPLES / name).exists():
                shutil.copy(EXAMPLES / name, self.base)
        flags = output(["pkg-config", "--cflags", "--libs", "fuse3"]).split()
        output([need("cc"), "-O2", "-g", "-w", text, "-o", binary, *flags])
        proc = subprocess.Popen(
            [str(binary), "-f", "-o", f"source={source},cache=auto,timeout=0", str(mnt)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        until(lambda: mounted(mnt) or proc.poll() is not None, "passthrough_ll mounted")
        if proc.poll() is not None:
            raise Missing("passthrough_ll does not start")
        return proc, mnt

    def row_workspace(self):
        box = self.daemon.box("files")
        proc, mnt = self.passthrough()
        try:
            (mnt / "box/workspace").mkdir(parents=True)  # as deep as ours: the kernel asks for each name of a path
            self.files(box / "workspace", mnt / "box/workspace")
        finally:
            proc.terminate()
            proc.wait(30)
            if mounted(mnt):
                subprocess.run(["fusermount3", "-u", "-z", str(mnt)])

    def rounds(self, *argv):
        """[figures of the first folder by round], [of the second]"""
        lines = [[float(v) for v in line.split()] for line in output([TOOLS / "bench-files", *argv]).splitlines()]
        return [v[: len(v) // 2] for v in lines], [v[len(v) // 2 :] for v in lines]

    def files(self, ours, theirs):
        size, count = (64 if self.quick else 256) * MIB, 500 if self.quick else 2000
        other = "passthrough_ll"
        for chunk in (128 << 10, MIB):
            a, b = self.rounds("stream", self.blocks, size, chunk, ours, theirs)
            for i, what in enumerate(("write", "read")):
                speed = median(x[i] / y[i] for x, y in zip(a, b))
                self.add(
                    f"workspace: {what} {size // MIB} MB by {chunk >> 10}K",
                    f"{median(x[i] for x in a):.0f} MB/s", f"{median(y[i] for y in b):.0f} MB/s ({other})",
                    f"{speed:.2f}", "at least 0.9", ok=speed >= 0.9,
                )
        a, b = self.rounds("names", self.blocks, count, ours, theirs)
        for i, what in enumerate(("create and close", "stat", "unlink")):
            speed = median(y[i] / x[i] for x, y in zip(a, b))
            self.add(
                f"workspace: {what}, {count} files", f"{median(x[i] for x in a):.1f} us",
                f"{median(y[i] for y in b):.1f} us ({other})", f"{speed:.2f}", "at least 0.9", ok=speed >= 0.9,
            )

    # waiting readers

    def list_us(self, *folders, n=200):
        """Medians of listings in turns."""
        times = [[] for _ in folders]
        for _ in range(n):
            for folder, own in zip(folders, times):
                start = time.perf_counter()
                os.listdir(folder)
                own.append((time.perf_counter() - start) * 1e6)
        return [median(own) for own in times]

    def readers(self, box, n):
        proc = subprocess.Popen([str(TOOLS / "bench-readers"), str(n), str(box / "run/exit")], stdout=subprocess.PIPE)
        if proc.stdout.readline() != b"waiting\n":
            proc.wait()
            raise Missing("the readers do not start")
        return proc

    def row_waiting(self):
        daemons = []
        try:
            for name in ("busy", "quiet"):
                daemons.append(Daemon(self.base, name).start())
            self.waiting(*daemons)
        finally:
            for daemon in daemons:
                daemon.stop(delete=True)

    def waiting(self, busy, quiet, n=1000):
        box, other = busy.box("box"), quiet.box("box")
        code = "while [ ! -e go ]; do sleep 0.05; done; rm go\n"
        for b in (box, other):
            (b / "run/code.sh").write_text(":")
            self.readers(b, n).communicate()  # the burst of opens as such may start workers
        folders = {"the root": (busy.path, quiet.path), "BOX/run": (box / "run", other / "run")}
        times, threads = {}, []
        for _ in range(self.blocks):
            before = busy.thread_count()
            (box / "run/code.sh").write_text(code)
            proc = self.readers(box, n)
            for name, pair in folders.items():
                times.setdefault(name, []).append(self.list_us(*pair))
            threads.append((before, busy.thread_count()))
            (box / "workspace/go").touch()
            proc.communicate()
            if proc.returncode != 0:
                raise Missing("a waiting reader failed")
        before, during = max(threads, key=lambda t: t[1] - t[0])
        self.add(f"{n} waiting readers: threads of the daemon", str(during), f"{before} (none waiting)", "", "unchanged",
                 ok=during <= before)
        for name, pairs in times.items():
            self.compare(f"{n} waiting readers: list {name}", "none waiting", *zip(*pairs), 1.2, unit="us")

    # many boxes

    def copies(self, state, n):
        """Boxes that were made and stopped: the first one's folder with other ids."""
        boxes = state / "boxes"
        (first,) = boxes.iterdir()
        record = json.loads((first / "box.json").read_text())
        for i in range(n - 1):
            folder = boxes / f"box{i:04}"
            (folder / "workspace").mkdir(parents=True)
            folder.chmod(0o700)
            slot = (record["id_base"] - ID_BASE) // ID_STEP + 1 + i
            own = dict(record, id=f"{int(record['id'], 16) ^ (i + 1):08x}", id_base=ID_BASE + slot % 4000 * ID_STEP)
            os.chown(folder / "workspace", own["id_base"] + 1000, own["id_base"] + 1000)
            (folder / "box.json").write_text(json.dumps(own))

    def row_boxes(self):
        n = 1000
        many = Daemon(self.base, "many").start()
        try:
            rss = []
            for name in ("a", "b", "c"):
                many.box(name)
            until(lambda: not rss.append(many.rss_mb()) and len(rss) > 100, "half a second")
            self.add("daemon idle with 3 running boxes: resident memory", f"{rss[-1]:.1f} MB", "", "", "below 20 MB",
                     ok=rss[-1] < 20)
            for name in ("b", "c"):
                (many.path / name).rmdir()
            until(lambda: len(os.listdir(many.state / "boxes")) == 1, "the boxes are gone")
            many.stop(delete=False)
            self.copies(many.state, n)
            plain, full = [], []
            for _ in range(3 if self.quick else 7):
                many.start()
                start = time.perf_counter()
                names = os.listdir(many.path)
                plain.append((time.perf_counter() - start) * 1000)
                start = time.perf_counter()
                with os.scandir(many.path) as entries:
                    infos = [e.stat(follow_symlinks=False) for e in entries]
                full.append((time.perf_counter() - start) * 1000)
                if len(names) != n + 1 or len(infos) != n + 1:  # and .sbxfs
                    raise Missing(f"{len(names) - 1} boxes are listed, not {n}")
                size = many.rss_mb()
                many.stop(delete=False)
            self.add(f"{n} boxes: first listing of names after the mount", f"{median(plain):.1f} ms", "", "", "below 100 ms",
                     ok=median(plain) < 100)
            self.add(f"{n} boxes: as `ls -l` does, with attributes", f"{median(full):.1f} ms", "", "", "below 100 ms",
                     ok=median(full) < 100)
            self.add(f"{n} boxes: resident memory of the daemon", f"{size:.1f} MB")
        finally:
            if many.proc:
                many.stop(delete=True)
            shutil.rmtree(many.state / "boxes", ignore_errors=True)

    # for information

    def row_info(self):
        ready, gone = [], []
        for i in range(3 if self.quick else 15):
            start = time.perf_counter()
            box = self.daemon.box(f"ready{i}")
            ready.append((time.perf_counter() - start) * 1000)
            start = time.perf_counter()
            box.rmdir()
            gone.append((time.perf_counter() - start) * 1000)
        self.add("mkdir BOX until `ready` opens", f"{median(ready):.1f} ms")
        self.add("rmdir BOX", f"{median(gone):.2f} ms")
        box = self.daemon.box("info")
        first = []
        for _ in range(20 if self.quick else 100):
            start = time.perf_counter()
            (box / "run/code.sh").write_text("echo x; sleep 0.02")
            with open(box / "run/stream", "rb", buffering=0) as f:
                f.read(1)
                first.append((time.perf_counter() - start) * 1000)
                f.read(1)
            (box / "run/exit").read_text()
        self.add("save code.sh until the first byte of `stream`", f"{median(first):.2f} ms")
        size, speed, wrote = 200 * MIB, [], []
        for _ in range(2 if self.quick else 5):
            start = time.perf_counter()
            (box / "run/code.sh").write_text(f"head -c {size} /dev/zero")
            with open(box / "run/stdout", "rb", buffering=0) as f:
                wrote.append(size / MIB / (time.perf_counter() - start))
                got = 0
                while chunk := f.read(MIB):
                    got += len(chunk)
            speed.append(size / MIB / (time.perf_counter() - start))
            if got != size:
                raise Missing(f"{got} of {size} bytes of output came")
        self.add("200 MB of stdout: the program is done", f"{median(wrote):.0f} MB/s")
        self.add("200 MB of stdout: and read by `cat`", f"{median(speed):.0f} MB/s")

    def close(self):
        self.daemon.stop(delete=True)


def machine():
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return f"{os.cpu_count()} cores ({model[1] if model else platform.machine()}), Linux {platform.release()}"


def table(rows):
    lines = ["| work | sbxfs | against | ratio | target | |", "|---|---|---|---|---|---|"]
    for r in rows:
        word = "" if r.ok is None else "met" if r.ok else "**missed**"
        lines.append(f"| {r.work} | {r.value} | {r.against} | {r.ratio} | {r.target} | {word} |")
    return "\n".join(lines)


def main():
    names = [n[4:] for n in vars(Bench) if n.startswith("row_")]
    parser = argparse.ArgumentParser(description="measures the local rows of the targets")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller rounds: shows that it works")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=" ".join(names))
    args = parser.parse_args()
    if set(args.rows) - set(names):
        parser.error(f"rows are {' '.join(names)}")
    base = Path(tempfile.mkdtemp(prefix="sbxfs-bench-", dir=os.environ.get("TMPDIR") or "/var/tmp")).resolve()
    base.chmod(0o755)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bench, failed = None, False
    try:
        bench = Bench(base, args.quick)
        for name in args.rows or names:
            try:
                getattr(bench, f"row_{name}")()
            except (Missing, OSError) as e:
                failed = True
                bench.add(f"{name}: not measured: {e}", "", ok=False)
        print(f"{machine()}\n\n{table(bench.rows)}")
        failed = failed or any(r.ok is False for r in bench.rows)
    except Missing as e:
        print(f"bench: {e}", file=sys.stderr)
        failed = True
    finally:
        if bench:
            bench.close()
        shutil.rmtree(base, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
