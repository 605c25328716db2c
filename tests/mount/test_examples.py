# SPDX-License-Identifier: Apache-2.0
"""The example sessions of docs/examples do what they say; processes of one's own, and what a box uses."""

import os
from pathlib import Path

import pytest

from helpers import ROOT, sh, wait_for

EXAMPLES = Path(__file__).resolve().parents[2] / "docs/examples"


@pytest.mark.bound(120)
@pytest.mark.parametrize("deny", [[], ["coin(hive|miner)"]], ids=["without a policy", "with a policy"])
def test_the_session_of_an_agent_goes_through(fresh_mnt, deny):
    m = fresh_mnt(config={"policy": {"deny": deny}} if deny else {})
    done = sh(["sh", EXAMPLES / "agent.sh", m.path], seconds=100).ok()
    assert done.text.endswith("agent example: ok\n")
    assert ("allows it" in done.text) == (not deny) and ("coin(hive|miner)" in done.text) == bool(deny), done.text
    assert os.listdir(m.path) == [".sbxfs"]


def test_new_starts_a_process_and_tells_its_number(box):
    with open(box.path / "processes/new", "r+b", buffering=0) as new:
        new.write(b"echo hi; echo there >&2; exit 4\n")
        number = new.read(100).decode().strip()
    process = box.path / "processes" / number
    assert (process / "exit").read_text() == "4\n"
    assert (process / "stdout").read_text() == "hi\n" and (process / "stderr").read_text() == "there\n"
    assert (box.path / "processes/last").readlink() == Path(number)
    assert (process / "command").read_text() == "echo hi; echo there >&2; exit 4\n"


def test_a_process_with_a_name_is_read_while_it_runs_and_ended_by_a_signal(box):
    process = box.path / "processes/mine"
    process.mkdir()
    assert (process / "status").read_text() == "none\n"
    (process / "command").write_text("echo up; exec sleep 1000\n")
    wait_for(lambda: (process / "stdout").read_text() == "up\n", "its output shows while it runs")
    assert "exit" not in [p.name for p in process.iterdir()], "what would wait is not listed"
    sh(["cp", "-r", process, box.ws / "copy"], seconds=20).ok()
    (process / "signal").write_text("TERM\n")
    assert (process / "exit").read_text() == "143\n"
    process.rmdir()
    assert not process.exists()


@pytest.mark.parametrize("name", ["12", "new", "last", "a b", "..."])
def test_names_that_are_no_names_of_processes_are_refused(mnt, box, name):
    mnt.allow("EINVAL", "process name")
    with pytest.raises(OSError):
        (box.path / "processes" / name).mkdir()


def test_usage_and_monitor_have_numbers_while_something_runs(box):
    box.ready()
    (box.path / "processes/new").write_text("while :; do :; done\n")
    if ROOT:
        wait_for(lambda: "memory_bytes" in (box.path / "usage").read_text(), "usage has numbers")
    head = (box.path / "monitor/90s").read_text().splitlines()[0]
    assert head == "time\tcpu_percent\tmemory_bytes\tmemory_percent"
    assert not (box.path / "monitor/2h").exists()


def test_env_of_the_box_reaches_runs_and_processes(box):
    (box.path / "env").write_text("GREETING=hello world\n")
    assert box.go("import os; print(os.environ['GREETING'])").text == "hello world\n"
    (box.path / "processes/new").write_text('echo "$GREETING"\n')
    assert (box.path / "processes/last/exit").read_text() == "0\n"
    assert (box.path / "processes/last/stdout").read_text() == "hello world\n"
