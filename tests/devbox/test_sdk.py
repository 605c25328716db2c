# SPDX-License-Identifier: Apache-2.0
"""The official SDK (npm, the version that sdk/package-lock.json names) drives the service through the life of a box.

SBX_SDK    a folder where the SDK is installed already, or is to be kept (default: a temporary one for each run)"""
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import BOUND
from server import Service

HERE = Path(__file__).resolve().parent


def need(tool, package):
    path = shutil.which(tool)
    if not path:
        pytest.skip(f"needs {tool}: apt-get install {package}")
    return path


@pytest.fixture(scope="module")
def sdk(tmp_path_factory):
    """The folder from which node finds the SDK."""
    kept = os.environ.get("SBX_SDK")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("sdk")
    if not (folder / "node_modules/@labring/devbox-sdk/package.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / "sdk" / name, folder / name)
        subprocess.run([need("npm", "npm"), "ci", "--omit=dev", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund",
                        "--loglevel=error"], cwd=folder, check=True, timeout=BOUND * 10)
    installed = json.loads((folder / "node_modules/@labring/devbox-sdk/package.json").read_text())
    wanted = json.loads((HERE / "sdk/package.json").read_text())["dependencies"]["@labring/devbox-sdk"]
    assert installed["version"] == wanted
    return folder


def drive(sdk, service, tmp_path, name="sdk-box"):
    service.write_kubeconfig(tmp_path / "kubeconfig")
    run = subprocess.run([need("node", "nodejs"), HERE / "sdk/drive.mjs", service.url, tmp_path / "kubeconfig", name], cwd=sdk,
                         capture_output=True, text=True, timeout=BOUND * 4)
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)


def test_one_warm_process(sdk, tmp_path):
    """use.mjs, by which other tests have the SDK work on boxes that they made."""
    with Service(start_s=0, late_write=0) as service:
        service.write_kubeconfig(tmp_path / "kubeconfig")
        service.create("one")
        argv = [need("node", "nodejs"), HERE / "sdk/use.mjs", service.url, tmp_path / "kubeconfig", "one"]
        run = subprocess.Popen(argv, cwd=sdk, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with run:
            def use(call, *args):
                run.stdin.write(json.dumps({"call": call, "args": args}) + "\n")
                run.stdin.flush()
                return json.loads(run.stdout.readline())

            try:
                assert use("writeFile", "f", {"base64": "AP/+gA=="}) == {"value": None}
                assert Path(service.workspace("one"), "f").read_bytes() == b"\0\xff\xfe\x80"
                assert use("readFile", "f") == {"value": {"base64": "AP/+gA=="}}
                assert use("codeRun", "print(6 * 7)")["value"]["stdout"] == "42\n"
                assert use("readFile", "nope")["code"] == "FILE_NOT_FOUND"
            finally:
                run.stdin.close()
            assert run.wait(BOUND) == 0


def test_life_of_a_box(sdk, tmp_path):
    # the SDK keeps what it sees for a minute: a box that is Running but has no token yet would stay so for it
    with Service(nameless=False) as service:
        seen = drive(sdk, service, tmp_path)
    work = seen["sync"]["stdout"].split("\n")[1]
    assert (seen["created"], seen["ready"], seen["paused"], seen["deleted"]) == ("Pending", "Running", "Paused", 0)
    assert seen["detail"]["resources"] == {"cpu": 1, "memory": 2}
    assert seen["detail"]["agentServer"]["token"]
    assert [p["number"] for p in seen["detail"]["ports"]] == [9757, 8080]
    assert seen["listed"] == [["sdk-box", "Running", {"cpu": 1000, "memory": 2048}]]
    assert "python" in seen["templates"]

    assert seen["text"] == "grüße\n" and seen["kept"] == "grüße\n"
    assert seen["bytes"] and seen["download"]
    assert seen["files"] == [["bytes.bin", 256, False], ["text.txt", 8, False]]
    assert seen["upload"] == 2
    assert seen["search"] == ["three.txt"] and seen["find"] == ["text.txt"]
    assert seen["gone"] == "FILE_NOT_FOUND"

    assert (seen["python"]["stdout"], seen["python"]["stderr"], seen["python"]["exitCode"]) == ("42\n", "bad\n", 3)
    assert (seen["node"]["stdout"], seen["node"]["exitCode"]) == ("1\n", 0)
    assert seen["sync"]["stdout"].startswith("me\n/") and work.endswith("/dir")
    assert seen["started"] == "running" and seen["running"] == "running"
    assert seen["logs"] == ["[stderr] err\n", "[stdout] out\n"]
    assert seen["killed"] == ["killed", 143]
    assert seen["processes"] == 1
    assert seen["ports"] == []
    assert len(seen["monitor"]) >= 4
