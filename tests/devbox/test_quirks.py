# SPDX-License-Identifier: Apache-2.0
"""What the real agent server does wrong, by default; each so that a client's test can rely on it."""
import os
import socket
import stat
import time

import pytest

from conftest import BOUND, GATE, AgentClient, Client, events, wait_for


def names(answer):
    return [f["name"] for f in answer.json["files"]]


def status(answer):
    assert answer.status == 200
    return answer.json["status"]


# ---- files ----


def test_raw_write_answers_before_the_bytes_are_there(service, agent):
    service.set(late_write=1.0, late_write_s=1.0)
    data = os.urandom(300000)
    assert agent.write("f", data).json["size"] == len(data)
    assert os.path.getsize(f"{agent.workspace}/f") < len(data)
    wait_for(lambda: os.path.getsize(f"{agent.workspace}/f") == len(data), "the rest of the file")
    assert agent.read("f").body == data


def test_raw_write_in_time(service, agent):
    service.set(late_write=0)
    for size in (0, 1, 65536, 300001):
        data = os.urandom(size)
        assert agent.write("f", data).json["size"] == size
        with open(f"{agent.workspace}/f", "rb") as f:
            assert f.read() == data


def test_raw_write_loses_late_errors(service, agent):
    """A full disk: the last block's error is nowhere to be seen, JSON tells of it."""
    assert status(agent.write("/dev/full", b"x" * 1000)) == 0
    answer = agent("POST", "/api/v1/files/write", {"path": "/dev/full", "content": "x"})
    assert answer.json == {"status": 1500, "message": "No space left on device (os error 28)"}


def test_write_truncates_in_place_and_keeps_the_mode(service, agent):
    service.set(late_write=0)
    agent.write("f", b"old and long")
    os.chmod(f"{agent.workspace}/f", 0o711)
    with open(f"{agent.workspace}/f", "rb") as f:
        assert agent("POST", "/api/v1/files/write", {"path": "f", "content": "new"}).json["size"] == 3
        assert f.read() == b"new"
        assert stat.S_IMODE(os.fstat(f.fileno()).st_mode) == 0o711


def test_too_large_costs_the_old_file(service, agent):
    service.set(max_file_size=100000, late_write=0)
    agent.write("f", b"old")
    assert agent.write("f", b"x" * 100000).json["size"] == 100000
    assert agent.write("f", b"x" * 100001).json == {"status": 1422, "message": "File too large"}
    assert agent.read("f").json["status"] == 1404
    agent.write("f", b"old")
    assert status(agent("POST", "/api/v1/files/write", {"path": "f", "content": "x" * 100001})) == 1422
    assert agent.read("f").body == b"old"


def test_too_large_answers_while_the_body_is_still_coming(service, agent):
    service.set(max_file_size=1000)
    assert agent.write("f", b"x" * 20_000_000).json["status"] == 1422


def test_bodies_of_json_are_limited_except_of_write(service, agent):
    big = "x" * (2 * 1024 * 1024)
    answer = agent("POST", "/api/v1/process/exec-sync", {"command": big})
    assert (answer.status, answer.headers["content-type"]) == (413, "text/plain; charset=utf-8")
    assert status(agent("POST", "/api/v1/files/write", {"path": "f", "content": big})) == 0
    answer = agent("POST", "/api/v1/process/exec-sync", body=b"{}", headers={"Content-Type": "text/plain"})
    assert answer.status == 415


def test_move_onto_itself_deletes(agent):
    agent.write("f", b"x")
    assert status(agent("POST", "/api/v1/files/move", {"source": "f", "destination": "f"})) == 1409
    assert status(agent("POST", "/api/v1/files/move", {"source": "f", "destination": "./f", "overwrite": True})) == 1404
    assert not os.path.exists(f"{agent.workspace}/f")


def test_move_over_a_tree_deletes_it(agent):
    agent.sh(f"cd {agent.service.inside('one')} && mkdir -p tree/deep && touch tree/deep/er f")
    assert status(agent("POST", "/api/v1/files/move", {"source": "f", "destination": "tree", "overwrite": True})) == 0
    assert os.path.isfile(f"{agent.workspace}/tree")


def test_delete_and_links(agent):
    os.mkdir(f"{agent.workspace}/d")
    os.symlink("d", f"{agent.workspace}/to-d")
    os.symlink("nowhere", f"{agent.workspace}/dangling")
    assert status(agent("POST", "/api/v1/files/delete", {"path": "dangling"})) == 1404
    assert status(agent("POST", "/api/v1/files/delete", {"path": "to-d"})) == 1500
    assert status(agent("POST", "/api/v1/files/delete", {"path": "to-d", "recursive": True})) == 0
    assert sorted(os.listdir(agent.workspace)) == ["d", "dangling"]


def test_paths_are_not_confined(agent):
    host = agent.read("/etc/passwd")
    assert b"root:" in host.body
    up = "../" * 20
    assert agent.read(f"{up}etc/passwd").body == host.body
    os.symlink("/etc/passwd", f"{agent.workspace}/link")
    assert agent.read("link").body == host.body


def test_read_of_a_fifo_never_answers(service, agent):
    os.mkfifo(f"{agent.workspace}/fifo")
    conn = agent.start("GET", "/api/v1/files/read?path=fifo")
    conn.sock.settimeout(0.5)
    with pytest.raises(socket.timeout):
        conn.getresponse()
    assert agent.sh("echo alive") == "alive\n"
    conn.close()


def test_read_of_a_name_with_a_newline(agent):
    with open(f"{agent.workspace}/a\nb", "w"):
        pass
    assert agent("GET", "/api/v1/files/read?path=a%0Ab").status == 500


def test_list_default_limit_and_pages(service, agent):
    for i in range(150):
        with open(f"{agent.workspace}/f{i:03}", "w"):
            pass
    with open(f"{agent.workspace}/.hidden", "w"):
        pass
    assert len(names(agent("GET", "/api/v1/files/list"))) == 100
    everything = names(agent("GET", "/api/v1/files/list?showHidden=true&limit=1000"))
    assert sorted(everything) == [".hidden"] + [f"f{i:03}" for i in range(150)]
    assert everything != names(agent("GET", "/api/v1/files/list?showHidden=true&limit=1000"))
    service.set(list_shuffle=False)
    pages = [names(agent("GET", f"/api/v1/files/list?limit=50&offset={n}")) for n in (0, 50, 100, 150)]
    assert [len(p) for p in pages] == [50, 50, 50, 0]
    assert len(set(sum(pages, []))) == 150


def test_list_of_odd_things(agent):
    os.mkfifo(f"{agent.workspace}/fifo", 0o600)
    with open(os.fsencode(agent.workspace) + b"/\xff\xfe", "w"):
        pass
    os.chmod(os.fsencode(agent.workspace) + b"/\xff\xfe", 0o4755)
    files = {f["name"]: f for f in agent("GET", "/api/v1/files/list").json["files"]}
    assert set(files) == {"fifo", "\ufffd\ufffd"}
    assert not files["fifo"]["isDir"] and files["fifo"]["size"] == 0
    assert files["\ufffd\ufffd"]["permissions"] == "0755"
    assert status(agent("GET", "/api/v1/files/read?path=%EF%BF%BD%EF%BF%BD")) == 1404


def test_list_overflow_crashes_the_server(service, agent):
    agent.write("kept", b"x")
    agent.sh("sleep 1000 >/dev/null 2>&1 </dev/null &")
    with pytest.raises((ConnectionError, OSError)):
        agent("GET", "/api/v1/files/list?offset=1&limit=18446744073709551615")
    wait_for(lambda: agent("GET", "/health").status == 200, "a new server")
    assert names(agent("GET", "/api/v1/files/list")) == ["kept"]
    assert agent("GET", "/api/v1/process/list").json["processes"] == []


def test_small_reads_stall_on_kept_connections(service, agent):
    """40 ms by the peer's delayed ACK, gone without Nagle. Ratios, for machines are slow in their own ways."""
    service.set(late_write=0)
    agent.write("f", b"x" * 1000)

    def middle():
        keep = AgentClient(service, "one")
        keep.keep = True
        took = []
        for _ in range(15):
            begin = time.perf_counter()
            assert keep.read("f").body == b"x" * 1000
            took.append(time.perf_counter() - begin)
        keep.conn.close()
        return sorted(took)

    stalled = middle()
    service.set(nagle=False)
    assert stalled[len(stalled) // 2] > 3 * middle()[0]


# ---- processes ----


def test_exec_sync_has_no_shell_no_stdin_and_its_own_cwd(service, agent):
    assert agent.exec_sync("echo", "$HOME", "|", "cat")["stdout"] == "$HOME | cat\n"
    assert agent.sh("cat; pwd") != service.inside("one") + "\n"
    assert agent.sh("pwd", cwd=".") == service.inside("one") + "\n"
    assert agent("POST", "/api/v1/process/exec-sync", {"command": "echo", "args": ["a b"], "shell": "sh"}).json["stdout"] == "a b\n"


def test_exec_sync_timeout_kills_nothing(agent):
    answer = agent.exec_sync("sh", "-c", f"echo early; {GATE}; touch done", timeout=1, cwd=".")
    assert answer == {"status": 1500, "message": "Process execution timed out"}
    agent.write("go", b"")
    wait_for(lambda: os.path.exists(f"{agent.workspace}/done"), "the program's end")


def test_exec_sync_waits_for_whoever_holds_stdout(agent):
    answer = agent.exec_sync("sh", "-c", "(sleep 0.5; touch done; echo late) & echo early", cwd=".")
    assert answer["stdout"] == "early\nlate\n"
    assert os.path.exists(f"{agent.workspace}/done")


def test_exec_sync_limits_of_the_kernel(agent):
    answer = agent.exec_sync("echo", "x" * 131072)
    assert (answer["status"], answer["exitCode"]) == (1600, 127)
    assert answer["stderr"] == "Argument list too long (os error 7)"
    assert agent.exec_sync("echo", "x" * 131071)["exitCode"] == 0
    agent.write("plain", b"x")
    assert agent.exec_sync("./plain", cwd=".")["stderr"] == "Permission denied (os error 13)"


def test_stream_complete_before_output(service, agent):
    service.set(complete_first=1.0, complete_first_s=BOUND)
    got = agent.stream("sh", "-c", "echo one; echo two >&2; exit 7")
    assert [name for name, _ in got][:2] == ["start", "complete"]
    assert got[1][1]["exitCode"] == 7
    assert sorted((name, data["output"]) for name, data in got[2:]) == [("stderr", "two\n"), ("stdout", "one\n")]


def test_stream_is_live(service, agent):
    """An output event comes while the program waits for something that only its reader does."""
    service.set(complete_first=0)
    conn = agent.start("POST", "/api/v1/process/sync-stream",
                       {"command": "sh", "args": ["-c", f"echo here; {GATE}; echo there"], "cwd": "."})
    response = conn.getresponse()
    seen = b""
    while b"here" not in seen:
        seen += response.readline()
    agent.write("go", b"")
    assert b"there" in response.read()
    conn.close()


def test_stream_timeout_leaves_grandchildren(agent):
    conn = agent.start("POST", "/api/v1/process/sync-stream",
                       {"command": "sh", "args": ["-c", f"({GATE}; echo late) & wait"], "timeout": 1, "cwd": "."})
    response = conn.getresponse()
    seen = b""
    while b"event: error" not in seen:
        seen += response.readline()
    agent.write("go", b"")
    got = events(seen + response.read())
    conn.close()
    assert [name for name, _ in got] == ["start", "error", "stdout"]
    assert got[1][1]["error"] == "Execution timeout"
    assert got[2][1]["output"] == "late\n"


def test_stream_without_its_client_runs_on(agent):
    conn = agent.start("POST", "/api/v1/process/sync-stream", {
        "command": "sh", "args": ["-c", f"echo here; {GATE}; seq 1 100000; touch done"], "cwd": "."})
    conn.getresponse().readline()
    conn.sock and conn.sock.close()
    conn.close()
    agent.write("go", b"")
    wait_for(lambda: os.path.exists(f"{agent.workspace}/done"), "the program's end")


def test_stream_loses_all_after_a_wrong_byte(agent):
    got = agent.stream("sh", "-c", "echo before; printf 'x\\377y\\n'; echo lost")
    assert [data["output"] for name, data in got if name == "stdout"] == ["before\n"]


def test_stream_keeps_alive(service, agent):
    service.set(keepalive_s=0.1)
    body = agent("POST", "/api/v1/process/sync-stream", {"command": "sleep", "args": ["0.5"]}).body
    assert b"\n\n:\n\n" in body
    assert [name for name, _ in events(body)] == ["start", "complete"]


def test_logs_keep_the_last_lines_only(agent):
    process = agent("POST", "/api/v1/process/exec", {"command": "seq", "args": ["1", "10050"]}).json["processId"]
    path = f"/api/v1/process/{process}/logs"
    wait_for(lambda: agent("GET", path).json["logs"][-1:] == ["[stdout] 10050\n"], "the last line")
    logs = agent("GET", path).json["logs"]
    assert (len(logs), logs[0]) == (10000, "[stdout] 51\n")
    assert agent("GET", f"{path}?tail=2").json["logs"] == ["[stdout] 10049\n", "[stdout] 10050\n"]


def test_logs_stream_never_ends(agent):
    process = agent("POST", "/api/v1/process/exec", {"command": "echo", "args": ["x"]}).json["processId"]
    wait_for(lambda: agent("GET", f"/api/v1/process/{process}/logs").json["logs"], "the line")
    conn = agent.start("GET", f"/api/v1/process/{process}/logs?stream=true")
    response = conn.getresponse()
    assert response.readline() == b"data: [stdout] x\n"
    assert (response.readline(), response.readline()) == (b"data: \n", b"\n")
    conn.sock.settimeout(0.5)
    with pytest.raises(socket.timeout):
        response.readline()
    conn.close()


def test_kill_signals_one_pid_and_knows_few_signals(agent):
    text = "trap '' TERM HUP; sleep 1000 & echo $! >child; touch ready; wait; wait"
    process = agent("POST", "/api/v1/process/exec", {"command": "sh", "args": ["-c", text], "cwd": "."}).json["processId"]
    wait_for(lambda: os.path.exists(f"{agent.workspace}/ready"), "the program")
    path = f"/api/v1/process/{process}"
    assert status(agent("POST", f"{path}/kill?signal=SIGTERM")) == 0
    assert agent("GET", f"{path}/status").json["processStatus"] == "running"
    assert status(agent("POST", f"{path}/kill?signal=SIGUSR1")) == 0  # means SIGKILL
    wait_for(lambda: agent("GET", f"{path}/status").json["exitCode"] == 137, "the end")
    assert agent.sh("kill -0 $(cat child) && echo lives", cwd=".") == "lives\n"


def test_exec_timeout_kills_the_program_only(agent):
    process = agent("POST", "/api/v1/process/exec", {"command": "sleep", "args": ["1000"], "timeout": 1}).json["processId"]
    wait_for(lambda: agent("GET", f"/api/v1/process/{process}/status").json["processStatus"] == "killed", "the timeout")


def test_a_hundred_at_once(service, agent):
    conns = [agent.start("POST", "/api/v1/process/exec-sync", {"command": "sh", "args": [
        "-c", f"echo >here.{i}; while [ $(ls here.* | wc -l) -lt 100 ]; do sleep 0.05; done; echo {i}"], "cwd": "."}) for i in range(100)]
    for i, conn in enumerate(conns):  # each waits for all the others, so all have to run
        assert f'"stdout":"{i}\\n"'.encode() in conn.getresponse().read()
        conn.close()


def test_bodies_in_chunks_and_after_a_question(service, agent):
    """As other clients send them: chunked; and only after `100 Continue`."""
    service.set(late_write=0)
    conn = agent.open()
    conn.request("POST", "/api/v1/files/write?path=f", body=iter([b"a" * 70000, b"b" * 5]), encode_chunked=True, headers={
        "Authorization": agent.authorization, "Content-Type": "application/octet-stream", "Transfer-Encoding": "chunked"})
    assert b'"size":70005' in conn.getresponse().read()
    conn.close()
    with socket.create_connection((agent.host, agent.port), timeout=BOUND) as sock:
        head = f"POST /api/v1/files/write?path=g HTTP/1.1\r\nHost: x\r\nAuthorization: {agent.authorization}\r\n"
        sock.sendall(f"{head}Content-Length: 3\r\nExpect: 100-continue\r\n\r\n".encode())
        assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"abc")
        assert sock.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
    assert (agent.read("f").body, agent.read("g").body) == (b"a" * 70000 + b"b" * 5, b"abc")


def test_words_for_bad_requests(agent):
    anonymous = Client(agent.host, agent.port, None)
    assert (anonymous("GET", "/api/v1/nope").status, anonymous("GET", "/health").status) == (401, 200)
    answer = agent("POST", "/api/v1/process/exec-sync", {"command": 1})
    assert answer.status == 422 and b"command: invalid type: integer `1`, expected a string" in answer.body
    answer = agent("GET", "/api/v1/files/list?limit=x")
    assert (answer.status, answer.body) == (400, b"Failed to deserialize query string: limit: invalid digit found in string")
