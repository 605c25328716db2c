# SPDX-License-Identifier: Apache-2.0
"""process/* of the agent server: real programs, with the real one's ways of losing their output.

Owns: the pipes of the programs and the table of `exec`.  A thread for each request, two more for each stream."""
import collections
import os
import queue
import random
import select
import signal
import string
import subprocess
import threading
import time

from shapes import failure, json_body, stamp, success, words
from wire import Reply, dump, reply_json

SIGNALS = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT, "SIGHUP": signal.SIGHUP}
KEPT_S = 4 * 3600
STREAM = "text/event-stream"
EXEC = ({"command": "string"}, {"args": "[string]", "cwd": "string", "env": "{string}", "shell": "string", "timeout": "u64"})


def event(name, **fields):
    return f"event: {name}\ndata: ".encode() + dump({**fields, "timestamp": stamp()}) + b"\n\n"


def lines_of(fd):
    """Lines with their newline as they come; the last one may have none."""
    parts = []
    while True:
        try:
            data = os.read(fd, 65536)
        except OSError:
            data = b""
        if not data:
            if parts:
                yield b"".join(parts)
            return
        start = 0
        while True:
            end = data.find(b"\n", start)
            if end < 0:
                break
            parts.append(data[start:end + 1])
            yield b"".join(parts)
            parts.clear()
            start = end + 1
        if start < len(data):
            parts.append(data[start:])


class Entry:
    """One program of `exec`."""

    def __init__(self, command, proc, keep):
        self.id = "".join(random.choices(string.ascii_lowercase + string.digits, k=8))
        self.command = command
        self.proc = proc
        self.status = "running"
        self.started = time.time()
        self.ended = None
        self.exit_code = None
        self.lock = threading.Lock()
        self.logs = collections.deque(maxlen=keep)
        self.followers = []

    def add(self, line):
        with self.lock:
            self.logs.append(line)
            for q in self.followers:
                try:
                    q.put_nowait(line)
                except queue.Full:  # a slow reader: the oldest lines are lost to it
                    q.get_nowait()
                    q.put_nowait(line)
                    q.lagged = True

    def state(self):
        return {
            "processId": self.id, "pid": self.proc.pid, "command": self.command, "processStatus": self.status,
            "startTime": stamp(self.started), "endTime": None if self.ended is None else stamp(self.ended),
            "exitCode": self.exit_code,
        }


class Processes:
    def __init__(self, files, env, cwd, faults):
        self.files = files
        self.env = env
        self.cwd = cwd
        self.faults = faults
        self.table = {}

    def spawn(self, body):
        """The program started, stdin empty, output in pipes. OSError as the system says it."""
        args = body.get("args")
        if body.get("shell"):
            text = " ".join([body["command"]] + ["'" + a.replace("'", "'\\''") + "'" for a in args or ()])
            argv = [body["shell"], "-c", text]
        elif args is not None:
            argv = [body["command"], *args]
        else:
            argv = body["command"].split() or [body["command"]]
        cwd = self.files.path(body["cwd"]) if body.get("cwd") is not None else self.cwd
        env = dict(self.env, **(body.get("env") or {}))
        try:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    bufsize=0, cwd=cwd, env=env)
        except ValueError as err:  # a NUL in an argument
            raise OSError(22, os.strerror(22)) from err

    # ---- exec-sync ----

    def exec_sync(self, request):
        body = json_body(request, *EXEC)
        started = stamp()
        begin = time.monotonic()
        try:
            proc = self.spawn(body)
        except OSError as err:
            message = words(err)
            if err.errno == 2:
                message = f'exec: "{body["command"]}": executable file not found in $PATH'
            return reply_json({
                "status": 1600, "durationMs": ms(begin), "endTime": stamp(), "exitCode": 127, "startTime": started,
                "stderr": message, "stdout": "",
            })
        seconds = body.get("timeout")
        out = collect(proc, begin + (30 if seconds is None else seconds))
        if out is None:  # nothing is killed, and what was written is lost
            return failure(1500, "Process execution timed out")
        return success(
            stdout=out[0].decode("utf-8", "replace"), stderr=out[1].decode("utf-8", "replace"),
            exitCode=code_of(proc.returncode), durationMs=ms(begin), startTime=started, endTime=stamp(),
        )

    # ---- sync-stream ----

    def sync_stream(self, request):
        body = json_body(request, *EXEC)
        return Reply(200, self.stream(body), STREAM, [("cache-control", "no-cache")])

    def stream(self, body):
        yield event("start")
        begin = time.monotonic()
        try:
            proc = self.spawn(body)
        except OSError as err:
            yield event("error", error=words(err), durationMs=0)
            return
        run = Stream(proc, self.faults)
        seconds = body.get("timeout")
        run.start(begin, 300 if seconds is None else seconds)
        try:
            yield from run.events(self.faults["keepalive_s"])
        finally:
            run.gone.set()  # the client went away: the program runs on, its output goes nowhere

    # ---- exec and what is asked of it ----

    def exec(self, request):
        body = json_body(request, *EXEC)
        try:
            proc = self.spawn(body)
        except OSError as err:
            return failure(1600, f"Failed to spawn process: {words(err)}")
        entry = Entry(body["command"], proc, self.faults["log_lines"])
        self.table[entry.id] = entry
        for fd, name in ((proc.stdout, "[stdout] "), (proc.stderr, "[stderr] ")):
            threading.Thread(target=self.pump, args=(entry, fd, name), daemon=True).start()
        seconds = body.get("timeout")
        threading.Thread(target=self.wait, args=(entry, 7200 if seconds is None else seconds), daemon=True).start()
        return success(processId=entry.id, pid=proc.pid, processStatus="running")

    def pump(self, entry, pipe, name):
        with pipe:
            for line in lines_of(pipe.fileno()):
                try:
                    text = line.decode("utf-8", "strict" if self.faults["strict_utf8"] else "replace")
                except UnicodeDecodeError:
                    return
                entry.add(name + text)

    def wait(self, entry, seconds):
        proc = entry.proc
        if not ended_within(proc, seconds):
            proc.kill()  # the program itself; whatever it started lives on
        proc.wait()
        if proc.returncode == 0:
            entry.status = "completed"
        else:
            entry.status = "killed" if proc.returncode < 0 else "failed"
        entry.exit_code = proc.returncode if proc.returncode >= 0 else 128 - proc.returncode
        entry.ended = time.time()
        timer = threading.Timer(KEPT_S, self.table.pop, (entry.id, None))
        timer.daemon = True
        timer.start()

    def list(self, request):
        return success(processes=[entry.state() for entry in list(self.table.values())])

    def status(self, request, name):
        entry = self.table.get(name)
        return success(**entry.state()) if entry else failure(1404, "Process not found")

    def kill(self, request, name):
        entry = self.table.get(name)
        if not entry:
            return failure(1404, "Process not found")
        if entry.status != "running":
            return failure(1409, "Process is not running")
        number = SIGNALS.get(dict(request.fields()).get("signal", "SIGKILL"), signal.SIGKILL)
        try:
            os.kill(entry.proc.pid, number)
        except OSError as err:
            return failure(1500, f"Failed to signal process: {err.strerror}")
        if number == signal.SIGKILL:
            entry.status = "killed"
        return success(success=True)

    def logs(self, request, name):
        entry = self.table.get(name)
        if not entry:
            return failure(1404, "Process not found")
        q = dict(request.fields())
        tail = int(q["tail"]) if q.get("tail", "").isdigit() else None
        if q.get("stream") == "true" or request.headers.get("accept") == STREAM:
            return Reply(200, self.follow(entry, tail), STREAM, [("cache-control", "no-cache")])
        with entry.lock:
            lines = list(entry.logs)
        if tail is not None:
            lines = lines[max(0, len(lines) - tail):]
        s = entry.state()
        return success(processId=s["processId"], pid=s["pid"], processStatus=s["processStatus"], exitCode=s["exitCode"], logs=lines)

    def follow(self, entry, tail):
        """What is kept, then what comes; never ends."""
        q = queue.Queue(100)
        q.lagged = False
        with entry.lock:
            lines = list(entry.logs)
            entry.followers.append(q)
        try:
            for line in lines if tail is None else lines[max(0, len(lines) - tail):]:
                yield log_event(line)
            while True:
                try:
                    line = q.get(timeout=self.faults["keepalive_s"])
                except queue.Empty:
                    yield b":\n\n"
                    continue
                if q.lagged:
                    q.lagged = False
                    yield b"event: error\ndata: stream error\n\n"
                yield log_event(line)
        finally:
            with entry.lock:
                entry.followers.remove(q)


class Stream:
    """One sync-stream: readers of both pipes and a waiter put events into a queue that the connection empties."""

    def __init__(self, proc, faults):
        self.proc = proc
        self.queue = queue.Queue(100)
        self.gone = threading.Event()
        self.ended = threading.Event()  # `complete` or `error` is in the queue
        self.left = 3
        self.lock = threading.Lock()
        self.hold_s = faults["complete_first_s"] if faults.chance("complete_first") else 0
        self.strict = faults["strict_utf8"]

    def start(self, begin, seconds):
        for pipe, name in ((self.proc.stdout, "stdout"), (self.proc.stderr, "stderr")):
            threading.Thread(target=self.read, args=(pipe, name), daemon=True).start()
        threading.Thread(target=self.wait, args=(begin, seconds), daemon=True).start()

    def put(self, item):
        while not self.gone.is_set():
            try:
                self.queue.put(item, timeout=0.2)
                return
            except queue.Full:
                pass

    def done(self):
        with self.lock:
            self.left -= 1
            last = self.left == 0
        if last:
            self.put(None)

    def read(self, pipe, name):
        held = None
        with pipe:
            for line in lines_of(pipe.fileno()):
                if self.hold_s and not self.ended.is_set() and (held is None or time.monotonic() - held > 10 * self.hold_s):
                    self.ended.wait(self.hold_s)  # not of every line: a burst is no slower for it
                    held = time.monotonic()
                try:
                    text = line.decode("utf-8", "strict" if self.strict else "replace")
                except UnicodeDecodeError:
                    break  # silently; closing the pipe kills the program at its next write
                self.put(event(name, output=text))
        self.done()

    def wait(self, begin, seconds):
        if ended_within(self.proc, seconds):
            self.proc.wait()
            self.put(event("complete", exitCode=code_of(self.proc.returncode), duration=ms(begin)))
        else:
            self.proc.kill()  # grandchildren live on and hold the stream open
            self.put(event("error", error="Execution timeout", durationMs=ms(begin)))
        self.ended.set()
        self.proc.wait()
        self.done()

    def events(self, keepalive_s):
        while True:
            try:
                item = self.queue.get(timeout=keepalive_s)
            except queue.Empty:
                item = b":\n\n"
            if item is None:
                return
            yield item


def log_event(line):
    return "".join(f"data: {part}\n" for part in line.split("\n")).encode() + b"\n"


def code_of(returncode):
    return returncode if returncode >= 0 else None


def ms(begin):
    return int((time.monotonic() - begin) * 1000)


def ended_within(proc, seconds):
    """Whether the program ends in this time; noticed at once, where Popen.wait(timeout) sleeps between looks."""
    fd = os.pidfd_open(proc.pid)
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(max(0, min(seconds, 1e6)) * 1000))
    finally:
        os.close(fd)


def collect(proc, deadline):
    """(stdout, stderr) when both are closed and the program has ended; None at the deadline."""
    out = {proc.stdout.fileno(): [], proc.stderr.fileno(): []}
    poll = select.poll()
    for fd in out:
        poll.register(fd, select.POLLIN)
    open_fds = len(out)
    ended = True
    while open_fds:
        left = deadline - time.monotonic()
        ready = poll.poll(min(left * 1000, 1e8)) if left > 0 else ()
        if not ready:
            ended = False
            break
        for fd, _ in ready:
            data = os.read(fd, 262144)
            if data:
                out[fd].append(data)
            else:
                poll.unregister(fd)
                open_fds -= 1
    if ended and ended_within(proc, deadline - time.monotonic()):
        proc.wait()
    else:
        ended = False
    both = [b"".join(parts) for parts in out.values()]
    proc.stdout.close()
    proc.stderr.close()
    if ended:
        return both
    threading.Thread(target=proc.wait, daemon=True).start()
    return None
