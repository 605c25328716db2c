# SPDX-License-Identifier: Apache-2.0
"""The answers of the real agent server, request by request: contract.json was recorded from it.

What cannot be the same twice is made the same on both sides: times, durations, pids, process ids, and order where there
is none.  So lengths differ, and each has to be that of its body."""
import base64
import json
import os
import re
import time

import pytest

from conftest import AgentClient, Answer, Client
from server import Service

HERE = os.path.dirname(os.path.abspath(__file__))
WORKSPACE = "/home/devbox/project"
FREE_HEADERS = {"date", "cache-control"}  # not recorded

with open(f"{HERE}/contract.json", encoding="utf-8") as f:
    CASES = json.load(f)


class Replay:
    """One box for all requests, which come in their order; a test that is run alone has those before it sent first."""

    def __init__(self, service):
        self.service = service
        self.agent = AgentClient(service, "one")
        self.ids = {}  # recorded process ids -> ours
        self.sent = 0

    def answer(self, number):
        while self.sent < number:
            self.send(CASES[self.sent])
        return self.send(CASES[number])

    def send(self, case):
        self.sent += 1
        prepare(case["name"], self.agent, self.ids)
        request = case["request"]
        path = request["path"]
        for recorded, ours in self.ids.items():
            path = path.replace(recorded, ours)
        body = request.get("body")
        if "body_base64" in request:
            body = base64.b64decode(request["body_base64"])
        elif "json" in request:
            body = json.dumps(request["json"])
        conn = Client(self.agent.host, self.agent.port, None).start(request["method"], path, body=body, headers=request["headers"])
        got = Answer(conn.getresponse())
        conn.close()
        if case["name"] in ("exec", "exec a long one"):
            self.ids[json.loads(case["response"]["body"])["processId"]] = got.json["processId"]
        for recorded, ours in self.ids.items():
            assert len(recorded) == len(ours)
            got.body = got.body.replace(ours.encode(), recorded.encode())
        return got


@pytest.fixture(scope="module", params=["isolated", "plain"])
def replay(request):
    with Service(start_s=0, token="testtoken", isolate=request.param == "isolated") as service:
        service.create("one")
        yield Replay(service)


def prepare(name, agent, ids):
    """What was done beside the requests when they were recorded."""
    if name == "list hides dot files":
        agent.sh(f"cd {agent.service.inside('one')}/a && printf x >.hidden && ln -s b dirlink && ln -s nowhere0 dangling"
                 " && ln -s bin.dat link && chmod 640 bin.dat raw.bin")
    if name.startswith(("status of an ended", "logs of an ended", "kill an ended")):
        wait_ended(agent, ids["proc-id0"], 2)
    if name == "status of a killed process":
        wait_ended(agent, ids["proc-id1"], 0)


def wait_ended(agent, process, lines):
    """Until it has ended and its output has been read."""
    end = time.monotonic() + 30
    while True:
        now = agent("GET", f"/api/v1/process/{process}/logs").json
        if now["processStatus"] != "running" and len(now["logs"]) == lines:
            return
        assert time.monotonic() < end, "the process does not end"
        time.sleep(0.01)


def plain(text, workspace):
    """Without what differs from run to run."""
    text = text.replace(workspace, WORKSPACE)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)
    text = re.sub(r'"(durationMs|duration|pid|lastUpdatedAt)":\d+', r'"\1":0', text)
    return re.sub(r'"uptime":"\d+s"', '"uptime":"0s"', text)


def ordered(value):
    """Files, processes and lines of two pipes have no order."""
    for key, by in (("files", "name"), ("processes", "processId")):
        if isinstance(value.get(key), list):
            value[key].sort(key=lambda item: str(item.get(by)) if isinstance(item, dict) else item)
    if isinstance(value.get("logs"), list):
        value["logs"].sort(reverse=True)  # two pipes, two readers
    return value


def streamed(text):
    """`complete` may come anywhere after the start."""
    blocks = text.split("\n\n")
    return [b for b in blocks if not b.startswith("event: complete")] + [b for b in blocks if b.startswith("event: complete")]


def comparable(headers, body, encoding, workspace):
    if encoding == "base64":
        return base64.b64decode(body) if isinstance(body, str) else body
    text = plain(body if isinstance(body, str) else body.decode(), workspace)
    if headers.get("content-type") == "application/json":
        value = json.loads(text)
        return json.dumps(ordered(value))  # the order of the keys is part of it
    if headers.get("content-type") == "text/event-stream":
        return streamed(text)
    return text


def fixed(headers):
    return {name: value for name, value in headers.items() if name not in FREE_HEADERS and name != "content-length"}


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case["name"].replace(" ", "-") for case in CASES])
def test_answer(replay, number):
    want = CASES[number]["response"]
    got = replay.answer(number)
    assert got.status == want["status"]
    assert comparable(got.headers, got.body, want["body_encoding"], replay.service.inside("one")) == comparable(
        want["headers"], want["body"], want["body_encoding"], WORKSPACE)
    assert fixed(got.headers) == fixed(want["headers"])
    if "content-length" in want["headers"]:
        assert int(got.headers["content-length"]) == len(got.body)


def test_the_contract_is_whole():
    assert len(CASES) == 64
    assert len({case["name"] for case in CASES}) == 64
