# SPDX-License-Identifier: Apache-2.0
"""The agent server of one box: who may ask, what is where, and the line to the service that switches its faults.

Runs inside the box, as a process of its own (sandbox.py): what it sees is what the programs of the box see.
Owns: the box's connections and the box's end of the control line."""
import json
import os
import re
import signal
import time
import traceback

from agent_files import Crash, Files
from agent_processes import Processes
from faults import Faults
from shapes import Answer, success
from wire import Gone, Reply, Server, dump

TCP_LISTEN = "0A"
CRASHED = 70  # exit status: start the whole box anew
KILLED = 9  # exit status: by order


class Agent:
    def __init__(self, listener, workspace, home, env, cwd):
        self.token = None
        self.begin = time.monotonic()
        self.workspace = workspace
        self.faults = Faults()
        self.server = Server(listener, self.handle, self.faults, "agent")
        files = Files(workspace, self.faults)
        processes = Processes(files, env, cwd, self.faults)
        self.home = home
        self.routes = {
            "/health": ("GET", self.health),
            "/health/ready": ("GET", self.ready),
            "/api/v1/files/list": ("GET", files.list),
            "/api/v1/files/read": ("GET", files.read),
            "/api/v1/files/download": ("GET", files.read),
            "/api/v1/files/write": ("POST", files.write),
            "/api/v1/files/delete": ("POST", files.delete),
            "/api/v1/files/move": ("POST", files.move),
            "/api/v1/files/rename": ("POST", files.rename),
            "/api/v1/files/chmod": ("POST", files.chmod),
            "/api/v1/files/search": ("POST", files.search),
            "/api/v1/files/find": ("POST", files.find),
            "/api/v1/files/batch-upload": ("POST", files.batch_upload),
            "/api/v1/files/batch-download": ("POST", files.batch_download),
            "/api/v1/process/exec": ("POST", processes.exec),
            "/api/v1/process/exec-sync": ("POST", processes.exec_sync),
            "/api/v1/process/sync-stream": ("POST", processes.sync_stream),
            "/api/v1/process/list": ("GET", processes.list),
            "/api/v1/ports": ("GET", self.ports),
        }
        self.by_id = {"status": ("GET", processes.status), "logs": ("GET", processes.logs), "kill": ("POST", processes.kill)}

    # ---- requests ----

    def handle(self, request):
        try:
            return self.route(request)
        except Answer as answer:
            return answer.reply
        except Crash:
            os._exit(CRASHED)
        except Gone:
            raise
        except Exception:
            traceback.print_exc()
            return Reply(500, b"the test service itself failed: see its stderr", "text/plain")

    def route(self, request):
        path = request.path
        if not path.startswith("/health") and request.headers.get("authorization") != f"Bearer {self.token}":
            return Reply(401)
        args = ()
        route = self.routes.get(path)
        match = re.fullmatch(r"/api/v1/process/([^/]+)/(status|logs|kill)", path)
        if not route and match:
            route, args = self.by_id[match[2]], (match[1],)
        if not route:
            return Reply(404)
        method, handler = route
        if request.method != method and not (method == "GET" and request.method == "HEAD"):
            return Reply(405, headers=[("allow", "GET,HEAD" if method == "GET" else method)])
        return handler(request, *args)

    def health(self, request):
        return success(healthStatus="ok", uptime=f"{int(time.monotonic() - self.begin)}s", version="0.1.0")

    def ready(self, request):
        return success(readinessStatus="ready", workspace=os.path.isdir(self.workspace))

    def ports(self, request):
        found = set()
        for name in ("tcp", "tcp6"):
            try:
                with open(f"/proc/self/net/{name}") as f:
                    rows = [line.split() for line in f][1:]
            except OSError:
                continue
            found |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == TCP_LISTEN}
        return success(ports=sorted(p for p in found if 3000 <= p <= 9999), lastUpdatedAt=int(time.time()))

    # ---- the line to the service ----

    def obey(self, line):
        """Orders of the service, one JSON line each, answered in order. The end of the line is the end of the box."""
        order = json.loads(line)
        op = order["op"]
        reply = {"id": order["id"]}
        if op == "config":
            self.token = order["token"]
            self.server.box = order["name"]
            self.faults.set(order["quirks"], order["rules"])
        elif op == "log":
            with self.server.lock:
                reply["log"] = list(self.server.log)
                if order.get("clear"):
                    self.server.log.clear()
        elif op == "cut":
            reply["cut"] = self.server.cut_all()
        elif op == "die":
            os._exit(order["status"])
        return reply


def run(listener, line, workspace, home, env, cwd):
    """Serve until the line to the service ends. LINE: a connected socket."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(cwd)
    agent = Agent(listener, workspace, home, env, cwd)
    line.sendall(dump({"event": "up"}) + b"\n")
    with line.makefile("rb") as orders:
        started = False
        for order in orders:
            reply = agent.obey(order)
            if not started and agent.token is not None:
                agent.server.start()
                started = True
            line.sendall(dump(reply) + b"\n")
    os._exit(0)


__all__ = ["CRASHED", "KILLED", "run"]
