# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 on sockets: requests in, replies out, kept alive; and the injuries that faults.py asks for.

Owns: the sockets of its connections.  A thread for each connection; `stop` closes them all."""
import json
import select
import socket
import struct
import threading
import time
from urllib.parse import unquote_plus

REASON = {
    200: "OK", 201: "Created", 204: "No Content", 400: "Bad Request", 401: "Unauthorized", 402: "Payment Required",
    403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 409: "Conflict", 413: "Payload Too Large",
    415: "Unsupported Media Type", 422: "Unprocessable Entity", 429: "Too Many Requests", 500: "Internal Server Error",
    502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
}
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
JSON = "application/json"
PLAIN = "text/plain; charset=utf-8"
HEAD_MAX = 1024 * 1024


class Gone(Exception):
    """The connection is over; nothing can be answered any more."""


class Cut(Gone):
    """A rule ends the connection here."""


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def http_date():
    t = time.gmtime()
    return f"{DAYS[t.tm_wday]}, {t.tm_mday:02} {MONTHS[t.tm_mon - 1]} {t.tm_year} {t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02} GMT"


class Reply:
    """status, [(header, value)], and a body: bytes, or an iterator of bytes (chunked unless a length is among the headers).
    `close`: the connection ends after it.  `split`: head and body are sent apart, as small packets."""

    def __init__(self, status=200, body=b"", kind=None, headers=(), close=False, split=False):
        self.status = status
        self.body = body
        self.headers = ([("content-type", kind)] if kind else []) + list(headers)
        self.close = close
        self.split = split


def reply_json(value, status=200, **more):
    return Reply(status, dump(value), JSON, **more)


def reply_text(status, text, **more):
    return Reply(status, text.encode(), PLAIN, **more)


class Request:
    """One request; the body is read by whoever wants it, once."""

    def __init__(self, conn, method, target, headers):
        self.conn = conn
        self.method = method
        self.target = target
        self.path, _, self.query = target.partition("?")
        self.headers = headers
        self.chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self.length = int(headers.get("content-length") or 0)
        self.unread = None if self.chunked else self.length
        self.started = not headers.get("expect", "").lower().startswith("100-")
        self.read_bytes = 0
        self.effect = {}

    def fields(self):
        """The query as [(name, value)], decoded as bytes may be: lossy."""
        out = []
        for part in self.query.split("&"):
            if part:
                name, _, value = part.partition("=")
                out.append((unquote_plus(name), unquote_plus(value)))
        return out

    def has_rest(self):
        return self.unread is None or self.unread > 0

    def blocks(self, size=65536):
        """The body, block by block as it arrives."""
        if not self.started and self.has_rest():
            self.conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.started = True
        if self.chunked:
            yield from self.chunks()
            return
        while self.unread:
            block = self.conn.read_some(min(size, self.unread))
            self.unread -= len(block)
            yield self.count(block)

    def chunks(self):
        while self.unread is None:
            left = int(self.conn.read_line().split(b";")[0], 16)
            if left == 0:
                while self.conn.read_line().strip():
                    pass
                self.unread = 0
                return
            while left:
                block = self.conn.read_some(left)
                left -= len(block)
                yield self.count(block)
            self.conn.read_line()

    def count(self, block):
        self.read_bytes += len(block)
        limit = self.effect.get("cut_request")
        if limit is not None and self.read_bytes >= limit:
            raise Cut
        return block

    def body(self, limit=None):
        """The whole body; None if it is longer than LIMIT."""
        if limit is not None and self.length > limit:
            return None
        parts = []
        size = 0
        for block in self.blocks():
            parts.append(block)
            size += len(block)
            if limit is not None and size > limit:
                return None
        return b"".join(parts)


class Connection:
    """One client: bytes in and out; `effect` bends the way out."""

    def __init__(self, sock):
        self.sock = sock
        self.buf = bytearray()
        self.exempt = False

    # in

    def fill(self):
        try:
            data = self.sock.recv(262144)
        except OSError:
            data = b""
        if not data:
            raise Gone
        self.buf += data

    def read_line(self):
        start = 0
        while True:
            end = self.buf.find(b"\n", start)
            if end >= 0:
                line = bytes(self.buf[:end + 1])
                del self.buf[:end + 1]
                return line
            if len(self.buf) > HEAD_MAX:
                raise Gone
            start = len(self.buf)
            self.fill()

    def read_some(self, most):
        if not self.buf:
            self.fill()
        block = bytes(self.buf[:most])
        del self.buf[:most]
        return block

    def read_request(self):
        line = self.read_line().strip()
        while not line:
            line = self.read_line().strip()
        try:
            method, target, version = line.decode("latin-1").split(" ")
        except ValueError:
            raise Gone from None
        headers = {}
        while True:
            line = self.read_line().rstrip(b"\r\n")
            if not line:
                break
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        if version != "HTTP/1.1":
            headers.setdefault("connection", "close")
        try:
            return Request(self, method, target, headers)
        except ValueError:
            raise Gone from None

    # out

    def send(self, data):
        try:
            self.sock.sendall(data)
        except OSError:
            raise Gone from None

    def send_slowly(self, data, effect, sent):
        """Bytes of a body under the rules `cut` and `drip`; SENT went before. Returns the new count."""
        cut = effect.get("cut")
        if cut is not None and sent + len(data) >= cut:
            self.send_drip(data[:max(0, cut - sent)], effect)
            raise Cut
        self.send_drip(data, effect)
        return sent + len(data)

    def send_drip(self, data, effect):
        rate = effect.get("drip")
        if not rate:
            if data:
                self.send(data)
            return
        step = max(1, rate // 20)
        for i in range(0, len(data), step):
            self.send(data[i:i + step])
            time.sleep(step / rate)

    def send_reply(self, reply, effect, keep):
        body = reply.body
        names = {name for name, _ in reply.headers}
        head = [f"HTTP/1.1 {reply.status} {REASON.get(reply.status, 'Status')}"]
        head += [f"{name}: {value}" for name, value in reply.headers]
        chunked = False
        if isinstance(body, bytes):
            if "content-length" not in names:
                head.append(f"content-length: {len(body)}")
        elif "content-length" not in names:
            head.append("transfer-encoding: chunked")
            chunked = True
        if not keep:
            head.append("connection: close")
        head.append(f"date: {http_date()}")
        head = ("\r\n".join(head) + "\r\n\r\n").encode("latin-1")
        bent = "cut" in effect or "drip" in effect
        if isinstance(body, bytes):
            if bent:
                self.send(head)
                self.send_slowly(body, effect, 0)
            elif reply.split and body:
                self.send(head)
                self.send(body)
            else:
                self.send(head + body)
            return
        self.send(head)
        sent = 0
        for block in body:
            if not block:
                continue
            if not bent:
                self.send(b"%x\r\n%b\r\n" % (len(block), block) if chunked else block)
            elif chunked:
                # the cut counts bytes of the body, not of its framing
                room = effect["cut"] - sent if "cut" in effect else len(block)
                self.send_drip(b"%x\r\n%b" % (len(block), block[:max(0, room)]), effect)
                sent += len(block)
                if len(block) >= room and "cut" in effect:
                    raise Cut
                self.send(b"\r\n")
            else:
                sent = self.send_slowly(block, effect, sent)
        if chunked:
            self.send(b"0\r\n\r\n")

    def linger(self):
        """Let the peer read the answer although bytes of it are still coming: half close, then read for a moment."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
            self.sock.settimeout(1)
            end = time.monotonic() + 2
            while time.monotonic() < end and self.sock.recv(1 << 20):
                pass
        except OSError:
            pass

    def wait_gone(self):
        """Until the client hangs up or the connection is closed from here."""
        try:
            while self.sock.recv(65536):
                pass
        except OSError:
            pass
        raise Gone

    def close(self, reset=False):
        """Any thread, also while another one reads or writes."""
        try:
            if reset:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        if reset:
            self.sock.close()


class Server:
    """Connections of one listening socket.  `where` and `box` are what rules are matched with; handle(request) -> Reply.
    Paths that begin with `exempt` are never injured; relay(request) -> (socket, target) hands a request on, or None."""

    def __init__(self, listener, handle, faults, where, box=None, exempt=None, relay=None, tls=None):
        self.listener = listener
        self.handle = handle
        self.faults = faults
        self.where = where
        self.box = box
        self.exempt = exempt
        self.relay = relay
        self.tls = None
        if tls:
            import ssl

            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(*tls)
        self.lock = threading.Lock()
        self.connections = set()
        self.log = []  # (method, target, status; 0 is no whole answer)
        self.stopping = False

    def start(self):
        threading.Thread(target=self.accept_loop, daemon=True, name="accept").start()

    def accept_loop(self):
        """The listening socket may be shared with the service: it never blocks, and a connection may be gone to the other."""
        self.listener.setblocking(False)
        poll = select.poll()
        poll.register(self.listener.fileno(), select.POLLIN)
        while True:
            poll.poll()
            if self.stopping:
                return
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                continue
            except OSError:
                time.sleep(0.01)  # out of descriptors
                continue
            self.adopt(sock)

    def adopt(self, sock):
        sock.setblocking(True)
        conn = Connection(sock)
        with self.lock:
            self.connections.add(conn)
        threading.Thread(target=self.serve, args=(conn,), daemon=True).start()

    def serve(self, conn):
        try:
            if self.tls:
                conn.sock = self.tls.wrap_socket(conn.sock, server_side=True)
            while self.serve_one(conn):
                pass
        except (Gone, OSError):  # of TLS
            pass
        finally:
            with self.lock:
                self.connections.discard(conn)
            conn.close()
            conn.sock.close()

    def serve_one(self, conn):
        request = conn.read_request()
        if not self.faults["nagle"]:
            conn.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        onward = self.relay and self.relay(request)
        if onward:
            pass_on(conn, request, *onward)
            return False
        conn.exempt = bool(self.exempt) and request.path.startswith(self.exempt)
        effect = {} if conn.exempt else self.faults.match(self.where, self.box, request.method, request.path)
        request.effect = effect
        entry = [request.method, request.target, 0]
        with self.lock:
            self.log.append(entry)
            del self.log[:-20000]
        timer = None
        if "cut_after" in effect:
            timer = threading.Timer(effect["cut_after"], conn.close)
            timer.daemon = True
            timer.start()
        try:
            if "delay" in effect:
                time.sleep(effect["delay"])
            reply = None if effect.get("after") else self.injured(conn, effect)
            if reply is None:
                reply = self.handle(request)
                if effect.get("after"):
                    reply = self.injured(conn, effect) or reply
            if "json" in effect:
                bend_json(reply, effect["json"])
            return self.answer(conn, request, reply, effect, entry)
        finally:
            if timer:
                timer.cancel()

    def answer(self, conn, request, reply, effect, entry):
        rest = request.has_rest()
        if rest and request.unread is not None and request.unread <= 262144 and request.started and "cut_request" not in effect:
            request.body()
            rest = False
        keep = not (rest or reply.close or request.headers.get("connection", "").lower() == "close")
        body = reply.body
        if request.method == "HEAD":
            if isinstance(body, bytes) and not any(name == "content-length" for name, _ in reply.headers):
                reply.headers.append(("content-length", str(len(body))))
            reply.body = b""
        entry[2] = reply.status  # before the peer can have the answer and ask for the log
        try:
            conn.send_reply(reply, effect, keep)
        except BaseException:
            entry[2] = 0
            raise
        finally:
            if hasattr(body, "close"):
                body.close()
        if rest:
            conn.linger()
        return keep

    def injured(self, conn, effect):
        """The answer that a rule gives in place of the right one, or None."""
        if effect.get("reset"):
            conn.close(reset=True)
            raise Gone
        if effect.get("hang"):
            conn.wait_gone()
        if "body" in effect:
            return Reply(effect.get("status", 200), effect["body"].encode("utf-8", "surrogateescape"), effect.get("kind", JSON))
        status = effect.get("status")
        if not status:
            return None
        headers = [(name.replace("_", "-"), str(effect[name])) for name in ("retry_after", "location") if name in effect]
        message = effect.get("message", REASON.get(status, "injected"))
        if self.where == "control":
            return reply_json({"code": status, "message": message}, 200 if effect.get("as_200") else status, headers=headers)
        return Reply(status, message.encode(), PLAIN, headers)

    def cut_all(self):
        """Close every connection, in the middle of whatever it does, but those with exempt requests."""
        with self.lock:
            all_of_them = [conn for conn in self.connections if not conn.exempt]
        for conn in all_of_them:
            conn.close()
        return len(all_of_them)

    def stop(self):
        self.stopping = True
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        self.exempt = None
        self.cut_all()


def pass_on(conn, request, sock, target):
    """One request to another server and its answer back, byte by byte; then the connection is over."""
    head = [f"{request.method} {target} HTTP/1.1"]
    head += [f"{name}: {value}" for name, value in request.headers.items() if name != "connection"]
    with sock:
        def back():
            try:
                while True:
                    data = sock.recv(262144)
                    if not data:
                        break
                    conn.sock.sendall(data)
            except OSError:
                pass
            conn.close()

        thread = threading.Thread(target=back, daemon=True)
        thread.start()
        try:
            sock.sendall("\r\n".join([*head, "connection: close", "", ""]).encode("latin-1") + conn.buf)
            conn.buf.clear()
            while True:
                data = conn.sock.recv(262144)
                if not data:
                    break
                sock.sendall(data)
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        thread.join()


def bend_json(reply, how):
    if how == "wrong":
        reply.body = b'{"unexpected":[1,{"deep":null}],"code":"zero","status":"fine","data":17}'
    elif how == "html":
        reply.body = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
        reply.headers = [("content-type", "text/html")]
    elif how == "cut":
        whole = reply.body if isinstance(reply.body, bytes) else b"".join(reply.body)
        reply.body = whole[:len(whole) // 2]
    else:
        reply.body = endless()
    reply.headers = [h for h in reply.headers if h[0] != "content-length"]


def endless():
    yield b'{"code":200,"status":0,"message":"success","data":["'
    while True:
        yield b"x" * 65536
