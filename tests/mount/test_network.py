# SPDX-License-Identifier: Apache-2.0
"""network: none, nat, host. With nat a box reaches the outside and nothing of the host, whatever a program tries; the program
that carries it lives as long as the box. As root the daemon runs in a small world of its own (networld.py), and a test runs
all of this once more as an ordinary user in such a world."""
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
from pathlib import Path

import networld
import pytest
from helpers import HANG, HERE, ROOT, SBXFS, SLOW, Mount, children, expect_errno, need, sh, skip, spawn, finish, wait_for
from networld import CANARY, ECHO, HOST_ADDRESSES, HTTP, NAME, OUTSIDE4, OUTSIDE6, attack

IN_A_WORLD = os.environ.get("SBX_NETWORLD") == "1"  # the ordinary user's run, see the last test
NAT = {"templates": {"default": {"network": "nat"}}}
TUN = "/dev/net/tun"


def processes(pid):
    """Children of a daemon that carry a network."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        except OSError:  # the thread has ended
            continue
        for child in children:
            try:
                if re.match("pasta|passt|slirp4netns", Path(f"/proc/{child}/comm").read_text()):
                    found.append(int(child))
            except OSError:
                pass
    return found


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class NatMount(Mount):
    """A daemon in the world's host. It must not leave a program that carries a network either."""

    prefix = ()

    def __init__(self, world, tool, **kw):
        self.world, self.carriers = world, set()
        config = {**NAT, "network_tool": tool} if tool else NAT
        super().__init__(config={**config, **kw.pop("config", {})}, **kw)

    def command(self):
        return [*(self.world.inside if self.world else []), *self.prefix, *super().command()]

    def carrying(self):
        now = processes(self.pid)
        self.carriers.update(now)
        return now

    def end(self):
        if self.alive():
            self.carrying()
        return super().end()

    def kill(self, *args):
        self.carrying()
        return super().kill(*args)

    def processes(self):
        return super().processes() + [(p, "carries a network") for p in self.carriers if alive(p)]


@pytest.fixture(scope="module")
def world():
    """The world, None in the ordinary user's run (which is in it already)."""
    if IN_A_WORLD:
        yield None
        return
    if not ROOT:
        skip("root", "making the namespaces of a test world; root's pass runs these as an ordinary user, too")
    w = networld.World()
    yield w
    w.close()


@pytest.fixture(params=["pasta", "slirp4netns"], scope="module")
def tool(request):
    need(request.param, {"pasta": "passt"}.get(request.param))
    return request.param


def ended(mounts):
    problems = []
    for m in mounts:
        problems += m.stop()
        m.remove()
    assert not problems, problems


@pytest.fixture(scope="module")
def nat(world, tool):
    m = NatMount(world, tool)
    m.start()
    yield m
    ended([m])


@pytest.fixture
def make(world):
    mounts = []

    def new(tool=None, start=True, **kw):
        m = NatMount(world, tool, **kw)
        mounts.append(m)
        return m.start() if start else m

    yield new
    ended(mounts)


@pytest.fixture
def box(nat):
    b = nat.box().ready()
    yield b
    if b.path.exists():
        nat.note(b)
        b.delete()


FETCH = f"import urllib.request\nprint(urllib.request.urlopen('http://{NAME}:{HTTP}/x', timeout=20).read().decode(), end='')\n"


def online(box):
    """By name, so that names work, too."""
    return box.go(FETCH).ok().text == "served /x\n"


# ---- what a box reaches ----


def test_a_box_reaches_the_outside_by_name(box):
    assert online(box)
    assert box.info()["network"] == "nat"
    assert box.no_failure(), box.error()


def test_curl_and_node_reach_it_as_well(box):
    if shutil.which("curl", path="/usr/bin"):
        assert box.go(f"curl -sS -m 20 http://{NAME}:{HTTP}/curl", "code.sh").ok().text == "served /curl\n"
    else:
        need("curl")
    if shutil.which("node", path="/usr/bin"):
        code = f"fetch('http://{NAME}:{HTTP}/node').then(r => r.text()).then(t => process.stdout.write(t))"
        assert box.go(code, "code.js").ok().text == "served /node\n"
    else:
        need("node", "nodejs")


def test_udp_goes_out_and_comes_back(box):
    code = f"""import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
for n in range(20):
    s.sendto(b'%d' % n, ('{OUTSIDE4}', {ECHO}))
    print(s.recv(100).decode())
"""
    assert box.go(code).ok().text.split("\n")[:-1] == [f"echo {n}" for n in range(20)]


def test_a_megabyte_arrives_whole(box):
    """Many segments, not only one packet each way."""
    (box.ws / "get.py").write_text(
        f"import urllib.request\nprint(len(urllib.request.urlopen('http://{OUTSIDE4}:{HTTP}/' + 'y' * 3000, timeout=20).read()))\n"
    )
    assert box.go("python3 get.py", "code.sh").ok().text == f"{len('served /') + 3000 + 1}\n"


def test_ipv6_goes_out_where_the_tool_can(box, tool):
    r = box.go(f"import socket\ns = socket.create_connection(('{OUTSIDE6}', {CANARY}), 20)\nprint(s.recv(100).decode())")
    if tool == "pasta":
        assert r.ok().text == "CANARY\n"
    else:
        assert r.code == 1 and "unreachable" in r.err.decode(), "IPv4 only: refused at once, not after a timeout"


def test_a_name_that_is_not_there_is_told_at_once(box):
    r = box.go("import socket\ntry: socket.getaddrinfo('nowhere.test', 80)\nexcept socket.gaierror as e: print(e.errno == socket.EAI_NONAME)")
    assert r.ok().text == "True\n"


# ---- what it does not reach ----


def test_nothing_of_the_host_is_reached(box, tool):
    gateway = "10.0.2.2" if tool == "slirp4netns" else OUTSIDE4
    got = attack(box, [*HOST_ADDRESSES, "0.0.0.0", "10.0.2.2", "10.0.2.3", "169.254.1.1", "169.254.169.254", "::", "::ffff:127.0.0.1"], 3)
    reached = {a: r for a, r in got.items() if "CANARY" in r}
    assert not reached
    # the same code reaches what may be reached: it is no wonder that is silent
    assert attack(box, [OUTSIDE4], 20)[OUTSIDE4] == ["CANARY"] * 6
    if tool == "pasta":
        assert attack(box, [OUTSIDE6], 20)[OUTSIDE6] == ["CANARY"] * 6
    code = f"import socket\ntry: socket.create_connection(('{gateway}', 1), 5)\nexcept OSError: print('no')"
    assert box.go(code).ok().text == "no\n"


def test_routes_and_addresses_cannot_be_changed_by_programs(box):
    ip = shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if not ip:
        need("ip", "iproute2")
    r = box.go(
        f"for what in 'route del local 127.0.0.0/8 dev eth0 table local' 'addr add 10.9.8.7/32 dev eth0' 'link set eth0 down' 'rule add pref 1 table main'; "
        f"do {ip} $what 2>&1 && echo DONE; done; true",
        "code.sh",
    )
    assert "DONE" not in r.text and r.text.count("Operation not permitted") == 4, r


def test_other_boxes_are_not_reached(nat, box):
    other = nat.box().ready()
    other.start(
        "import socket, time\ns = socket.socket()\ns.bind(('0.0.0.0', 7099))\ns.listen()\nprint('READY', flush=True)\n"
        "s.settimeout(60)\nwhile True:\n    try: s.accept()[0].sendall(b'NEIGHBOUR')\n    except TimeoutError: break\n"
    )
    addresses = (
        "import json, socket, subprocess\n"
        "out = subprocess.run(['hostname', '-I'], capture_output=True, text=True).stdout.split()\n"
        "print(json.dumps(out))\n"
    )
    its = json.loads(other.go(addresses, slot="." if not (other.run / "s").exists() else "s").text)
    code = """import json, socket
got = {}
for a in %r:
    try: got[a] = socket.create_connection((a, 7099), 2).recv(100).decode()
    except OSError as e: got[a] = type(e).__name__
print(json.dumps(got))
"""
    targets = [*its, "10.0.2.2", OUTSIDE4, "127.0.0.1"]
    got = json.loads(box.go(code % targets).ok().text)
    assert "NEIGHBOUR" not in got.values(), got
    itself = json.loads(other.go(code % its).ok().text)
    assert its and "NEIGHBOUR" in itself.values(), "the neighbour really listens"
    other.delete()


def test_resolv_conf_names_a_server_that_a_box_can_reach(box, tool):
    text = box.go("cat /etc/resolv.conf", "code.sh").ok().text
    servers = re.findall(r"(?m)^nameserver\s+(\S+)", text)
    allowed = {"pasta": {"169.254.1.1", "fd53:6278:6673::53"}, "slirp4netns": {"10.0.2.3"}}[tool]
    assert servers and set(servers) <= allowed, text


# ---- none and host ----


def test_none_has_a_loopback_only_and_host_sees_the_hosts_interfaces(make):
    m = make(config={"templates": {"default": {"network": "none"}, "shared": {"network": "host"}}})
    none = m.box().ready()
    names = "import socket\nprint(*sorted(n for _, n in socket.if_nameindex()))"
    assert none.go(names).ok().text == "lo\n"
    assert none.info()["network"] == "none"
    assert set(attack_none(none).values()) == {"no"}
    (m / ".sbxfs/templates/shared/h").mkdir()
    from helpers import Box

    host = Box(m / "h")
    m.note(host)
    host.ready()
    assert "up0" in host.go(names).ok().text.split()
    assert online(host)
    assert not m.carrying()
    for b in (none, host):
        b.delete()


def attack_none(box):
    code = f"""import json, socket
got = {{}}
for a in {[OUTSIDE4, OUTSIDE6, "127.0.0.1", "169.254.1.1"]!r}:
    try: got[a] = socket.create_connection((a, {CANARY}), 2).recv(100).decode()
    except OSError: got[a] = 'no'
print(json.dumps(got))
"""
    return json.loads(box.go(code).ok().text)


# ---- its life ----


def test_ports_of_a_nat_box_are_listed(box):
    box.start(
        "import socket, time\na, b = socket.socket(), socket.socket(socket.AF_INET6)\na.bind(('0.0.0.0', 8123))\nb.bind(('::1', 8124))\n"
        "a.listen(); b.listen()\nprint('READY', flush=True)\ntime.sleep(600)"
    )
    assert [line.split()[0] for line in (box / "ports").read_text().splitlines()] == ["8123", "8124"]


def test_the_network_comes_and_goes_with_the_container(nat, box):
    nat.carrying()
    before = set(processes(nat.pid))
    assert before
    (box / "status").write_text("stop\n")
    wait_for(lambda: (box / "status").read_text() == "stopped\n", "stopped")
    assert not set(processes(nat.pid)), "with the box its network ends, before the box is told to be stopped"
    (box / "status").write_text("start\n")
    box.ready()
    assert online(box)
    (box / "status").write_text("restart\n")
    wait_for(lambda: (box / "status").read_text() == "running\n", "running")
    assert online(box) and len(nat.carrying()) == 1
    box.delete()
    wait_for(lambda: not processes(nat.pid), "the network of a deleted box has ended")


def test_a_save_wakes_a_stopped_box_with_its_network(nat, box):
    (box / "status").write_text("stop\n")
    wait_for(lambda: (box / "status").read_text() == "stopped\n", "stopped")
    assert online(box), "the run starts when the network is there, not before"


def test_after_a_pause_the_network_is_there(nat, box):
    try:
        (box / "status").write_text("pause\n")
    except OSError as e:
        assert e.errno == errno.EOPNOTSUPP
        skip("cgroup", "no pause without them")
    wait_for(lambda: (box / "status").read_text() == "paused\n", "paused")
    assert nat.carrying()
    (box / "status").write_text("start\n")
    wait_for(lambda: (box / "status").read_text() == "running\n", "running")
    assert online(box)


def test_a_network_that_dies_is_told_and_started_again(make, tool):
    m = make(tool)
    m.allow("network")
    b = m.box().ready()
    (pid,) = m.carrying()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: "network" in b.error(), "the box tells it")
    assert re.search(r"network .* is gone: .*(pasta|slirp4netns) was killed by signal 9", b.error()), b.error()
    assert (b / "status").read_text() == "running\n"
    wait_for(lambda: "network is there again" in (m / ".sbxfs/events").read_text(), "it was started again")
    assert "is gone" in (m / ".sbxfs/events").read_text() and "is gone" in (m / ".sbxfs/errors").read_text()
    assert online(b)
    # and keeps the host out again
    got = attack(b, ["127.0.0.1", "172.31.255.1"])
    assert not {a: r for a, r in got.items() if "CANARY" in r}
    (again,) = m.carrying()
    assert again != pid
    b.delete()


@pytest.mark.parametrize("frozen", [False, True])
def test_a_killed_daemon_leaves_no_network(make, tool, frozen):
    m = make(tool)
    b = m.box().ready()
    m.note(b)
    pids = m.carrying()
    assert pids
    for pid in pids if frozen else []:
        os.kill(pid, signal.SIGSTOP)
    m.kill()
    wait_for(lambda: not any(map(alive, pids)), "it has ended with the daemon")
    wait_for(lambda: not m.processes(), "so has the box")
    m.start()
    assert online(b)
    b.delete()


def test_what_survived_a_killed_daemon_is_ended_at_the_next_mount(make, tool):
    m = make(tool)
    b = m.box().ready()
    m.note(b)
    where = Path("/run/sbxfs", (m.state / "id").read_text()) if ROOT else m.state / "run"
    (noted,) = where.glob("*/network.pid")
    held = os.open(where, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(held, fcntl.LOCK_SH)  # other daemons of the machine clean up what nobody holds
    pid, start = map(int, noted.read_text().split())
    assert [pid] == m.carrying()
    m.kill()
    wait_for(lambda: not alive(pid), "ended")
    survivor, other = spawn(["sleep", "600"]), spawn(["sleep", "600"])
    try:
        started = [int(Path(f"/proc/{p.pid}/stat").read_text().rpartition(")")[2].split()[19]) for p in (survivor, other)]
        noted.write_text(f"{survivor.pid} {started[0]}\n")
        (where / "another").mkdir()
        (where / "another/network.pid").write_text(f"{other.pid} {started[1] + 1}\n")  # its number went to another program
        m.start()
        assert survivor.wait(HANG) == -signal.SIGKILL
        assert other.poll() is None
        assert not noted.exists()
    finally:
        os.close(held)
        for p in (survivor, other):
            p.kill()
            p.wait()


def test_unmounting_ends_the_network(make, tool):
    m = make(tool)
    m.box().ready()
    m.box().ready()
    pids = m.carrying()
    assert len(pids) == 2
    assert not m.end()
    assert not any(map(alive, pids))


def test_the_network_does_not_hold_the_mount(world, tool):
    """slirp4netns keeps /run in its sandbox: with it a mount that lies there would outlive its unmount, and the daemon too."""
    if not ROOT:
        skip("root", "only root mounts in /run")
    m = NatMount(world, tool)
    place = Path(tempfile.mkdtemp(prefix="sbxfs-test-", dir="/run"))
    m.path.rmdir()
    m.path = place / "m n t"
    m.path.mkdir()
    try:
        m.start()
        m.box().ready()
        pids = m.carrying()
        assert pids
        problems = m.stop()
        assert not any(map(alive, pids))
    finally:
        m.remove()
        m.path.rmdir()
        place.rmdir()
    assert not problems, problems


def test_a_box_that_is_deleted_while_its_network_is_set_up_is_gone(make, tool):
    m = make(tool)
    m.box().ready().delete()  # the runtime is known now
    for n in range(10):
        m.box(f"short{n}").delete()
    wait_for(lambda: not os.listdir(m.path) or os.listdir(m.path) == [".sbxfs"], "all are gone")
    wait_for(lambda: not m.carrying(), "no network is left")
    assert online(m.box("long"))


# ---- what cannot be ----


def script(tmp, name, text):
    path = tmp / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    tmp.chmod(0o755)
    return str(path)


def test_a_tool_that_fails_makes_the_box_fail_with_its_reason(make, tmp):
    m = make(script(tmp, "pasta", "echo 'first words'; echo 'the wire is cut' >&2; exit 3\n"))
    m.allow("network", "could not be started")
    b = m.box()
    expect_errno(errno.EIO, (b / "ready").read_bytes)
    assert (b / "status").read_text() == "failed\n"
    assert "network 'nat' cannot be set up: pasta: the wire is cut" in b.error()
    b.save("print(1)")
    with pytest.raises(OSError):
        b.exit()
    b.delete()


@pytest.mark.bound(120)
def test_a_tool_that_never_gets_ready_is_not_waited_for_for_ever(make, tmp):
    m = make(script(tmp, "slirp4netns", "exec sleep 1000\n"))
    m.allow("network", "could not be started")
    b = m.box()
    expect_errno(errno.EIO, (b / "ready").read_bytes)
    assert re.search(r"cannot be set up: no network after \d+ s", b.error()), b.error()
    assert (b / "status").read_text() == "failed\n"
    b.delete()


def test_a_box_that_is_deleted_while_its_network_is_set_up_leaves_no_process_and_no_descriptor(make, tmp):
    m = make(script(tmp, "slirp4netns", "exec sleep 1000\n"))

    def pidfds():
        found = []
        for fd in Path(f"/proc/{m.pid}/fd").iterdir():
            try:
                found += [fd.name] if "pidfd" in os.readlink(fd) else []
            except OSError:  # closed meanwhile
                pass
        return found

    before = None
    for n in range(3):
        b = m.box(f"short{n}")
        wait_for(lambda: f"short{n} setting up the network" in (m / ".sbxfs/events").read_text(), "it is set up")
        before = before or {p for p in children(m.pid) if not alive(p)}  # of the search for a runtime
        b.delete()
    wait_for(lambda: not os.listdir(m.state / "trash"), "their files are gone")
    wait_for(lambda: not pidfds(), "no descriptor of a process is left")
    wait_for(lambda: set(children(m.pid)) <= before, "no process is left, not even a zombie")


def test_a_tool_that_is_not_there_is_refused_at_create(make):
    m = make("/nonexistent/pasta")
    m.allow("network")
    expect_errno(errno.EOPNOTSUPP, (m / "b").mkdir)
    assert "network 'nat' needs '/nonexistent/pasta'" in (m / ".sbxfs/errors").read_text()
    m2 = make("/bin/true")
    m2.allow("network")
    expect_errno(errno.EOPNOTSUPP, (m2 / "b").mkdir)
    assert "neither pasta nor slirp4netns" in (m2 / ".sbxfs/errors").read_text()


HIDDEN = "mount --make-rprivate / && for t in pasta slirp4netns; do p=$(command -v $t) && mount --bind /dev/null $p; done; exec \"$@\""


def test_without_a_tool_create_and_check_say_what_to_install(world):
    if not ROOT:
        skip("root")
    hide = [need("unshare"), "-m", "sh", "-c", HIDDEN, "sh"]
    text = sh([*hide, SBXFS, "check"], seconds=60).text
    assert re.search(r"(?m)^network tools +note: network 'nat' needs pasta \(package passt\) or slirp4netns: install one", text), text
    m = NatMount(world, None)
    m.allow("network")
    m.prefix = [need("unshare"), "-m", "--propagation", "unchanged", "sh", "-c", HIDDEN.replace("--make-rprivate", "--make-private"), "sh"]
    sh(["mount", "--bind", m.base, m.base]).ok()
    sh(["mount", "--make-shared", m.base]).ok()
    try:
        m.start()
        expect_errno(errno.EOPNOTSUPP, (m / "b").mkdir)
        assert "network 'nat' needs pasta (package passt) or slirp4netns: install one" in (m / ".sbxfs/errors").read_text()
        problems = m.stop()
    finally:
        wait_for(lambda: sh(["umount", m.base]).rc == 0, "the test's own mount is gone")
        m.remove()
    assert not problems, problems


def test_check_names_the_tool():
    tools = [t for t in ("pasta", "slirp4netns") if shutil.which(t, path=os.environ.get("PATH", "") + ":/usr/sbin")]
    line = re.search(r"(?m)^network tools +(.*)", sh([SBXFS, "check"], seconds=60).text).group(1)
    if not tools:
        assert "install one" in line
    elif not os.access(TUN, os.R_OK | os.W_OK):
        assert TUN in line
    else:
        assert line.startswith("ok: ") and line.endswith(tools[0])


@pytest.mark.parametrize("servers", ["127.0.0.53", OUTSIDE6, "127.0.0.53 " + OUTSIDE4])
def test_names_work_with_any_kind_of_name_server_of_the_host(world, tool, servers):
    """Also one that listens on the host's loopback: the box is never told its address, the tool asks it."""
    if not ROOT:
        skip("root")
    if tool == "slirp4netns" and servers == OUTSIDE6:
        skip("root", "and slirp4netns knows IPv4 only")
    m = NatMount(world, tool)
    conf = m.base / "resolv.conf"
    conf.write_text("search example.test\n" + "".join(f"nameserver {s}\n" for s in servers.split()))
    conf.chmod(0o644)
    m.prefix = [
        *(need("unshare"), "-m", "--propagation", "unchanged", "sh", "-c"),
        f'mount --make-private / && mount --bind {conf} /etc/resolv.conf && exec "$@"',
        "sh",
    ]
    sh(["mount", "--bind", m.base, m.base]).ok()
    sh(["mount", "--make-shared", m.base]).ok()
    try:
        m.start()
        b = m.box().ready()
        assert online(b)
        text = b.go("cat /etc/resolv.conf", "code.sh").ok().text
        assert "127.0.0.53" not in text and "search example.test\n" in text
        b.delete()
        problems = m.stop()
    finally:
        wait_for(lambda: sh(["umount", m.base]).rc == 0, "the test's own mount is gone")
        m.remove()
    assert not problems, problems


def test_a_root_of_its_own_gets_names_where_it_has_the_file(make, tool, tmp):
    root = tmp / "root"
    root.mkdir()
    (root / "etc").mkdir()
    (root / "etc/resolv.conf").write_text("nameserver 192.0.2.66\n")
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
    for name in ("usr", "bin", "sbin", "lib", "lib64"):
        top = Path("/", name)
        if top.is_symlink():
            (root / name).symlink_to(os.readlink(top))
        elif top.is_dir():
            (root / name).mkdir()
    tmp.chmod(0o755)
    if not ROOT:
        skip("root")
    sh(["mount", "--rbind", "/usr", root / "usr"]).ok()
    try:
        m = make(tool, config={"templates": {"default": {"network": "nat", "rootfs": str(root)}}})
        b = m.box().ready()
        assert "192.0.2.66" not in b.go("cat /etc/resolv.conf", "code.sh").ok().text
        assert online(b)
        b.delete()
        wait_for(lambda: not m.carrying(), "gone")
    finally:
        wait_for(lambda: sh(["umount", "-l", root / "usr"]).rc == 0, "the root's /usr is free")


# ---- as an ordinary user ----


def test_an_ordinary_user_without_the_device_is_told_by_check(tmp):
    if not ROOT:
        skip("root")
    if stat.S_IMODE(os.stat(TUN).st_mode) & 0o006:
        skip("root", "everybody may open /dev/net/tun here")
    tmp.chmod(0o755)
    shutil.copy(SBXFS, tmp / "sbxfs")
    (tmp / "home").mkdir()
    os.chown(tmp / "home", 65534, 65534)
    user = [need("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups"]
    text = sh([*user, "env", "-i", "PATH=/usr/bin:/bin", f"HOME={tmp}/home", tmp / "sbxfs", "check"], seconds=60).text
    assert re.search(r"(?m)^network tools +note: network 'nat' needs /dev/net/tun, which this user may not open", text), text


@pytest.mark.bound(900)
def test_all_of_it_as_an_ordinary_user(world, tmp):
    """These tests once more, in the same world, as nobody: what root's pass cannot look at."""
    if not ROOT or IN_A_WORLD:
        skip("root")
    tmp.chmod(0o755)
    shutil.copy(SBXFS, tmp / "sbxfs")
    shutil.copytree(HERE, tmp / "mount", ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    for name in ("home", "tmp"):
        (tmp / name).mkdir()
    sh(["chown", "-R", "65534:65534", tmp]).ok()
    modes = {p: stat.S_IMODE(os.stat(p).st_mode) for p in (TUN, "/dev/fuse")}
    env = {
        **{k: v for k, v in os.environ.items() if k.startswith("SBX_")},
        **{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp / "home")},
        **{"TMPDIR": str(tmp / "tmp"), "SBXFS": str(tmp / "sbxfs"), "SBX_NETWORLD": "1", "USER": "nobody", "LC_ALL": "C.UTF-8"},
    }
    user = [need("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups"]
    argv = [*world.inside, *user, sys.executable, "-m", "pytest", "-q", "-x", "-o", "addopts=", "-p", "no:cacheprovider", "test_network.py"]
    try:
        for path in modes:
            os.chmod(path, 0o666)
        r = finish(spawn(argv, cwd=tmp / "mount", env=env), 850)
    finally:
        for path, mode in modes.items():
            os.chmod(path, mode)
    assert r.rc == 0, r.text[-9000:] + r.err.decode()[-2000:]
    passed = re.search(r"(\d+) passed", r.text)
    assert passed and int(passed.group(1)) >= 30, r.text[-2000:]
