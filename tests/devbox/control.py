# SPDX-License-Identifier: Apache-2.0
"""The control plane: create, list, detail, PATCH, delete, lifecycle, monitor, templates.

Owns: nothing; the boxes are boxes.py's.  One thread for each connection."""
import json
import math
import re
import time
from urllib.parse import unquote

from boxes import NAMED
from wire import reply_json

BASE = "/api/v1/devbox"
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
ENCODED = re.compile(r"[A-Za-z0-9\-_.!~*'()%]+")  # what encodeURIComponent leaves
CPUS = (0.1, 0.2, 0.5, 1, 2, 4, 8, 16)
MEMORIES = (0.1, 0.5, 1, 2, 4, 8, 16, 32)
AGENT_PORT = 9757
RUNTIMES = ("python", "node.js", "go", "rust", "ubuntu", "debian-ssh", "busybox", "noexec", "busybox-noexec")
NAMESPACE = "ns-test"


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code
        self.message = message


def answer(data=None, code=200, message="success"):
    return reply_json({"code": code, "message": message, "data": data}, code)


def refuse(code, message):
    return reply_json({"code": code, "message": message}, code)


def number(value):
    return int(value) if float(value).is_integer() else value


class Control:
    def __init__(self, boxes, faults, secret):
        self.boxes = boxes
        self.faults = faults
        self.secret = secret  # a kubeconfig is right if it has this

    def handle(self, request):
        if not self.authorized(request.headers.get("authorization", "")):
            return refuse(401, "Unauthorized: the kubeconfig is missing or invalid")
        try:
            return self.route(request)
        except Refused as err:
            return refuse(err.code, err.message)

    def authorized(self, header):
        """The whole kubeconfig, encoded as encodeURIComponent does it."""
        if not ENCODED.fullmatch(header):
            return False
        text = unquote(header)
        return "current-context" in text and "clusters" in text and self.secret in text

    def route(self, request):
        path, method = request.path, request.method
        if path == BASE:
            return {"GET": self.list, "POST": self.create}.get(method, method_not_allowed)(request)
        if path == f"{BASE}/templates":
            return self.templates(request) if method == "GET" else method_not_allowed(request)
        match = re.fullmatch(BASE + r"/([^/]+)(?:/([a-z]+))?", path)
        if not match:
            raise Refused(404, "Not Found")
        name, what = unquote(match[1]), match[2] or ""
        known = {
            "": {"GET": self.detail, "PATCH": self.patch}, "delete": {"DELETE": self.delete}, "monitor": {"GET": self.monitor},
            **{w: {"POST": self.lifecycle} for w in ("start", "pause", "restart", "shutdown")},
        }
        if what not in known:
            raise Refused(404, "Not Found")
        if method not in known[what]:
            return method_not_allowed(request)
        if not NAME.fullmatch(name) or len(name) > 63:
            raise Refused(400, "Invalid devbox name format")
        box = self.boxes.get(name)
        if not box:
            raise Refused(404, "Devbox not found")
        return known[what][method](request, box)

    # ---- all of them ----

    def list(self, request):
        return answer([
            {
                "name": box.name, "uid": box.uid, "runtime": box.runtime, "status": box.status(),
                "resources": {"cpu": round(box.cpu * 1000), "memory": round(box.memory * 1024)},
            }
            for box in self.boxes.list() if not box.template_gone
        ])

    def templates(self, request):
        return answer({
            "runtime": [
                {"uid": f"template-{r}", "iconId": r, "name": r.title(), "kind": "LANGUAGE" if r in ("python", "go", "rust") else "OS",
                 "description": f"{r} for tests"}
                for r in RUNTIMES
            ],
            "config": [{"templateUid": f"template-{r}", "runtimeUid": r, "config": {"user": "devbox"}} for r in RUNTIMES],
        })

    def create(self, request):
        body = json_of(request)
        name = body.get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > 63:
            raise Refused(400, "Request validation failed: name: Devbox name must comply with DNS naming conventions")
        runtime = body.get("runtime")
        if runtime not in RUNTIMES:
            raise Refused(400, f"Request validation failed: runtime: no such runtime: {runtime}")
        cpu, memory = resource_of(body.get("resource"))
        env, ports = env_of(body.get("env", [])), ports_of(body.get("ports", []))
        good = ports[:-1] if self.faults["port_fails"] else ports
        box = self.boxes.create(name, runtime, cpu, memory, env, good)
        if not box:
            raise Refused(409, "Devbox already exists")
        return answer({
            "name": name, "sshPort": 40000, "base64PrivateKey": "", "userName": "devbox", "workingDir": "/home/devbox/project",
            "domain": "localhost", "ports": [self.port(box, p) for p in good],
            "summary": {"totalPorts": len(ports), "successfulPorts": len(good), "failedPorts": len(ports) - len(good)},
        }, 200 if good == ports else 201)

    # ---- one ----

    def port(self, box, port):
        return {
            "number": port["number"], "protocol": port["protocol"], "portName": f"port-{port['number']}",
            "privateAddress": f"http://{box.name}.{NAMESPACE}:{port['number']}",
        }

    def detail(self, request, box):
        ports = [self.port(box, p) for p in box.ports]
        url = token = ""
        if box.status() == "Running" and (box.progress() >= NAMED or not self.faults["nameless"]):
            token = box.token_64()
            url = box.name if self.faults["agent_url"] == "name" else ""
        if self.faults["agent_url"] == "ports":
            own = self.port(box, {"number": AGENT_PORT, "protocol": "HTTP"})
            ports.insert(0, dict(own, publicAddress=f"http://127.0.0.1:{self.boxes.port(box)}"))
        return answer({
            "name": box.name, "uid": box.uid, "runtime": box.runtime, "image": f"test/{box.runtime}:latest",
            "status": box.status(), "resources": {"cpu": number(box.cpu), "memory": number(box.memory)},
            "ssh": {"host": "localhost", "port": 40000, "user": "devbox", "workingDir": "/home/devbox/project"},
            "env": box.env, "ports": ports,
            "pods": [{"name": f"{box.name}-0", "status": "running" if box.status() == "Running" else "pending"}],
            "agentServer": {"url": url, "token": token},
        })

    def patch(self, request, box):
        body = json_of(request)
        if "resource" not in body and "ports" not in body:
            raise Refused(400, "Request validation failed: at least one of resource or ports must be provided")
        data = {}
        if "resource" in body:
            cpu, memory = resource_of(body["resource"])
            data["resource"] = {"cpu": number(cpu), "memory": number(memory)}
        if "ports" in body:
            ports = ports_of(body["ports"])
            data["ports"] = [self.port(box, p) for p in ports]
            box.ports = ports
        if "resource" in body:
            box.cpu, box.memory = cpu, memory
        return answer(data)

    def delete(self, request, box):
        self.boxes.delete(box)
        return answer(message="success delete devbox")

    def lifecycle(self, request, box):
        json_of(request)
        what = request.path.rpartition("/")[2]
        if what == "pause":
            self.boxes.stop(box, "Stopping", "Paused")
        elif what == "shutdown":
            self.boxes.stop(box, "Stopping", "Shutdown")
        elif what == "restart" or box.status() != "Running":
            self.boxes.start(box, restart=True)
        return answer(message=f"success {what} devbox")

    def monitor(self, request, box):
        q = dict(request.fields())
        now = time.time()
        start, end = (seconds_of(q.get(key), default) for key, default in (("start", now - 3 * 3600), ("end", now)))
        step = re.fullmatch(r"([0-9]+)([smh])", q.get("step", "2m"))
        if not step or int(step[1]) == 0:
            raise Refused(400, "Invalid query parameters: step")
        step = int(step[1]) * {"s": 1, "m": 60, "h": 3600}[step[2]]
        if end < start:
            raise Refused(400, "Invalid query parameters: end is before start")
        points = []
        t = math.ceil(start / step) * step
        while t <= end and len(points) < 11000:
            load = (t // step) % 10
            points.append({"timestamp": int(t), "readableTime": time.strftime("%Y/%m/%d %H:%M", time.gmtime(t)),
                           "cpu": round(1.5 + load, 2), "memory": round(20 + load / 2, 2)})
            t += step
        return answer(points) if self.faults["monitor_wrapped"] else reply_json(points)


def method_not_allowed(request, *args):
    return refuse(405, "Method Not Allowed")


def json_of(request):
    data = request.body(1 << 20)
    try:
        value = json.loads(data or b"")
    except ValueError:
        raise Refused(400, "Request body is not valid JSON") from None
    if not isinstance(value, dict):
        raise Refused(400, "Request validation failed: expected an object")
    return value


def resource_of(value):
    if not isinstance(value, dict) or set(value) - {"cpu", "memory"}:
        raise Refused(400, "Request validation failed: resource")
    for key, allowed in (("cpu", CPUS), ("memory", MEMORIES)):
        if isinstance(value.get(key), bool) or value.get(key) not in allowed:
            raise Refused(400, f"Request validation failed: resource.{key}: must be one of {', '.join(map(str, allowed))}")
    return value["cpu"], value["memory"]


def env_of(value):
    if not isinstance(value, list) or not all(isinstance(e, dict) and isinstance(e.get("name"), str) and e["name"] for e in value):
        raise Refused(400, "Request validation failed: env")
    for e in value:
        if not isinstance(e.get("value"), str) and "valueFrom" not in e:
            raise Refused(400, f"Request validation failed: env.{e['name']}: value or valueFrom must be given")
    return value


def ports_of(value):
    if not isinstance(value, list):
        raise Refused(400, "Request validation failed: ports")
    out = []
    for p in value:
        if not isinstance(p, dict) or not isinstance(p.get("number"), int) or not 1 <= p["number"] <= 65535:
            raise Refused(400, "Request validation failed: ports.number")
        out.append({"number": p["number"], "protocol": p.get("protocol", "HTTP")})
    return out


def seconds_of(text, default):
    """Seconds since 1970; milliseconds are taken as well."""
    if not text:
        return default
    if not re.fullmatch(r"[0-9]+", text):
        raise Refused(400, "Invalid query parameters: start, end")
    value = int(text)
    return value / 1000 if value > 10**11 else value
