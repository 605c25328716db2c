#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Devbox service for tests: control plane and agent servers, with real processes and the faults of the real one.

By hand:

    python3 tests/devbox/server.py --port 8080 --kubeconfig /tmp/kc --key secret
    curl -s -H 'Authorization: Bearer secret' http://127.0.0.1:8080/_test/faults \\
        -d '{"add": [{"path": "/api/v1/process", "delay": 2}]}'

It prints `url: http://127.0.0.1:8080` and `key: secret` (a random one unless given), and serves until SIGTERM, SIGINT, or
with --stdin until its stdin ends.  Clients take `url` as `base_url` (the rule of the `devbox.` prefix knows no ports) and the
kubeconfig file that it wrote.  Agents: agentServer.url is empty, ports[0].publicAddress has the address; an explicit
pattern is URL/agent/NAME.

In Python (tests/devbox has to be in sys.path):

    with Service() as service:
        service.url, service.kubeconfig            # text; service.write_kubeconfig(path)
        service.add(path="/api/v1/files", times=2, status=503, retry_after=1); service.clear()
        service.set(late_write=1.0, late_write_s=0.5); service.kill("one"); service.cut(); service.down(); service.up()
        box = service.create("one"); service.agent("one"); service.workspace("one")

Private interface, with the key (service.key) as bearer token; bodies and answers are JSON; a change holds everywhere when
it is answered:

    POST /_test/faults        {"clear": true, "add": [RULE...], "remove": [ID...], "quirks": {NAME: VALUE...}}; see faults.py
    GET  /_test/faults        the rules with their ids, the quirks
    POST /_test/boxes         {"count": N, "prefix": "box-", "runtime": ..., "env": {...}, "start_s": 0}: makes boxes
    GET  /_test/boxes         {NAME: {url, token, status, workspace, isolated}}
    POST /_test/box/NAME      {"status": "Error" or null, "token": true or "new", "template_gone": bool,
                               "kill": "agent" (its programs live on) or "box" (all die)}
    POST /_test/cut           closes every connection now, those of the agents as well
    GET  /_test/log           [[box or "", method, target, status]...]: what was asked; POST: the same, and clears it

Runtimes (a create's `runtime`) that make special boxes: "busybox" (no programs but busybox), "noexec" (nothing that is
written can be executed), "busybox-noexec"; --busybox and --noexec make all boxes so.

Owns: the listening socket, the boxes.  A thread for each connection."""
import argparse
import contextlib
import hmac
import json
import os
import re
import resource
import secrets
import signal
import socket
import sys
import threading
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from boxes import Boxes, new_token, rules  # noqa: E402
from control import Control  # noqa: E402
from faults import QUIRKS, Faults, check_quirks, check_rule  # noqa: E402
from wire import Gone, Reply, Server, reply_json  # noqa: E402

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: test
clusters:
- name: test
  cluster:
    server: {server}
contexts:
- name: test
  context: {{cluster: test, namespace: ns-test, user: test}}
users:
- name: test
  user:
    token: {token}
"""


class Service:
    """The whole service, running from construction to close()."""

    def __init__(self, port=0, root=None, tools="all", noexec=False, token=None, down_s=0.2, isolate=True, tls=None,
                 key=None, **quirks):
        """`tls`: (certificate file, key file), for the control plane. `isolate`: False for boxes without namespaces."""
        check_quirks(quirks)
        raise_limit()
        self.faults = Faults()
        self.faults.set(quirks=quirks)
        self.lock = threading.Lock()
        self.next_id = 1
        self.key = key or secrets.token_urlsafe(24)
        self.secret = secrets.token_urlsafe(32)
        self.boxes = Boxes(self.faults, root, tools, noexec, down_s, token, isolate)
        self.isolated = self.boxes.isolated
        self.control = Control(self.boxes, self.faults, self.secret)
        self.tls = tls
        self.port = port
        self.server = None
        try:
            self.up()
        except OSError:  # the port is taken
            self.boxes.close()
            raise
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.kubeconfig = KUBECONFIG.format(server=f"https://127.0.0.1.nip.io:{self.port}", token=self.secret)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        """No process and no folder is left after it."""
        self.server.stop()
        self.boxes.close()

    def up(self):
        """The control plane listens, after down() on the port that it had."""
        listener = socket.create_server(("127.0.0.1", self.port), backlog=512)
        self.port = listener.getsockname()[1]
        self.server = Server(listener, self.handle, self.faults, "control", exempt="/_test/", relay=self.relay, tls=self.tls)
        self.server.start()

    def down(self):
        """The control plane refuses connections; agents are as before."""
        self.server.stop()

    def write_kubeconfig(self, path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "w") as f:
            f.write(self.kubeconfig)

    # ---- faults ----

    def add(self, **rule):
        """A rule in force from now on, everywhere; its id."""
        check_rule(rule)
        with self.lock:
            rule["id"] = self.next_id
            self.next_id += 1
            self.faults.set(rules=[*self.faults.rules, rule])
        self.boxes.configure_all()
        return rule["id"]

    def remove(self, *ids):
        with self.lock:
            self.faults.set(rules=[rule for rule in self.faults.rules if rule["id"] not in ids])
        self.boxes.configure_all()

    def clear(self):
        """No rules, and all quirks as they are by default."""
        with self.lock:
            self.faults.set(quirks={}, rules=[])
        self.boxes.configure_all()

    def set(self, **quirks):
        check_quirks(quirks)
        with self.lock:
            self.faults.set(quirks={**self.faults.quirks, **quirks})
        self.boxes.configure_all()

    def cut(self):
        """Close all connections; how many."""
        n = self.server.cut_all()
        for box in self.boxes.list():
            n += (self.boxes.order(box, op="cut") or {}).get("cut", 0)
        return n

    # ---- boxes ----

    def create(self, name, runtime="python", cpu=1, memory=1, env=None, start_s=0):
        """A box, usable at once unless told."""
        pairs = [{"name": k, "value": v} for k, v in (env or {}).items()]
        box = self.boxes.create(name, runtime, cpu, memory, pairs, [], start_s)
        if not box:
            raise ValueError(f"{name} is there already")
        return box

    def agent(self, name):
        """(host, port, token) of a box's agent."""
        box = self.boxes.get(name)
        return "127.0.0.1", self.boxes.port(box), box.token

    def workspace(self, name):
        """The folder outside that is the box's workspace."""
        return self.boxes.get(name).folder("work")

    def inside(self, name):
        """The workspace as the programs of the box and its agent call it."""
        return "/home/devbox/project" if self.isolated else self.workspace(name)

    def kill(self, name, what="agent"):
        """agent: the server dies, its programs live on, it is started again after down_s. box: all die, then the same."""
        box = self.boxes.get(name)
        return self.boxes.order(box, op="die", status=9 if what == "agent" else 70)

    def new_token(self, name, token=None):
        box = self.boxes.get(name)
        box.token = token or new_token()
        self.boxes.configure(box)
        return box.token

    def log(self, clear=False):
        """[box or "", method, target, status] of all requests; of agents: since they were started."""
        with self.server.lock:
            out = [["", *entry] for entry in self.server.log if not entry[1].startswith("/_test/")]
            if clear:
                self.server.log.clear()
        for box in self.boxes.list():
            answer = self.boxes.order(box, op="log", clear=clear)
            out += [[box.name, *entry] for entry in (answer or {}).get("log", ())]
        return out

    # ---- requests ----

    def handle(self, request):
        try:
            if request.path.startswith("/_test/"):
                return self.private(request)
            return self.control.handle(request)
        except Gone:
            raise
        except Exception:
            traceback.print_exc()
            return Reply(500, b"the test service itself failed: see its stderr", "text/plain")

    def relay(self, request):
        """The socket of the agent that a request is for, and its target there; None: it is for the control plane."""
        match = re.match(r"/agent/([^/]+)(/.*)$", request.target)
        if match:
            name, target = match.groups()
        else:
            match = re.match(r"devbox-(.+)-agent\.", request.headers.get("host", ""))
            if not match:
                return None
            name, target = match[1], request.target
        box = self.boxes.get(name)
        if not box:
            return None
        return socket.create_connection(("127.0.0.1", self.boxes.port(box))), target

    def private(self, request):
        if not hmac.compare_digest(request.headers.get("authorization", "").encode(), f"Bearer {self.key}".encode()):
            return Reply(401)
        data = request.body()
        try:
            order = json.loads(data) if data else {}
            return reply_json(self.obey(request.method, request.path, order))
        except (ValueError, TypeError, KeyError) as err:
            return reply_json({"error": str(err)}, 400)

    def obey(self, method, path, order):
        if path == "/_test/faults":
            if method == "POST":
                self.obey_faults(order)
            return {"rules": rules(self.faults), "quirks": self.faults.quirks}
        if path == "/_test/boxes":
            if method == "POST":
                self.obey_boxes(**order)
            return {
                box.name: {"url": f"http://127.0.0.1:{self.boxes.port(box)}", "token": box.token, "status": box.status(),
                           "workspace": box.folder("work"), "isolated": self.isolated}
                for box in self.boxes.list()
            }
        if path == "/_test/cut":
            return {"cut": self.cut()}
        if path == "/_test/log":
            return self.log(clear=method == "POST")
        match = re.fullmatch(r"/_test/box/([^/]+)", path)
        if match and self.boxes.get(match[1]):
            self.obey_box(self.boxes.get(match[1]), order)
            return {}
        raise KeyError(f"no such thing: {path}")

    def obey_faults(self, order):
        unknown = set(order) - {"clear", "add", "remove", "quirks"}
        if unknown:
            raise ValueError(f"unknown: {', '.join(unknown)}")
        if order.get("clear"):
            self.clear()
        if "remove" in order:
            self.remove(*order["remove"])
        for rule in order.get("add", ()):
            self.add(**rule)
        if "quirks" in order:
            self.set(**order["quirks"])

    def obey_boxes(self, count=1, prefix="box-", **more):
        for i in range(count):
            self.create(f"{prefix}{i}", **more)

    def obey_box(self, box, order):
        for key, value in order.items():
            if key == "status":
                box.forced = value
            elif key == "token":
                self.new_token(box.name, value if isinstance(value, str) else None)
            elif key == "template_gone":
                box.template_gone = value
            elif key == "kill" and value in ("agent", "box"):
                self.kill(box.name, value)
            else:
                raise ValueError(f"unknown: {key}")


def raise_limit():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def await_end(fd, stop):
    while os.read(fd, 4096):
        pass
    stop.set()


def main():
    parser = argparse.ArgumentParser(description="A Devbox service for tests; the head of this file says more.")
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1 (default: a free one)")
    parser.add_argument("--kubeconfig", metavar="FILE", help="write a kubeconfig for clients")
    parser.add_argument("--root", help="where the folders of boxes are made (default: TMPDIR)")
    parser.add_argument("--busybox", action="store_true", help="boxes have no programs but busybox")
    parser.add_argument("--noexec", action="store_true", help="nothing that is written in boxes can be executed")
    parser.add_argument("--plain", action="store_true", help="boxes without namespaces, as where they are not allowed")
    parser.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"), help="the control plane by https")
    parser.add_argument("--token", help="the token of all agents (default: random ones)")
    parser.add_argument("--key", help="for the private interface (default: a random one)")
    parser.add_argument("--box", action="append", default=[], metavar="NAME", help="make this box at once")
    parser.add_argument("--quirk", action="append", default=[], metavar="NAME=JSON", help=f"one of {', '.join(QUIRKS)}")
    parser.add_argument("--stdin", action="store_true", help="end when stdin ends")
    args = parser.parse_args()
    quirks = {name: json.loads(value) for name, _, value in (q.partition("=") for q in args.quirk)}
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    with Service(args.port, args.root, "busybox" if args.busybox else "all", args.noexec, args.token,
                 isolate=not args.plain, tls=args.tls, key=args.key, **quirks) as service:
        if args.kubeconfig:
            service.write_kubeconfig(args.kubeconfig)
        for name in args.box:
            service.create(name)
        print(f"url: {service.url}\nkey: {service.key}", flush=True)
        for name in args.box:
            host, port, token = service.agent(name)
            print(f"box {name}: http://{host}:{port} token {token} workspace {service.workspace(name)}", flush=True)
        if args.stdin:
            threading.Thread(target=await_end, args=(0, stop), daemon=True).start()
        stop.wait()


if __name__ == "__main__":
    main()
