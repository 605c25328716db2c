# SPDX-License-Identifier: Apache-2.0
"""A small world for the tests of networks: a namespace that is the "host" of a daemon, one that is "outside", a wire between
them, and servers in both. Run as a program it is those servers: networld.py SERVER ADDRESS PORT [SERVER ADDRESS PORT]..."""
import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
import threading

OUTSIDE4, OUTSIDE6 = "198.51.100.1", "2001:db8:51::1"
HOST4, HOST6 = "198.51.100.2", "2001:db8:51::2"
OTHER4, OTHER6 = "172.31.255.1", "2001:db8:99::1"  # of the host as well, on another interface
NAME = "outside.test"  # what the name server knows
HTTP, ECHO, CANARY = 8080, 7007, 7077  # ports
HOST_ADDRESSES = ["127.0.0.1", "127.0.0.53", HOST4, OTHER4, "::1", HOST6, OTHER6]


# ---- the servers ----


def open_socket(kind, address, port):
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if ":" in address:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((address, port))
    if kind == socket.SOCK_STREAM:
        s.listen(100)
    return s


def talk(s, serve):
    """One thread for each server; a client that misbehaves is not its end."""
    while True:
        try:
            serve(s)
        except OSError:
            pass


def say_tcp(text):
    def serve(s):
        c, _ = s.accept()
        with c:
            c.sendall(text)

    return serve


def serve_http(s):
    c, _ = s.accept()
    with c:
        c.settimeout(5)
        got = b""
        while b"\r\n\r\n" not in got:
            more = c.recv(4096)
            if not more:
                return
            got += more
        path = got.split()[1]
        body = b"served " + path + b"\n"
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)


def serve_udp(s):
    data, who = s.recvfrom(65536)
    s.sendto(b"echo " + data, who)


def serve_dns(s):
    """NAME has the addresses of outside; any other name does not exist."""
    data, who = s.recvfrom(4096)
    end = data.index(b"\0", 12) + 5
    question, at, labels = data[12:end], 12, []
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode(errors="replace"))
        at += 1 + data[at]
    (kind,) = struct.unpack("!H", question[-4:-2])
    rdata = {1: socket.inet_aton(OUTSIDE4), 28: socket.inet_pton(socket.AF_INET6, OUTSIDE6)}.get(kind)
    known = ".".join(labels).lower() == NAME
    answer = b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 5, len(rdata)) + rdata if known and rdata else b""
    flags = 0x8180 if known else 0x8183
    s.sendto(data[:2] + struct.pack("!HHHHH", flags, 1, bool(answer), 0, 0) + question + answer, who)


SERVERS = {
    "http": (socket.SOCK_STREAM, serve_http),
    "echo": (socket.SOCK_DGRAM, serve_udp),
    "dns": (socket.SOCK_DGRAM, serve_dns),
    "canary-tcp": (socket.SOCK_STREAM, say_tcp(b"CANARY")),
    "canary-udp": (socket.SOCK_DGRAM, lambda s: s.sendto(b"CANARY", s.recvfrom(4096)[1])),
}


def serve(words):
    for name, address, port in zip(words[::3], words[1::3], words[2::3]):
        kind, function = SERVERS[name]
        threading.Thread(target=talk, args=(open_socket(kind, address, int(port)), function), daemon=True).start()
    print("SERVING", flush=True)
    sys.stdin.read()  # until the test closes it


# ---- the namespaces ----


class World:
    """With root only. `inside` is what a program of the "host" is started with."""

    def __init__(self):
        self.held = []
        try:
            self.build()
        except BaseException:
            self.close()
            raise

    def hold(self, argv, word):
        """A program that lives until its stdin is closed; returns when it has said the word."""
        proc = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self.held.append(proc)
        if not select.select([proc.stdout], [], [], 30)[0] or word not in proc.stdout.readline().decode():
            raise AssertionError(f"{argv} does not begin")
        return proc

    def build(self):
        from helpers import need, sh

        ip, unshare, self.nsenter = need("ip", "iproute2"), need("unshare", "util-linux"), need("nsenter", "util-linux")
        holder = [unshare, "-n", "sh", "-c", "echo HERE; exec cat"]
        host, outside = (self.hold(holder, "HERE").pid for _ in range(2))
        self.host, self.outside = host, outside
        self.inside = [self.nsenter, f"--net=/proc/{host}/ns/net", "--"]
        self.out = [self.nsenter, f"--net=/proc/{outside}/ns/net", "--"]
        wire = f"w{host}"[:14]
        sh([ip, "link", "add", wire, "netns", str(host), "type", "veth", "peer", "name", "wire", "netns", str(outside)]).ok()
        sh([*self.inside, ip, "link", "set", wire, "name", "up0"]).ok()

        def do(where, *lines):
            for line in lines:
                sh([*where, ip, *line.split()]).ok()

        do(self.out, "link set lo up", "link set wire up", f"addr add {OUTSIDE4}/24 dev wire", f"addr add {OUTSIDE6}/64 dev wire nodad")
        do(self.inside, "link set lo up", "link set up0 up", f"addr add {HOST4}/24 dev up0", f"addr add {HOST6}/64 dev up0 nodad")
        do(self.inside, f"addr add {OTHER4}/24 dev lo", f"addr add {OTHER6}/128 dev lo")
        do(self.inside, f"route add default via {OUTSIDE4}", f"-6 route add default via {OUTSIDE6}")
        # the name server that the machine's resolv.conf names, so that it can stay as it is
        dns, dns_at = OUTSIDE4, self.out
        with open("/etc/resolv.conf") as f:
            first = re.findall(r"(?m)^nameserver\s+(\S+)", f.read())[:1]
        if first and ":" not in first[0]:
            dns = first[0]
            if dns.startswith("127."):
                dns_at = self.inside
            elif dns != OUTSIDE4:
                do(self.out, f"addr add {dns}/32 dev lo")
        me = [sys.executable, os.path.abspath(__file__)]
        out = ["http", OUTSIDE4, HTTP, "http", OUTSIDE6, HTTP, "echo", OUTSIDE4, ECHO, "dns", OUTSIDE4, 53, "dns", OUTSIDE6, 53]
        for address in (OUTSIDE4, OUTSIDE6):
            out += ["canary-tcp", address, CANARY, "canary-udp", address, CANARY]
        canaries = []
        for address in HOST_ADDRESSES:
            canaries += ["canary-tcp", address, CANARY, "canary-udp", address, CANARY]
        if dns != OUTSIDE4:
            (out if dns_at is self.out else canaries).extend(["dns", dns, 53])
        if dns != "127.0.0.53":
            canaries += ["dns", "127.0.0.53", 53]
        self.hold([*self.out, *me, *map(str, out)], "SERVING")
        self.hold([*self.inside, *me, *map(str, canaries)], "SERVING")

    def close(self):
        for proc in reversed(self.held):
            proc.stdin.close()
            try:
                proc.wait(10)
            except subprocess.TimeoutExpired:
                proc.kill()
                proc.wait()
            proc.stdout.close()
        self.held = []


# what a box tries: every address by every way that an ordinary program has of choosing the interface
ATTACK = """import concurrent.futures, json, socket, struct
CANARY, IN, UDP = %d, socket.AF_INET, socket.SOCK_DGRAM
device = [n for _, n in socket.if_nameindex() if n != 'lo'][0].encode()
index = socket.if_nametoindex(device)
socket.setdefaulttimeout(%s)
def family(a): return socket.AF_INET6 if ':' in a else IN
def bound(s): s.setsockopt(socket.SOL_SOCKET, 25, device)
def tcp(a, bind):
    s = socket.socket(family(a))
    if bind: bound(s)
    s.connect((a, CANARY))
    return s.recv(100)
def udp(a, how):
    s = socket.socket(family(a), UDP)
    four = family(a) == IN
    if how == 'bound': bound(s)
    if how == 'unicast': s.setsockopt(0 if four else 41, 50 if four else 76, struct.pack('!I', index))
    info = [(0, 8, struct.pack('i8x', index))] if four else [(41, 50, struct.pack('16xi', index))]
    s.sendmsg([b'x'], info if how == 'info' else [], 0, (a, CANARY))
    return s.recv(100)
def attempt(f, *args):
    try: return f(*args).decode()
    except OSError as e: return type(e).__name__
ways = [(tcp, False), (tcp, True)] + [(udp, how) for how in ('plain', 'bound', 'unicast', 'info')]
with concurrent.futures.ThreadPoolExecutor(30) as pool:
    started = {a: [pool.submit(attempt, f, a, how) for f, how in ways] for a in ADDRESSES}
    print(json.dumps({a: [r.result() for r in results] for a, results in started.items()}))
"""


def attack(box, addresses, patience=1.0):
    """What each way of reaching the canary at each address gave."""
    return json.loads(box.go(f"ADDRESSES = {addresses!r}\n" + ATTACK % (CANARY, patience)).ok().text)


if __name__ == "__main__":
    serve(sys.argv[1:])
