# SPDX-License-Identifier: Apache-2.0
"""Injected faults: each rule does what faults.py says of it, and nothing else."""
import http.client
import json
import os
import socket
import time

import pytest

from conftest import GATE, AgentClient, Client, events, wait_for

LIST = "/api/v1/devbox"
FILES = "/api/v1/files/list"


def no_answer(client, *request, seconds=0.5):
    conn = client.start(*request)
    conn.sock.settimeout(seconds)
    with pytest.raises(socket.timeout):
        conn.getresponse()
    conn.close()


# ---- where a rule holds ----


def test_rules_hold_where_they_say(service, call, agent):
    service.create("two")
    two = AgentClient(service, "two")
    service.add(where="agent", box="one", method="GET", path="/api/v1/files", status=503)
    assert agent("GET", FILES).status == 503
    assert agent("POST", "/api/v1/files/delete", {"path": "x"}).status == 200
    assert agent("GET", "/health").status == 200
    assert two("GET", FILES).status == 200
    assert call("GET", LIST).status == 200
    service.clear()
    assert agent("GET", FILES).status == 200


def test_rules_of_the_control_plane(service, call, agent):
    service.add(where="control", status=500)
    assert call("GET", LIST).status == 500
    assert agent("GET", FILES).status == 200


def test_skip_and_times(service, call, agent):
    service.add(path=LIST, skip=1, times=2, status=500)
    assert [call("GET", LIST).status for _ in range(5)] == [200, 500, 500, 200, 200]
    service.add(path=FILES, times=2, status=500)
    got = [agent("GET", FILES).status]
    service.add(path="/elsewhere", status=500)  # other rules do not start the count anew
    got += [agent("GET", FILES).status for _ in range(3)]
    assert got == [500, 500, 200, 200]


def test_remove(service, call):
    first = service.add(path=LIST, status=500)
    service.add(path=LIST, status=502)
    assert call("GET", LIST).status == 500
    service.remove(first)
    assert call("GET", LIST).status == 502


def test_a_new_box_knows_the_rules(service):
    service.set(max_file_size=10)
    service.add(where="agent", path="/health", status=418)
    service.create("late")
    late = AgentClient(service, "late")
    assert late("GET", "/health").status == 418
    assert late.write("f", b"x" * 11).json["status"] == 1422


def test_what_no_rule_can_be_is_refused(service):
    for rule in ({}, {"path": "/x"}, {"status": "500"}, {"stauts": 500}, {"where": "nowhere", "hang": True}, {"json": "odd"},
                 {"hang": 1}, {"times": True, "hang": True}):
        with pytest.raises(ValueError):
            service.add(**rule)
    for quirks in ({"nope": 1}, {"nagle": 1}, {"late_write": True}, {"agent_url": None}):
        with pytest.raises(ValueError):
            service.set(**quirks)


# ---- what it does ----


def test_delay(service, call, agent):
    service.add(path="/", delay=0.3)
    for client, path in ((call, LIST), (agent, FILES)):
        begin = time.monotonic()
        assert client("GET", path).status == 200
        assert time.monotonic() - begin >= 0.3


def test_one_box_never_answers(service, call, agent):
    service.create("two")
    two = AgentClient(service, "two")
    service.add(where="agent", box="one", hang=True)
    no_answer(agent, "GET", "/health")
    no_answer(agent, "GET", FILES)
    assert two.sh("echo hi") == "hi\n"
    assert len(call("GET", LIST).json["data"]) == 2


def test_reset(service, call):
    service.add(path=LIST, reset=True, times=1)
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        call("GET", LIST)
    assert call("GET", LIST).status == 200


@pytest.mark.parametrize("status, message", [(500, "broken"), (402, "unpaid"), (403, "quota exceeded"), (503, "busy"), (429, "slow down")])
def test_status_of_the_control_plane(service, call, status, message):
    service.add(path=LIST, method="POST", status=status, message=message)
    answer = call("POST", LIST, {"name": "x", "runtime": "python", "resource": {"cpu": 1, "memory": 1}})
    assert (answer.status, answer.json) == (status, {"code": status, "message": message})
    assert call("GET", LIST).json["data"] == []


def test_status_in_the_body_only(service, call):
    service.add(path=LIST, status=500, message="old", as_200=True)
    answer = call("GET", LIST)
    assert (answer.status, answer.json["code"]) == (200, 500)


def test_retry_after(service, call, agent):
    service.add(path="/", status=429, retry_after=7)
    assert call("GET", LIST).headers["retry-after"] == "7"
    answer = agent("GET", FILES)
    assert (answer.status, answer.headers["retry-after"]) == (429, "7")


def test_redirect(service, call):
    service.add(path=LIST, status=307, location="http://127.0.0.1:1/elsewhere")
    answer = call("GET", LIST)
    assert (answer.status, answer.headers["location"]) == (307, "http://127.0.0.1:1/elsewhere")


def test_after_the_work_is_done(service, agent):
    service.add(where="agent", path="/api/v1/files/write", status=502, after=True)
    answer = agent("POST", "/api/v1/files/write", {"path": "f", "content": "there"})
    assert answer.status == 502
    service.clear()
    assert agent.read("f").body == b"there"
    service.add(where="agent", path="/api/v1/files/write", reset=True, after=True)
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        agent("POST", "/api/v1/files/write", {"path": "g", "content": "there"})
    assert agent.read("g").body == b"there"


def test_wrong_json(service, call, agent):
    whole = call("GET", LIST).body
    for how, check in (
        ("wrong", lambda body: isinstance(json.loads(body), dict) and json.loads(body)["code"] == "zero"),
        ("cut", lambda body: whole.startswith(body) and 0 < len(body) < len(whole)),
        ("html", lambda body: body.startswith(b"<html>")),
    ):
        rule = service.add(path="/", json=how)
        answer = call("GET", LIST)
        assert answer.status == 200 and check(answer.body), how
        assert agent("GET", FILES).status == 200
        service.remove(rule)


def test_endless_json(service, call):
    service.add(path=LIST, json="endless")
    conn = call.start("GET", LIST)
    response = conn.getresponse()
    assert len(response.read(20_000_000)) == 20_000_000
    conn.close()


def test_any_body(service, agent):
    service.add(where="agent", path=FILES, body='{"status":0,"files":[{"name":"../../x"}]}')
    assert agent("GET", FILES).json["files"] == [{"name": "../../x"}]
    service.add(where="agent", path="/api/v1/process/sync-stream", body="event: complete\ndata: {}\n\n", kind="text/event-stream")
    assert agent.stream("true") == [("complete", {})]


def read_until_cut(conn):
    response = conn.getresponse()
    try:
        return response.read(), False
    except http.client.IncompleteRead as err:
        return err.partial, True


@pytest.mark.parametrize("size", [100, 300000])
@pytest.mark.parametrize("cut", [0, 1, 57])
def test_cut_of_a_file(service, agent, size, cut):
    with open(f"{agent.workspace}/f", "wb") as f:
        f.write(os.urandom(size))
    service.add(where="agent", path="/api/v1/files/read", cut=cut)
    got, was_cut = read_until_cut(agent.start("GET", "/api/v1/files/read?path=f"))
    assert (len(got), was_cut) == (cut, True)


def test_cut_of_a_stream(service, agent):
    service.set(complete_first=0)
    service.add(where="agent", path="/api/v1/process", cut=250)
    conn = agent.start("POST", "/api/v1/process/sync-stream", {"command": "sh", "args": ["-c", "seq 1 100; touch done"], "cwd": "."})
    got, was_cut = read_until_cut(conn)
    assert was_cut and got.startswith(b"event: start\n")
    wait_for(lambda: os.path.exists(f"{agent.workspace}/done"), "the program, which has to live on")
    service.clear()
    assert [name for name, _ in events(agent("POST", "/api/v1/process/sync-stream", {"command": "true"}).body)] == ["start", "complete"]


def test_cut_in_mid_upload(service, agent):
    service.set(late_write=0)
    agent.write("f", b"old" * 1000)
    service.add(where="agent", path="/api/v1/files/write", cut_request=500_000)
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        agent.write("f", b"x" * 5_000_000)
    wait_for(lambda: os.path.getsize(f"{agent.workspace}/f") != 3000, "the old file's end")
    assert os.path.getsize(f"{agent.workspace}/f") <= 600_000


def test_cut_after_seconds(service, agent):
    service.add(where="agent", path="/api/v1/process/exec-sync", cut_after=0.3)
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        agent.exec_sync("sh", "-c", f"{GATE}; touch done", cwd=".")
    agent.write("go", b"")
    wait_for(lambda: os.path.exists(f"{agent.workspace}/done"), "the program, which has to live on")


def test_cut_of_everything(service, call, agent):
    waiting = agent.start("POST", "/api/v1/process/exec-sync", {"command": "sleep", "args": ["20"]})
    call.keep = True
    assert call("GET", LIST).status == 200
    wait_for(lambda: any(entry[2].endswith("exec-sync") for entry in service.log() if entry[0] == "one"), "the request")
    assert service.cut() >= 2
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        waiting.getresponse()
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        call("GET", LIST)
    call.conn = None
    assert call("GET", LIST).status == 200 and agent.sh("echo hi") == "hi\n"


def test_connection_refused(service, call):
    service.down()
    with pytest.raises(ConnectionRefusedError):
        call("GET", LIST)
    service.up()
    assert call("GET", LIST).status == 200


def test_drip(service, call, agent):
    service.set(late_write=0)
    agent.write("f", b"x" * 200)
    service.add(path="/api/v1/files/read", drip=400)
    begin = time.monotonic()
    assert agent.read("f").body == b"x" * 200
    assert time.monotonic() - begin >= 0.4


# ---- life and death ----


def test_token_change(service, call, agent):
    assert agent("GET", FILES).status == 200
    service.new_token("one")
    answer = agent("GET", FILES)
    assert (answer.status, answer.body) == (401, b"")
    assert AgentClient(service, "one")("GET", FILES).status == 200


def test_agent_killed_in_mid_run(service, agent):
    conn = agent.start("POST", "/api/v1/process/sync-stream", {
        "command": "sh", "args": ["-c", f"trap '' PIPE; echo here; {GATE}; touch done"], "cwd": "."})
    response = conn.getresponse()
    while b"here" not in response.readline():
        pass
    service.kill("one")
    with pytest.raises((ConnectionError, http.client.IncompleteRead)):
        assert response.read() and False
    wait_for(lambda: agent("GET", "/health").status == 200, "a new agent")
    agent.write("go", b"")
    wait_for(lambda: os.path.exists(f"{agent.workspace}/done"), "the program, which has to live on")


def test_box_killed_in_mid_run(service, agent):
    agent.sh("sleep 1000 >/dev/null 2>&1 </dev/null & echo $!")
    conn = agent.start("POST", "/api/v1/process/exec-sync", {"command": "sleep", "args": ["1000"]})
    wait_for(lambda: agent.sh("ps -e -o args= | grep -c '^sleep 1000' || true") == "2\n", "both programs")
    service.kill("one", "box")
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        conn.getresponse()
    wait_for(lambda: agent("GET", "/health").status == 200, "a new box")
    assert agent.sh("ps -e -o args= | grep -c '^sleep 1000' || true") == "0\n"


def test_log_of_requests(service, call, agent):
    service.log(clear=True)
    call("GET", LIST)
    agent.sh("true")
    assert service.log() == [["", "GET", LIST, 200], ["one", "POST", "/api/v1/process/exec-sync", 200]]


# ---- by HTTP ----


def test_private_interface(service, call, agent):
    for wrong in (None, "Bearer x", call.authorization):
        assert Client("127.0.0.1", service.port, wrong)("GET", "/_test/boxes").status == 401
    private = Client("127.0.0.1", service.port, f"Bearer {service.key}")
    answer = private("POST", "/_test/faults", {"add": [{"path": LIST, "status": 500}], "quirks": {"max_file_size": 5}}).json
    assert answer["quirks"]["max_file_size"] == 5
    assert call("GET", LIST).status == 500
    assert agent.write("f", b"123456").json["status"] == 1422
    private("POST", "/_test/faults", {"remove": [answer["rules"][0]["id"]]})
    assert call("GET", LIST).status == 200
    assert private("POST", "/_test/faults", {"clear": True}).json["rules"] == []
    assert agent.write("f", b"123456").json["status"] == 0
    for bad in ({"ad": []}, {"add": [{"hangs": True}]}, {"quirks": {"x": 1}}):
        assert private("POST", "/_test/faults", bad).status == 400
    private("POST", "/_test/boxes", {"count": 3, "prefix": "made-", "env": {"SBXFS": "1"}})
    boxes = private("GET", "/_test/boxes").json
    assert sorted(boxes) == ["made-0", "made-1", "made-2", "one"]
    private("POST", "/_test/box/made-1", {"status": "Error"})
    assert {b["name"]: b["status"] for b in call("GET", LIST).json["data"]}["made-1"] == "Error"
    private("POST", "/_test/box/made-2", {"template_gone": True})
    assert "made-2" not in [b["name"] for b in call("GET", LIST).json["data"]]
    private("POST", "/_test/box/one", {"token": "new-one"})
    assert service.agent("one")[2] == "new-one"
    private("POST", "/_test/box/one", {"kill": "agent"})
    wait_for(lambda: agent("GET", "/health").status == 200, "a new agent")
    assert private("POST", "/_test/box/one", {"x": 1}).status == 400
    assert private("POST", "/_test/cut", {}).status == 200
    assert private("POST", "/_test/log", {}).json and not [e for e in private("GET", "/_test/log").json if e[0] == ""]
