# SPDX-License-Identifier: Apache-2.0
"""The control plane: units, what it refuses, states, and how agents are found."""
import json
import ssl
import subprocess
import time
from urllib.parse import quote

import pytest

from conftest import AgentClient, Answer, Client, wait_for
from server import Service

BOX = "/api/v1/devbox"


def make(call, name="one", **more):
    return call("POST", BOX, {"name": name, "runtime": "python", "resource": {"cpu": 1, "memory": 2}, **more})


def detail(call, name="one"):
    return call("GET", f"{BOX}/{name}").json["data"]


def test_only_the_whole_kubeconfig_opens(service, call):
    assert call("GET", BOX).json == {"code": 200, "message": "success", "data": []}
    text = service.kubeconfig
    for wrong in (None, "", f"Bearer {service.secret}", text.replace("\n", " "), quote(text.replace(service.secret, "other"), safe=""),
                  quote(service.secret, safe=""), quote(text, safe="").replace("%0A", "\t")):
        answer = Client("127.0.0.1", service.port, wrong)("GET", BOX)
        assert answer.status == 401 and answer.json["code"] == 401, wrong


def test_units(service, call):
    answer = make(call, resource={"cpu": 0.1, "memory": 0.5})
    assert answer.json["code"] == 200 and answer.json["data"]["name"] == "one"
    item, = call("GET", BOX).json["data"]
    assert item["resources"] == {"cpu": 100, "memory": 512} and item["uid"] and item["runtime"] == "python"
    assert detail(call)["resources"] == {"cpu": 0.1, "memory": 0.5}
    answer = call("PATCH", f"{BOX}/one", {"resource": {"cpu": 16, "memory": 32}})
    assert answer.json["data"] == {"resource": {"cpu": 16, "memory": 32}}
    assert call("GET", BOX).json["data"][0]["resources"] == {"cpu": 16000, "memory": 32768}


@pytest.mark.parametrize("resource", [
    {"cpu": 3, "memory": 1}, {"cpu": 1, "memory": 512}, {"cpu": 1}, {"cpu": "1", "memory": 1}, {"cpu": True, "memory": 1}, 5, None,
    {"cpu": 1, "memory": 1, "disk": 1}])
def test_sizes_are_of_a_list(call, resource):
    assert make(call, resource=resource).status == 400
    assert call("GET", BOX).json["data"] == []


@pytest.mark.parametrize("name, good", [
    ("a", True), ("a" * 63, True), ("a-1", True), ("1", True), ("a" * 64, False), ("A", False), ("-a", False), ("a-", False),
    ("a_b", False), ("a.b", False), ("", False), ("a\n", False), (5, False)])
def test_names(call, name, good):
    assert make(call, name).status == (200 if good else 400)


def test_refusals(call):
    assert make(call).status == 200
    assert make(call).status == 409
    assert make(call, "two", runtime="cobol").status == 400
    assert make(call, "two", env=[{"value": "x"}]).status == 400
    assert make(call, "two", ports=[{"number": 0}]).status == 400
    assert call("POST", BOX, body=b"{", headers={"Content-Type": "application/json"}).status == 400
    assert call("GET", f"{BOX}/nope").status == 404
    assert call("GET", f"{BOX}/Nope").status == 400
    assert call("POST", f"{BOX}/nope/start", {}).status == 404
    assert call("GET", f"{BOX}/one/nope").status == 404
    assert call("PUT", f"{BOX}/one").status == 405
    assert call("POST", f"{BOX}/one/start").status == 400
    assert call("PATCH", f"{BOX}/one", {}).status == 400
    assert call("DELETE", f"{BOX}/one").status == 405


def test_env_and_ports_are_kept(service, call):
    make(call, env=[{"name": "SBXFS", "value": "1"}, {"name": "GRÜSSE", "value": "a b\n"}], ports=[{"number": 8080, "protocol": "HTTP"}])
    assert detail(call)["env"] == [{"name": "SBXFS", "value": "1"}, {"name": "GRÜSSE", "value": "a b\n"}]
    assert [p["number"] for p in detail(call)["ports"]] == [9757, 8080]
    assert AgentClient(service, "one").exec_sync("printenv", "SBXFS", "GRÜSSE")["stdout"] == "1\na b\n\n"
    assert call("PATCH", f"{BOX}/one", {"ports": [{"number": 3000, "protocol": "TCP"}]}).json["data"]["ports"][0]["number"] == 3000
    assert [p["number"] for p in detail(call)["ports"]] == [9757, 3000]


def test_a_port_that_fails(service, call):
    service.set(port_fails=True)
    answer = make(call, ports=[{"number": 8080, "protocol": "HTTP"}, {"number": 8081, "protocol": "HTTP"}])
    assert (answer.status, answer.json["code"]) == (201, 201)
    assert answer.json["data"]["summary"] == {"totalPorts": 2, "successfulPorts": 1, "failedPorts": 1}
    assert [p["number"] for p in detail(call)["ports"]] == [9757, 8080]


def test_slow_start(service, call):
    service.set(start_s=3)
    make(call)
    seen = []

    def usable():
        now = detail(call)
        health = AgentClient(service, "one")("GET", "/health").status
        state = (now["status"], bool(now["agentServer"]["token"]), health)
        if seen[-1:] != [state]:
            seen.append(state)
        return state == ("Running", True, 200)

    wait_for(usable, "a usable box")
    assert seen[0] == ("Pending", False, 503)
    assert seen[-2:] == [("Running", True, 503), ("Running", True, 200)]


def test_slow_start_has_a_time_without_an_agent(service, call):
    box = service.create("one", start_s=1000)
    box.phase = ("Pending", time.monotonic() - 500, "Running", time.monotonic() + 500)
    assert (detail(call)["status"], detail(call)["agentServer"]["token"]) == ("Running", "")


def test_life(service, call):
    make(call)
    agent = AgentClient(service, "one")
    agent.sh("touch kept; sleep 1000 >/dev/null 2>&1 </dev/null &", cwd=".")
    for what, status in (("pause", "Paused"), ("shutdown", "Shutdown")):
        assert call("POST", f"{BOX}/one/{what}", {}).json["code"] == 200
        assert detail(call)["status"] == status
        assert detail(call)["agentServer"] == {"url": "", "token": ""}
        assert agent("GET", "/health").status == 503
        assert call("POST", f"{BOX}/one/start", {}).json["code"] == 200
        assert detail(call)["status"] == "Running"
        agent = AgentClient(service, "one")
        assert agent.sh("ls; ps -e -o args= | grep -c '^sleep 1000' || true", cwd=".") == "kept\n0\n"
    token = service.agent("one")[2]
    assert call("POST", f"{BOX}/one/start", {}).json["code"] == 200
    assert service.agent("one")[2] == token  # it runs already
    assert call("POST", f"{BOX}/one/restart", {}).json["code"] == 200
    assert service.agent("one")[2] != token
    assert agent("GET", "/api/v1/files/list").status == 401
    assert call("DELETE", f"{BOX}/one/delete").json["code"] == 200
    assert call("GET", f"{BOX}/one").status == 404
    assert call("GET", BOX).json["data"] == []
    assert make(call).status == 200
    assert AgentClient(service, "one").sh("ls", cwd=".") == ""


def test_slow_end(service, call):
    service.set(stop_s=1)
    make(call)
    call("POST", f"{BOX}/one/pause", {})
    assert detail(call)["status"] == "Stopping"
    wait_for(lambda: detail(call)["status"] == "Paused", "the pause")
    call("DELETE", f"{BOX}/one/delete")
    assert detail(call)["status"] == "Stopping"
    assert make(call).status == 409
    wait_for(lambda: call("GET", f"{BOX}/one").status == 404, "the end")


def test_states_that_nobody_knows(service, call):
    box = service.create("one")
    for status in ("Error", "Hibernating", "???"):
        box.forced = status
        assert detail(call)["status"] == status
        assert call("GET", BOX).json["data"][0]["status"] == status
        assert AgentClient(service, "one")("GET", "/health").status == 503


def test_list_leaves_out_boxes_without_template(service, call):
    service.create("one").template_gone = True
    service.create("two")
    assert [b["name"] for b in call("GET", BOX).json["data"]] == ["two"]
    assert detail(call, "one")["name"] == "one"


def test_monitor(service, call):
    make(call)
    now = int(time.time())
    points = call("GET", f"{BOX}/one/monitor?start={now - 600}&end={now}&step=2m").json
    assert isinstance(points, list) and len(points) == 5 + (now % 120 == 0)
    assert set(points[0]) == {"timestamp", "readableTime", "cpu", "memory"}
    assert all(now - 600 <= p["timestamp"] <= now and 0 <= p["cpu"] <= 100 and 0 <= p["memory"] <= 100 for p in points)
    assert call("GET", f"{BOX}/one/monitor?start={now - 600}000&end={now}000&step=2m").json == points
    assert len(call("GET", f"{BOX}/one/monitor").json) == 90 + (now % 120 == 0)
    assert call("GET", f"{BOX}/one/monitor?step=x").status == 400
    service.set(monitor_wrapped=True)
    wrapped = call("GET", f"{BOX}/one/monitor?start={now - 600}&end={now}&step=2m").json
    assert (wrapped["code"], wrapped["data"]) == (200, points)


def test_templates(call):
    runtimes = call("GET", f"{BOX}/templates").json["data"]["runtime"]
    assert {"uid", "iconId", "name", "kind", "description"} == set(runtimes[0])
    for runtime in runtimes:
        assert make(call, f"x-{runtime['iconId'].replace('.', '-')}", runtime=runtime["iconId"]).status == 200


def test_ways_to_an_agent(service, call):
    make(call)
    port = detail(call)["ports"][0]
    assert port["publicAddress"] == f"http://127.0.0.1:{service.agent('one')[1]}"
    token = service.agent("one")[2]
    by_path = Client("127.0.0.1", service.port, f"Bearer {token}")
    body = {"path": "f", "content": "x" * 100000}
    assert by_path("POST", "/agent/one/api/v1/files/write", body).json["size"] == 100000
    assert by_path("GET", "/agent/one/api/v1/files/read?path=f").body == b"x" * 100000
    assert by_path("GET", "/agent/nope/health").status == 401  # then it is a matter of the control plane
    service.set(agent_url="name")
    assert detail(call)["agentServer"]["url"] == "one" and detail(call)["ports"] == []
    host = {"Host": "devbox-one-agent.10.0.0.1.nip.io"}
    assert by_path("GET", "/api/v1/files/read?path=f", headers=host).body == b"x" * 100000
    assert by_path("GET", "/health", headers=host).json["healthStatus"] == "ok"


def test_a_thousand_boxes(service, call):
    for i in range(1000):
        service.create(f"b{i}")
    assert len(call("GET", BOX).json["data"]) == 1000
    assert AgentClient(service, "b777").sh("hostname") in ("b777\n", AgentClient(service, "b1").sh("hostname"))


def test_many_boxes_at_once(service):
    """Fifty agents that start together; each program waits until all are there."""
    conns = []
    for i in range(50):
        service.create(f"m{i}")
        agent = AgentClient(service, f"m{i}")
        conns.append(agent.start("POST", "/api/v1/process/exec-sync", {"command": "echo", "args": [str(i)]}))
    for i, conn in enumerate(conns):
        assert Answer(conn.getresponse()).json["stdout"] == f"{i}\n"
        conn.close()


def test_tls(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out",
                    cert, "-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    with Service(tls=(cert, key)) as service:
        import http.client

        conn = http.client.HTTPSConnection("127.0.0.1", service.port, timeout=20, context=ssl.create_default_context(cafile=cert))
        conn.request("GET", BOX, headers={"Authorization": quote(service.kubeconfig, safe="-_.!~*'()")})
        assert json.loads(conn.getresponse().read())["code"] == 200
        conn.close()
