# SPDX-License-Identifier: Apache-2.0
"""Boxes are apart from each other and from the machine, and leave nothing behind."""
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import BOUND, HERE, AgentClient, Client, wait_for
from server import Service


def test_root_has_namespaces(service):
    if os.geteuid() == 0:
        assert service.isolated


@pytest.fixture
def two(service):
    if not service.isolated:
        pytest.skip("this user may not make namespaces")
    service.create("one")
    service.create("two")
    return AgentClient(service, "one"), AgentClient(service, "two")


def test_a_box_holds_no_mount_of_the_host(two):
    """A copy of a FUSE mount in a box would keep the daemon of that mount alive after its unmount."""
    mounts = [line.split() for line in two[0].sh("cat /proc/self/mountinfo").splitlines()]
    assert mounts[0][4] == "/"
    for words in mounts:
        kind = words[words.index("-") + 1]
        assert not kind.startswith("fuse"), words
        assert not words[4].startswith("/var/") or words[4] == "/var/tmp", words


def test_paths_are_those_of_a_devbox(service, two):
    one, other = two
    service.set(late_write=0)
    for path in ("/home/devbox/project/f", "/tmp/f", "/var/tmp/f", "/dev/shm/f"):
        one.sh(f"echo one >{path}")
        assert one.read(path).body == b"one\n"
        assert other.read(path).json["status"] == 1404
    other.write("/tmp/g", b"x")
    assert other.sh("cat /tmp/g") == "x"
    os.symlink("/home/devbox/project/f", f"{one.workspace}/absolute")
    assert one.read("absolute").body == b"one\n"


def test_the_machine_is_out_of_reach(two):
    one, _ = two
    assert one.exec_sync("touch", "/usr/x")["exitCode"] == 1
    assert one.exec_sync("mount", "-t", "tmpfs", "x", "/mnt")["exitCode"] != 0
    assert one.exec_sync("mknod", "/tmp/disk", "b", "8", "0")["exitCode"] != 0
    assert int(one.sh("grep CapEff /proc/self/status").split()[1], 16) & ~0xa00425fb == 0
    assert one.exec_sync("sh", "-c", "echo 1 >/proc/sys/vm/overcommit_memory")["exitCode"] != 0
    assert one.sh("ps -e -o pid= | wc -l | tr -d ' '") in ("5\n", "6\n", "7\n")  # init, agent, sh, ps, wc, tr


def test_networks_are_apart(two):
    one, other = two
    serve = {"command": "python3", "args": ["-m", "http.server", "8000", "--bind", "127.0.0.1"]}
    for agent in two:
        agent("POST", "/api/v1/process/exec", serve)
        wait_for(lambda agent=agent: agent("GET", "/api/v1/ports").json["ports"] == [8000], "the port")
    other("POST", "/api/v1/process/exec", {"command": "true"})


@pytest.mark.parametrize("runtime, busybox, noexec", [
    ("python", False, False), ("busybox", True, False), ("noexec", False, True), ("busybox-noexec", True, True)])
@pytest.mark.parametrize("isolate", [True, False])
def test_special_boxes(isolate, runtime, busybox, noexec):
    with Service(start_s=0, isolate=isolate) as service:
        service.create("one", runtime=runtime)
        agent = AgentClient(service, "one")
        assert agent.exec_sync("sh", "-c", "exec 2>/dev/null; python3 -c 1")["exitCode"] == (127 if busybox else 0)
        assert agent.exec_sync("python3", "-c", "1").get("status") == (1600 if busybox else 0)
        assert agent.sh("for i in a b; do echo $i; done | sort -r | base64") == "YgphCg==\n"
        if service.isolated:
            for folder in ("/home/devbox/project", "/tmp", "/var/tmp", "/dev/shm", "/home/devbox"):
                agent.write(f"{folder}/script", b"#!/bin/sh\necho ran\n")
                agent.sh(f"chmod 755 {folder}/script")
                wait_for(lambda f=folder: agent.sh(f"wc -c <{f}/script").strip() == "19", "the script")
                answer = agent.exec_sync(f"{folder}/script")
                assert answer["exitCode"] == (127 if noexec else 0), folder
                assert answer["stderr"] == ("Permission denied (os error 13)" if noexec else "")
                assert agent.sh(f"sh {folder}/script") == "ran\n"


def test_a_restart_is_a_new_container(service):
    """The workspace stays, all else goes; an agent that is killed alone loses nothing."""
    service.create("one")
    agent = AgentClient(service, "one")
    tmp = "/tmp" if service.isolated else "$TMPDIR"
    agent.sh(f"touch kept; touch {tmp}/lost $HOME/lost", cwd=".")
    service.kill("one")
    wait_for(lambda: agent("GET", "/health").status == 200, "the agent")
    assert agent.sh(f"ls . {tmp} $HOME | grep -c lost", cwd=".") == "2\n"
    for _ in range(5):
        service.boxes.start(service.boxes.get("one"), restart=True)
        agent = AgentClient(service, "one")
        assert agent.sh(f"ls . {tmp} $HOME | grep -v project", cwd=".").count("lost") == 0
    assert agent.sh("ls", cwd=".") == "kept\n"


@pytest.mark.parametrize("isolate", [True, False])
def test_a_box_that_cannot_be_made(isolate):
    with Service(start_s=0, isolate=isolate) as service:
        box = service.create("one")
        host, port, token = service.agent("one")
        client = Client(host, port, f"Bearer {token}")
        right, box.folder = box.folder, lambda name: None  # no folders: the mounts fail, or the agent's start
        wait_for(lambda: client("GET", "/health").status == 503 and box.status() == "Error", "the error")
        box.folder = right
        service.boxes.start(box)
        assert client("GET", "/health").status == 200


def test_a_port_that_is_taken(service, tmp_path):
    with pytest.raises(OSError):
        Service(port=service.port, root=str(tmp_path))
    assert os.listdir(tmp_path) == []


def pids(mark):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if mark in Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace"):
                    found.append(int(name))
            except OSError:
                pass
    return found


@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize("end", ["term", "kill", "stdin"])
def test_nothing_is_left(tmp_path, end, isolate):
    """However the service ends, no process does not: neither session leaders nor what ignores signals."""
    argv = [sys.executable, f"{HERE}/server.py", "--box", "one", "--box", "idle", "--root", str(tmp_path), "--stdin", "--kubeconfig",
            str(tmp_path / "kubeconfig"), "--quirk", "start_s=0", *([] if isolate else ["--plain"])]
    run = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert run.stdout.readline().startswith("url: http://127.0.0.1:")
        assert run.stdout.readline().startswith("key: ")
        port, token = re.search(r":(\d+) token (\S+) workspace", run.stdout.readline()).groups()
        assert (tmp_path / "kubeconfig").stat().st_mode & 0o777 == 0o600
        agent = Client("127.0.0.1", int(port), f"Bearer {token}")
        mark = f"{os.getpid()}1234567{isolate:d}"
        text = f"trap '' TERM HUP INT; setsid sleep {mark} >/dev/null 2>&1 </dev/null & sleep {mark} >/dev/null 2>&1 </dev/null & echo ok"
        answer = agent("POST", "/api/v1/process/exec-sync", {"command": "sh", "args": ["-c", text]})
        assert answer.json["stdout"] == "ok\n"
        wait_for(lambda: len(pids(f"sleep\0{mark}")) == 2, "the programs")
        helpers = pids(f"{HERE}/sandbox.py")
        if end == "term":
            run.terminate()
        elif end == "kill":
            run.kill()
        else:
            run.stdin.close()
        assert run.wait(BOUND) == (-signal.SIGKILL if end == "kill" else 0)
    finally:
        run.kill()
        run.wait()
        run.stdout.close()
    wait_for(lambda: not pids(f"sleep\0{mark}"), "the programs' end")
    wait_for(lambda: all(pid not in pids(f"{HERE}/sandbox.py") for pid in helpers if not ours(pid)), "the helpers' end")
    if end != "kill":
        assert sorted(os.listdir(tmp_path)) == ["kubeconfig"]


def ours(pid):
    """Of the service that this session's tests share."""
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
        if pid == os.getpid():
            return True
    return False
