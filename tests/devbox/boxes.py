# SPDX-License-Identifier: Apache-2.0
"""The boxes of the service: what each is, what state it is in, and its agent process if it has one.

The agent is forked at the first connection to the box's port: a thousand boxes that are only listed cost nothing.  Until
a box is usable its port answers 503, as an ingress without endpoints does.  A start is a new container: only the workspace
is what it was.

Owns: the folder of each box, its listening socket, its line to the agent; the zygote.  Any thread."""
import base64
import json
import os
import queue
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid

from wire import dump

HERE = os.path.dirname(os.path.abspath(__file__))
SEEN, NAMED = 0.4, 0.7  # parts of the time of a start
FOLDERS = ("work", "tmp", "vartmp", "home")
UNUSABLE = (b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 19\r\n"
            b"connection: close\r\n\r\nno healthy upstream")


class Zygote:
    """The helper process that forks boxes."""

    def __init__(self):
        self.sock, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.lock = threading.Lock()
        with other:
            self.proc = subprocess.Popen([sys.executable, "-B", f"{HERE}/sandbox.py", str(other.fileno())],
                                         pass_fds=[other.fileno()], stdin=subprocess.DEVNULL)
        self.isolated = json.loads(self.sock.recv(1 << 16) or b'{"isolated":false}')["isolated"]

    def order(self, fds=(), **order):
        with self.lock:
            socket.send_fds(self.sock, [json.dumps(order).encode()], fds)
            answer = self.sock.recv(1 << 16)
        if not answer:
            raise RuntimeError("the zygote has died")
        return json.loads(answer)

    def close(self):
        self.sock.close()
        self.proc.wait()


class Line:
    """The service's end of the line to one agent: orders are answered, `up` and `down` come by themselves."""

    def __init__(self, sock, on_event):
        self.sock = sock
        self.on_event = on_event
        self.was_up = False
        self.lock = threading.Lock()
        self.answers = queue.Queue()
        self.n = 0

    def start(self):
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        try:
            with self.sock.makefile("rb") as f:
                for line in f:
                    message = json.loads(line)
                    self.answers.put(message)
                    if "event" in message:
                        self.was_up |= message["event"] == "up"
                        self.on_event(self, message["event"])
        except (OSError, ValueError):
            pass
        self.answers.put({"event": "end"})
        self.on_event(self, "end")

    def order(self, **order):
        """The agent's answer; None if it died over it."""
        with self.lock:
            self.n += 1
            while not self.answers.empty():
                self.answers.get_nowait()
            try:
                self.sock.sendall(dump({**order, "id": self.n}) + b"\n")
                end = time.monotonic() + 10
                while True:
                    answer = self.answers.get(timeout=max(0, end - time.monotonic()))
                    if answer.get("event") in ("down", "end"):
                        return None
                    if answer.get("id") == self.n:
                        return answer
            except (OSError, queue.Empty):
                return None

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()


class Box:
    """One devbox. `status` is a function of time while it starts or stops."""

    def __init__(self, name, runtime, cpu, memory, env, ports, base):
        self.name = name
        self.uid = str(uuid.uuid4())
        self.runtime = runtime
        self.cpu = cpu
        self.memory = memory
        self.env = env
        self.ports = ports
        self.base = base
        self.created = time.time()
        self.token = new_token()
        self.forced = None  # a status set from outside
        self.phase = ("Pending", 0.0, "Running", 0.0)  # (now, since, then, until); monotonic
        self.template_gone = False
        self.listener = None
        self.line = None
        self.lock = threading.RLock()
        self.deleted = False

    def folder(self, name):
        """One of its folders outside, made when it is wanted: many boxes never run."""
        path = f"{self.base}/{name}"
        os.makedirs(path, exist_ok=True)
        if "tmp" in name:
            os.chmod(path, 0o1777)
        return path

    def go(self, now, then, seconds):
        t = time.monotonic()
        self.forced = None
        self.phase = (now, t, then, t + seconds)

    def status(self):
        if self.forced:
            return self.forced
        now, _, then, until = self.phase
        return now if time.monotonic() < until and not (now == "Pending" and self.progress() >= SEEN) else then

    def progress(self):
        """Of a start: Pending, then Running without an agent (SEEN), then with its name but 503 (NAMED), then usable (1.0)."""
        now, since, _, until = self.phase
        if now != "Pending" or time.monotonic() >= until:
            return 1.0
        return (time.monotonic() - since) / max(until - since, 1e-9)

    def usable(self):
        return self.status() == "Running" and self.progress() >= 1

    def token_64(self):
        return base64.b64encode(self.token.encode()).decode()


def new_token():
    return secrets.token_urlsafe(24)


class Boxes:
    def __init__(self, faults, root=None, tools="all", noexec=False, down_s=0.2, token=None, isolate=True):
        self.faults = faults
        self.tools = tools
        self.noexec = noexec
        self.down_s = down_s
        self.token = token  # a fixed one for all boxes
        self.root = tempfile.mkdtemp(prefix="devbox-", dir=root)
        self.zygote = Zygote()
        self.isolated = self.zygote.isolated and isolate
        self.lock = threading.RLock()
        self.all = {}
        self.busybox = self.make_busybox()
        self.poll = select.epoll()
        self.waiting = {}  # listening fd -> box without an agent
        self.stopping = False
        threading.Thread(target=self.ingress, daemon=True, name="ingress").start()

    def make_busybox(self):
        """A folder with busybox and a link for each of its applets; None if the machine has none."""
        program = shutil.which("busybox")
        if not program:
            return None
        folder = f"{self.root}/busybox"
        os.mkdir(folder)
        shutil.copy(program, f"{folder}/busybox")
        for applet in subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split():
            if applet != "busybox":
                os.symlink("busybox", f"{folder}/{applet}")
        return folder

    # ---- life ----

    def create(self, name, runtime, cpu, memory, env=(), ports=(), start_s=None):
        """A new box; None if the name is taken."""
        with self.lock:
            if name in self.all:
                return None
            box = Box(name, runtime, cpu, memory, list(env), list(ports), f"{self.root}/box-{name}")
            if self.token:
                box.token = self.token
            box.go("Pending", "Running", self.faults["start_s"] if start_s is None else start_s)
            self.all[name] = box
            return box

    def get(self, name):
        box = self.all.get(name)
        if box and box.deleted and time.monotonic() >= box.phase[3]:
            self.remove(box)
            return None
        return box

    def list(self):
        with self.lock:
            boxes = list(self.all.values())
        return [box for box in boxes if self.get(box.name)]

    def delete(self, box):
        with box.lock:
            self.end_agent(box)
            box.deleted = True
            box.go("Stopping", "Stopping", self.faults["stop_s"])
        if self.faults["stop_s"] <= 0:
            self.remove(box)

    def remove(self, box):
        with self.lock:
            if self.all.get(box.name) is not box:
                return
            del self.all[box.name]
            self.close_port(box)
        with box.lock:
            self.end_agent(box)
        if os.path.exists(box.base):
            shutil.rmtree(box.base, ignore_errors=True)

    def stop(self, box, now, then):
        """pause, shutdown: all programs end, the workspace stays."""
        with box.lock:
            self.end_agent(box)
            box.go(now, then, self.faults["stop_s"])

    def start(self, box, restart=False):
        with box.lock:
            if restart:
                self.end_agent(box)
                if self.faults["restart_token"]:
                    box.token = self.token or new_token()
            box.go("Pending", "Running", self.faults["start_s"])

    # ---- ports and agents ----

    def port(self, box):
        """The box's port on 127.0.0.1; listens from now on."""
        with self.lock:
            if box.listener is None:
                box.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
                self.watch(box)
            return box.listener.getsockname()[1]

    def watch(self, box):
        box.listener.setblocking(False)
        self.waiting[box.listener.fileno()] = box
        try:
            self.poll.register(box.listener.fileno(), select.EPOLLIN)
        except FileExistsError:
            pass

    def unwatch(self, box):
        if box.listener and self.waiting.pop(box.listener.fileno(), None):
            self.poll.unregister(box.listener.fileno())

    def close_port(self, box):
        if box.listener:
            self.unwatch(box)
            box.listener.close()
            box.listener = None

    def ingress(self):
        """Connections to boxes that have no agent: usable ones get one, others answer 503."""
        while not self.stopping:
            for fd, _ in self.poll.poll(0.5):
                with self.lock:
                    box = self.waiting.get(fd)
                if not box:
                    continue
                if box.usable() and box.line is None:
                    with self.lock:
                        self.unwatch(box)
                    threading.Thread(target=self.start_agent, args=(box,), daemon=True).start()
                else:
                    self.refuse(box)

    def refuse(self, box):
        try:
            sock, _ = box.listener.accept()
        except (OSError, AttributeError):
            return
        sock.setblocking(True)
        threading.Thread(target=refuse, args=(sock,), daemon=True).start()

    def start_agent(self, box):
        with box.lock:
            if box.line or not box.listener or box.deleted:
                return
            try:
                self.fork_agent(box)
            except (OSError, RuntimeError):
                traceback.print_exc()
                box.forced = "Error"
                with self.lock:
                    self.watch(box)

    def fork_agent(self, box):
        for folder in FOLDERS:
            if folder != "work":  # all else is the container's, and that is a new one
                shutil.rmtree(f"{box.base}/{folder}", ignore_errors=True)
            box.folder(folder)
        spec = {
            "name": box.name, "base": box.base, "isolated": self.isolated, "down_s": self.down_s,
            "tools": "busybox" if "busybox" in box.runtime else self.tools, "noexec": self.noexec or "noexec" in box.runtime,
            "busybox": self.busybox, "env": {e["name"]: e["value"] for e in box.env if "value" in e},
        }
        if spec["tools"] == "busybox" and not self.busybox:
            raise RuntimeError("busybox is missing: apt-get install busybox-static")
        ours, theirs = socket.socketpair()
        with theirs:
            self.zygote.order((box.listener.fileno(), theirs.fileno()), op="start", spec=spec)
        box.line = Line(ours, lambda line, what: self.on_event(box, line, what))
        box.line.start()

    def on_event(self, box, line, what):
        """From the thread of a line: `up` comes before the agent listens, it waits for its configuration."""
        if what == "end":
            with box.lock:
                if box.line is line and not self.stopping:  # by itself: it crashed, or could not be started
                    self.end_agent(box)
                    if not line.was_up:
                        box.forced = "Error"
        elif box.line is not line:
            return
        elif what == "up":
            with self.lock:
                self.unwatch(box)
            threading.Thread(target=self.configure, args=(box,), daemon=True).start()
        elif what == "down":  # killed; its init starts it again in a moment
            with self.lock:
                if box.listener:
                    self.watch(box)

    def configure(self, box):
        line = box.line
        if line:
            line.order(op="config", name=box.name, token=box.token, quirks=self.faults.quirks, rules=rules(self.faults))

    def configure_all(self):
        """The faults that are in force now, in force everywhere when this returns."""
        for box in self.list():
            self.configure(box)  # of one that is just starting: the order waits for it

    def end_agent(self, box):
        """All processes of the box are gone when this returns."""
        line, box.line = box.line, None
        if not line:
            return
        line.close()
        self.zygote.order(op="end", name=box.name)
        with self.lock:
            if box.listener:
                self.watch(box)

    def order(self, box, **order):
        line = box.line
        return line.order(**order) if line else None

    def close(self):
        """Nothing is left after this: no process, no folder."""
        self.stopping = True
        for box in list(self.all.values()):
            box.deleted = True
            self.close_port(box)
        self.zygote.close()
        shutil.rmtree(self.root, ignore_errors=True)


def rules(faults):
    with faults.lock:
        return [{k: v for k, v in rule.items() if k != "n"} for rule in faults.rules]


def refuse(sock):
    try:
        sock.settimeout(2)
        sock.recv(65536)
        sock.sendall(UNUSABLE)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass
    except OSError:
        pass
    sock.close()
