# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of the test service itself.

service     a service as it is by default, but boxes start at once
call        call(method, path, ...) -> Answer: one request to the control plane, with authorization
agent       a box that is usable, with agent(method, path, ...), agent.sh(text), agent.stream(...)

SBX_SLOW multiplies the bound of a request; SBX_STRICT=1: a skip is a failure."""
import http.client
import json
import os
import sys
import time
from urllib.parse import quote

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import pytest  # noqa: E402

from server import Service  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
BOUND = 30 * float(os.environ.get("SBX_SLOW", "1.0"))

GATE = "while [ ! -e go ]; do sleep 0.02; done"  # of a shell program whose cwd is the workspace


class Answer:
    """An HTTP answer that was read to its end."""

    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)


class Client:
    """Requests to one server; each on a connection of its own unless `keep`."""

    def __init__(self, host, port, authorization, keep=False):
        self.host = host
        self.port = port
        self.authorization = authorization
        self.keep = keep
        self.conn = None

    def open(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=BOUND)

    def start(self, method, path, json_body=None, body=None, headers=None):
        """The connection, its request sent."""
        headers = dict(headers or {})
        if self.authorization:
            headers.setdefault("Authorization", self.authorization)
        if json_body is not None:
            body = json.dumps(json_body)
            headers.setdefault("Content-Type", "application/json")
        conn = self.conn if self.keep and self.conn else self.open()
        conn.request(method, path, body=body, headers=headers)
        if self.keep:
            self.conn = conn
        return conn

    def __call__(self, method, path, json_body=None, body=None, headers=None):
        conn = self.start(method, path, json_body, body, headers)
        try:
            return Answer(conn.getresponse())
        finally:
            if not self.keep:
                conn.close()


class AgentClient(Client):
    def __init__(self, service, name):
        host, port, token = service.agent(name)
        super().__init__(host, port, f"Bearer {token}")
        self.service = service
        self.name = name
        self.workspace = service.workspace(name)

    def exec_sync(self, command, *args, **more):
        return self("POST", "/api/v1/process/exec-sync", {"command": command, "args": list(args), **more}).json

    def sh(self, text, **more):
        """The stdout of a shell text that ends well."""
        answer = self.exec_sync("sh", "-c", text, **more)
        assert answer.get("exitCode") == 0, answer
        return answer["stdout"]

    def write(self, path, data):
        return self("POST", f"/api/v1/files/write?path={quote(path)}", body=data,
                    headers={"Content-Type": "application/octet-stream"})

    def read(self, path):
        return self("GET", f"/api/v1/files/read?path={quote(path)}")

    def stream(self, command, *args, **more):
        """The events of a sync-stream, read to its end: [(name, data)]."""
        answer = self("POST", "/api/v1/process/sync-stream", {"command": command, "args": list(args), **more})
        return events(answer.body)


def wait_for(cond, what):
    """Poll until cond() is true."""
    end = time.monotonic() + BOUND
    while not cond():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.01)


def events(body):
    out = []
    for block in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "event" in fields:
            out.append((fields["event"], json.loads(fields["data"])))
    return out


@pytest.fixture(scope="session")
def shared():
    with Service() as s:
        yield s


@pytest.fixture
def service(shared):
    """One service for all, without boxes and as it is by default but for the time of a start."""
    shared.set(start_s=0)
    yield shared
    shared.clear()
    for box in shared.boxes.list():
        shared.boxes.delete(box)
    shared.log(clear=True)


@pytest.fixture
def call(service):
    return Client("127.0.0.1", service.port, quote(service.kubeconfig, safe="-_.!~*'()"))


@pytest.fixture
def agent(service):
    service.create("one")
    return AgentClient(service, "one")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("SBX_STRICT") == "1":
        report.outcome = "failed"
        report.longrepr = f"skipped with SBX_STRICT=1: {report.longrepr}"
