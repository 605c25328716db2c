# SPDX-License-Identifier: Apache-2.0
"""files/* of the agent server: reads, writes, lists, moves and deletes as the real one does, faults included.

Owns: nothing but the files of the box.  One thread for each request; late writes have a thread of their own."""
import io
import os
import random
import shutil
import stat
import tarfile
import threading
import time

from shapes import Answer, U64_MAX, decode_base64, failure, json_body, os_failure, query, success, stamp, words
from wire import Reply, reply_text

OCTETS = "application/octet-stream"
IGNORED = {
    "node_modules", "target", "dist", "build", "__pycache__", "venv", "vendor", "coverage", "out",
}


class Crash(Exception):
    """The whole server goes down here."""


def normal(path):
    """Without `.`, `..` and double slashes, links not looked at."""
    parts = []
    for part in path.split("/"):
        if part == "..":
            if parts:
                parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


class Files:
    def __init__(self, workspace, faults):
        self.workspace = workspace
        self.faults = faults

    def path(self, text):
        """Where the user's path is: anything goes. A NUL is what the system calls refuse."""
        if "\0" in text:
            raise Answer(failure(1500, "file name contained an unexpected NUL byte"))
        return normal(text if text.startswith("/") else f"{self.workspace}/{text}")

    def make_parent(self, path):
        parent = os.path.dirname(path)
        if not os.path.exists(parent):
            try:
                os.makedirs(parent, exist_ok=True)
            except OSError as err:
                raise Answer(failure(1500, f"Failed to create directory: {words(err)}")) from None

    # ---- list and read ----

    def list(self, request):
        q = query(request, (), ("showHidden",), ("limit", "offset"))
        folder = self.path(q.get("path", "."))
        offset, limit = q.get("offset", 0), q.get("limit", 100)
        files = []
        try:
            with os.scandir(os.fsencode(folder)) as entries:
                names = [entry.name for entry in entries]
            for name in names:
                shown = name.decode("utf-8", "replace")
                if shown.startswith(".") and not q.get("showHidden"):
                    continue
                info = os.lstat(os.fsencode(folder) + b"/" + name)
                files.append({
                    "name": shown,
                    "path": (os.fsencode(folder.rstrip("/")) + b"/" + name).decode("utf-8", "replace"),
                    "size": info.st_size,
                    "isDir": stat.S_ISDIR(info.st_mode),
                    "permissions": f"0{info.st_mode & 0o777:o}",
                    "modified": stamp(max(0, int(info.st_mtime_ns // 10**9))),
                })
        except OSError as err:
            return os_failure(err)
        if offset + limit > U64_MAX:
            raise Crash
        if self.faults["list_shuffle"]:
            random.shuffle(files)
        return success(files=files[offset:offset + limit])

    def read(self, request):
        path = self.path(query(request, ("path",))["path"])
        if not os.path.exists(path):
            return failure(1404, "File not found")
        if os.path.isdir(path):
            return failure(1422, "Path is a directory, not a file")
        if stat.S_ISFIFO(os.stat(path).st_mode):
            request.conn.wait_gone()  # open(2) of a FIFO waits for a writer, and its size is 0
        try:
            f = open(path, "rb", buffering=0)
        except OSError as err:
            return os_failure(err)
        name = os.path.basename(path)
        if any(ord(c) < 32 or ord(c) == 127 for c in name):
            f.close()
            return reply_text(500, "failed to parse header value")
        size = os.fstat(f.fileno()).st_size
        name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode().decode("latin-1")
        headers = [("content-length", str(size)), ("content-disposition", f'attachment; filename="{name}"')]
        if size <= 65536:
            with f:
                body = f.read(size)
            if len(body) == size:
                return Reply(200, body, OCTETS, headers, split=True)
            return Reply(200, iter([body]), OCTETS, headers, close=True)
        return Reply(200, blocks_of(f, size), OCTETS, headers)

    # ---- write ----

    def write(self, request):
        kind = request.headers.get("content-type", "")
        if kind.startswith("application/json"):
            return self.write_json(request)
        if kind.startswith("multipart/form-data"):
            return self.write_form(request, kind)
        return self.write_raw(request)

    def write_json(self, request):
        body = json_body(request, {"path": "string", "content": "string"}, {"encoding": "string"}, True, None)
        path = self.path(body["path"])
        if body.get("encoding") == "base64":
            data = decode_base64(body["content"])
            if isinstance(data, str):
                return failure(1422, f"Invalid base64: {data}")
        else:
            data = body["content"].encode("utf-8", "surrogatepass")
        if len(data) > self.faults["max_file_size"]:
            return failure(1422, "File too large")
        self.make_parent(path)
        try:
            with open(path, "wb", buffering=0) as f:
                write_all(f, data)
            return success(path=shown(path), size=os.stat(path).st_size)
        except OSError as err:
            return os_failure(err)

    def write_raw(self, request):
        text = dict(request.fields()).get("path")
        if text is None:
            return failure(1422, "Path parameter required")
        path = self.path(text)
        self.make_parent(path)
        try:
            f = open(path, "wb", buffering=0)
        except OSError as err:
            return os_failure(err)
        return self.store(request.blocks(), path, f)

    def store(self, blocks, path, f):
        """A body into the file, from which the last block is told of before it is there; its errors are lost."""
        size = 0
        last = b""
        try:
            for block in blocks:
                size += len(block)
                if size > self.faults["max_file_size"]:
                    f.close()
                    os.unlink(path)
                    return failure(1422, "File too large")
                write_all(f, last)
                last = block
        except OSError as err:
            f.close()
            return os_failure(err)
        except BaseException:
            f.close()  # the client is gone: what came is in the file
            raise
        late = self.faults["late_write_s"] if self.faults.chance("late_write") else 0
        if late:
            threading.Thread(target=write_late, args=(f, last, late), daemon=True).start()
        else:
            write_late(f, last, 0)
        return success(path=shown(path), size=size)

    def write_form(self, request, kind):
        target, reply = None, None
        for name, filename, data in form_parts(request, kind):
            if name == "path":
                target = data.decode("utf-8", "replace")
            elif name in ("file", "files"):
                path = self.path(target or filename)
                reply = self.put(path, data)
        return reply or failure(1422, "No file found in multipart form")

    def put(self, path, data):
        self.make_parent(path)
        try:
            f = open(path, "wb", buffering=0)
        except OSError as err:
            return os_failure(err)
        return self.store(iter([data]), path, f)

    def batch_upload(self, request):
        kind = request.headers.get("content-type", "")
        if not kind.startswith("multipart/form-data"):
            return reply_text(400, "Invalid `boundary` for `multipart/form-data` request")
        results, good = [], 0
        for name, filename, data in form_parts(request, kind):
            if name not in ("file", "files"):
                continue
            path = self.path(filename)
            try:
                self.make_parent(path)
                reply = self.store(iter([data]), path, open(path, "wb", buffering=0))
                if b'"status":0' in reply.body:
                    good += 1
                    results.append({"path": shown(path), "success": True, "size": len(data)})
                else:
                    results.append({"path": filename, "success": False, "error": "File too large"})
            except (OSError, Answer) as err:
                problem = words(err) if isinstance(err, OSError) else "Failed to create directory"
                results.append({"path": filename, "success": False, "error": problem})
        return success(results=results, totalFiles=len(results), successCount=good)

    # ---- whole trees ----

    def batch_download(self, request):
        body = json_body(request, {"paths": "[string]"}, {"format": "string"})
        if not body["paths"]:
            return failure(1422, "No paths provided")
        paths = []
        for text in body["paths"]:
            path = self.path(text)
            if not os.path.exists(path):
                return failure(1404, f"File not found: {text}")
            paths.append(path)
        plain = body.get("format") == "tar"
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w" if plain else "w:gz") as tar:
            for path in paths:
                inside = path.startswith(self.workspace + "/")
                tar.add(path, path[len(self.workspace) + 1:] if inside else os.path.basename(path))
        name = "download.tar" if plain else "download.tar.gz"
        return Reply(200, out.getvalue(), "application/x-tar" if plain else "application/gzip",
                     [("content-disposition", f'attachment; filename="{name}"')])

    def delete(self, request):
        body = json_body(request, {"path": "string"}, {"recursive": "boolean"})
        path = self.path(body["path"])
        if not os.path.exists(path):  # of a dangling link as well
            return failure(1404, "File not found")
        try:
            if not os.path.isdir(path):
                os.unlink(path)
            elif not body.get("recursive"):
                os.rmdir(path)
            else:
                remove_tree(path)
        except OSError as err:
            return os_failure(err)
        return success(success=True)

    def move(self, request):
        body = json_body(request, {"source": "string", "destination": "string"}, {"overwrite": "boolean"})
        source, target = self.path(body["source"]), self.path(body["destination"])
        if not os.path.exists(source):
            return failure(1404, "Source file not found")
        try:
            if os.path.exists(target):
                if not body.get("overwrite"):
                    return failure(1409, "Destination already exists")
                if os.path.isdir(target):
                    remove_tree(target)
                else:
                    os.unlink(target)
            self.make_parent(target)
            os.rename(source, target)
        except OSError as err:
            return os_failure(err)
        return success(success=True)

    def rename(self, request):
        body = json_body(request, {"oldPath": "string", "newPath": "string"}, {})
        old, new = self.path(body["oldPath"]), self.path(body["newPath"])
        if not os.path.exists(old):
            return failure(1404, "Old path not found")
        if os.path.exists(new):
            return failure(1409, "New path already exists")
        self.make_parent(new)
        try:
            os.rename(old, new)
        except OSError as err:
            return os_failure(err)
        return success(success=True)

    def chmod(self, request):
        body = json_body(request, {"path": "string", "mode": "string"}, {"recursive": "boolean", "owner": "string"})
        path = self.path(body["path"])
        if not os.path.exists(path):
            return failure(1404, "Path not found")
        text = body["mode"].strip()
        if not text:
            return failure(1422, "Mode cannot be empty")
        try:
            mode = int(text[2:] if text[:2] in ("0o", "0O") else text, 8) & 0o777
        except ValueError:
            return failure(1422, "Invalid mode (expect octal like 755)")
        try:
            os.chmod(path, mode)
            for folder, dirs, files in os.walk(path) if body.get("recursive") else ():
                for name in dirs + files:
                    if os.path.exists(f"{folder}/{name}"):
                        os.chmod(f"{folder}/{name}", mode)
        except OSError as err:
            return os_failure(err)
        return success(success=True)

    # ---- search ----

    def walk(self, text):
        folder = self.path(text.strip() or ".")
        if not os.path.exists(folder):
            raise Answer(failure(1404, f"Directory not found: {shown(folder)}"))
        if not os.path.isdir(folder):
            raise Answer(failure(1422, f"Path is not a directory: {shown(folder)}"))
        for where, dirs, names in os.walk(folder):
            dirs[:] = [d for d in dirs if not d.startswith(".") and d not in IGNORED]
            for name in names:
                path = f"{where}/{name}"
                if os.path.isfile(path) and not os.path.islink(path):
                    yield name, path

    def search(self, request):
        body = json_body(request, {"dir": "string", "pattern": "string"}, {})
        if not body["pattern"]:
            return failure(1422, "Pattern cannot be empty")
        wanted = body["pattern"].lower()
        return success(files=[shown(path) for name, path in self.walk(body["dir"]) if wanted in name.lower()])

    def find(self, request):
        body = json_body(request, {"dir": "string", "keyword": "string"}, {})
        if not body["keyword"]:
            return failure(1422, "Keyword cannot be empty")
        found = []
        for _, path in self.walk(body["dir"]):
            with open(path, "rb") as f:
                data = f.read()
            if b"\0" not in data[:256] and body["keyword"].encode() in data:
                found.append(shown(path))
        return success(files=found)


def shown(path):
    return os.fsencode(path).decode("utf-8", "replace")


def write_all(f, data):
    view = memoryview(data)
    while view:
        view = view[f.write(view):]


def write_late(f, data, seconds):
    time.sleep(seconds)
    try:
        with f:
            write_all(f, data)
    except OSError:
        pass  # lost, as in the real one


def blocks_of(f, size):
    with f:
        while size:
            block = f.read(min(size, 262144))
            if not block:
                return
            size -= len(block)
            yield block


def remove_tree(path):
    if os.path.islink(path):
        os.unlink(path)
    else:
        shutil.rmtree(path)


def form_parts(request, kind):
    """(name, filename, data) of a multipart form."""
    mark = kind.partition("boundary=")[2].strip('"').encode()
    if not mark:
        raise Answer(reply_text(400, "Invalid `boundary` for `multipart/form-data` request"))
    for part in (b"\r\n" + request.body()).split(b"\r\n--" + mark)[1:]:
        if part.startswith(b"--"):
            return
        head, _, data = part.partition(b"\r\n\r\n")
        name = filename = ""
        for field in head.decode("utf-8", "replace").replace("\r\n", ";").split(";"):
            key, _, value = field.strip().partition("=")
            if key == "name":
                name = value.strip('"')
            elif key == "filename":
                filename = value.strip('"')
        yield name, filename or "unknown", data
