# SPDX-License-Identifier: Apache-2.0
"""What a box is made of: namespaces of its own, its folders where a devbox has them, and an end that leaves nothing.

A helper process with one thread (`zygote`) forks the boxes, for the service has threads.  Of each box:

  keeper   child of the zygote, outside; ends when the zygote does, and ends the box
    init   process 1 of the box: mounts, reaps, starts the agent and starts it again when it is killed
      agent   agent.py; the programs are its children, and init's when it has died

In a box /home/devbox/project is the workspace, /tmp, /var/tmp and /dev/shm are its own, the rest of the system is
read-only; there is a network, but only its own loopback; root is what it is in a container.  Without the right to
namespaces the workspace is a plain folder, the box sees the system, and its programs are ended by looking for them;
`isolated` in the service says which.

Owns: the processes of all boxes."""
import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import time
import traceback

import agent

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_CAPBSET_DROP = 1, 36, 24
CAPABILITIES = 0xa00425fb  # of programs: what containers have, without mknod
MNT_DETACH = 2
SYS_PIVOT_ROOT = 155 if os.uname().machine == "x86_64" else 41
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE = 442, -100, 0x8000
ATTR_RDONLY, ATTR_NOEXEC = 1, 8
WORKSPACE = "/home/devbox/project"
HOME = "/home/devbox"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TOOLS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/usr/games", "/sbin", "/bin")

libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result < 0:
        err = ctypes.get_errno()
        raise OSError(err, f"{what}: {os.strerror(err)}")


def unshare(flags):
    check(libc.unshare(flags), "unshare")


def mount(source, target, kind=None, flags=0, data=None):
    args = [a.encode() if a is not None else None for a in (source, target, kind)]
    check(libc.mount(*args, ctypes.c_ulong(flags), data.encode() if data else None), f"mount {target}")


def mount_setattr(path, flags, attr_set, attr_clear):
    attr = struct.pack("QQQQ", attr_set, attr_clear, 0, 0)
    check(libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, path.encode(), flags, attr, len(attr)), f"mount_setattr {path}")


def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sH", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up, running


def own_namespaces():
    """Into new namespaces, by a user namespace if it has to be. The pid namespace begins with the next fork."""
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        unshare(flags)
        return
    unshare(CLONE_NEWUSER | flags)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as f:
            f.write(text)


NOT_COPIED = ("home", "lost+found", "media", "mnt", "proc", "run", "tmp", "var")


def new_root():
    """A root with the host's top folders and none of its other mounts: a copy of a FUSE mount would keep its daemon alive. The
    caller is chdir'ed into it, puts more mounts there by relative paths, then calls enter_root()."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=755")
    os.chdir("/tmp")
    for entry in os.scandir("/"):
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), entry.name)
        elif entry.is_dir():
            os.mkdir(entry.name)
            if entry.name not in NOT_COPIED:
                mount(entry.path, entry.name, None, MS_BIND | MS_REC)
    os.makedirs("var/tmp", exist_ok=True)
    mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV)


def enter_root():
    check(libc.syscall(SYS_PIVOT_ROOT, b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "umount the host's root")
    os.chdir("/")


def arrange(spec):
    """The mounts of a box; by process 1 of it."""
    folders = {name: os.open(f"{spec['base']}/{name}", os.O_PATH | os.O_DIRECTORY) for name in ("work", "tmp", "vartmp")}
    tools = os.open(spec["busybox"], os.O_PATH | os.O_DIRECTORY) if spec["tools"] == "busybox" else None
    new_root()
    mount("tmpfs", "home", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=755")
    os.makedirs(WORKSPACE.lstrip("/"))
    mount(f"/proc/self/fd/{folders['work']}", WORKSPACE.lstrip("/"), None, MS_BIND)
    writable = ["/home", WORKSPACE]
    for name, target in (("tmp", "/tmp"), ("vartmp", "/var/tmp")):
        mount(f"/proc/self/fd/{folders[name]}", target.lstrip("/"), None, MS_BIND)
        writable.append(target)
    if os.path.isdir("dev/shm"):
        mount("tmpfs", "dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=1777")
        writable.append("/dev/shm")
    if tools is not None:
        for target in TOOLS:
            target = target.lstrip("/")
            if os.path.isdir(target) and not os.path.islink(target):
                mount(f"/proc/self/fd/{tools}", target, None, MS_BIND)
    enter_root()
    mount_setattr("/", AT_RECURSIVE, ATTR_RDONLY, 0)
    mount_setattr("/proc", 0, 0, ATTR_RDONLY)
    mount("/proc/sys", "/proc/sys", None, MS_BIND)
    mount_setattr("/proc/sys", 0, ATTR_RDONLY, 0)
    for target in writable:
        mount_setattr(target, 0, ATTR_NOEXEC if spec["noexec"] else 0, ATTR_RDONLY)
    loopback_up()
    socket.sethostname(spec["name"][:63])
    for fd in (*folders.values(), *([tools] if tools is not None else [])):
        os.close(fd)


def descendants():
    """Pids of all processes below this one."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as f:
                    parents[int(name)] = int(f.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                pass
    found, more = set(), {os.getpid()}
    while more:
        more = {pid for pid, parent in parents.items() if parent in more and pid not in found}
        found |= more
    return found


def end_descendants():
    """Without a pid namespace: kill until nobody is left. This process has to be a subreaper."""
    while True:
        for pid in descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.005)
        except ChildProcessError:
            return


# ---- init and keeper ----


def init(spec, listener, line):
    """Process 1 of a box. Ends with status CRASHED when the box is to be started anew, else when the service is gone."""
    isolated = spec["isolated"]
    if isolated:
        arrange(spec)
        workspace, home, cwd, path = WORKSPACE, HOME, HOME, PATH
    else:
        base = spec["base"]
        workspace, home, cwd, path = f"{base}/work", f"{base}/home", f"{base}/home", PATH
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if spec["tools"] == "busybox":
            path = spec["busybox"]
    for n in range(64):
        if not CAPABILITIES >> n & 1:
            libc.prctl(PR_CAPBSET_DROP, n, 0, 0, 0)
    env = {"PATH": path, "HOME": home, "USER": "devbox", "LOGNAME": "devbox", **spec["env"]}
    if not isolated:
        env.setdefault("TMPDIR", f"{spec['base']}/tmp")
    os.umask(0o022)
    while True:
        pid = os.fork()
        if pid == 0:
            try:
                agent.run(listener, line, workspace, home, env, cwd)
            finally:
                os._exit(1)
        while True:
            ended, status = os.wait()
            if ended == pid:
                break
        code = os.waitstatus_to_exitcode(status)
        if code in (0, 1, agent.CRASHED):  # 1: it could not begin
            os._exit(code)
        if code != agent.KILLED:
            print(f"devbox test service: the agent of {spec['name']} ended by itself: {code}", file=sys.stderr, flush=True)
        try:
            line.sendall(b'{"event":"down"}\n')
        except OSError:
            os._exit(0)
        time.sleep(spec["down_s"])  # the pod's supervisor takes its time


def keeper(spec, listener, line):
    """Between the zygote and a box: ends with either."""
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if spec["isolated"]:
        own_namespaces()
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # last: new credentials clear it
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    pid = os.fork()
    if pid == 0:
        try:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGCHLD})
            init(spec, listener, line)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    listener.close()
    code = None
    ordered = False
    while code is None:
        number = signal.sigwait({signal.SIGTERM, signal.SIGCHLD})
        if number == signal.SIGTERM:
            ordered = True
            os.kill(pid, signal.SIGKILL)
        ended, status = os.waitpid(pid, 0 if number == signal.SIGTERM else os.WNOHANG)
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
    if code < 0 and not ordered:
        print(f"devbox test service: process 1 of {spec['name']} ended by itself: {code}", file=sys.stderr, flush=True)
    if not spec["isolated"]:
        end_descendants()
    os._exit(code if code >= 0 else 1)


# ---- zygote ----


def can_isolate():
    """Whether this process may make boxes of their own, tried by making one's mounts."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    try:
        own_namespaces()
        pid = os.fork()
        if pid:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        new_root()
        enter_root()
        mount_setattr("/", AT_RECURSIVE, ATTR_RDONLY, 0)
        loopback_up()
        os._exit(0)
    finally:
        os._exit(1)


def end(pid):
    os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def zygote(sock):
    """Orders by SOCK (SEQPACKET, JSON): start (with the listening socket and the line), end, reap; the end of SOCK ends all."""
    boxes = {}  # name -> pid
    sock.send(json.dumps({"isolated": can_isolate()}).encode())
    while True:
        data, fds, _, _ = socket.recv_fds(sock, 1 << 20, 2)
        if not data:
            break
        order = json.loads(data)
        reply = {}
        if order["op"] == "start":
            pid = os.fork()
            if pid == 0:
                sock.close()
                try:
                    keeper(order["spec"], socket.socket(fileno=fds[0]), socket.socket(fileno=fds[1]))
                except BaseException:
                            traceback.print_exc()
                finally:
                    os._exit(1)
            boxes[order["spec"]["name"]] = pid
            for fd in fds:
                os.close(fd)
        elif order["op"] == "end":
            pid = boxes.pop(order["name"], None)
            reply["status"] = end(pid) if pid else None
        sock.send(json.dumps(reply).encode())
    for pid in boxes.values():
        os.kill(pid, signal.SIGTERM)
    for pid in boxes.values():
        os.waitpid(pid, 0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service ends the boxes in its own order
    zygote(socket.socket(fileno=int(sys.argv[1])))
