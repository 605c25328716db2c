# SPDX-License-Identifier: Apache-2.0
"""The shapes in which the agent server answers: statuses, times, and its words for what is wrong with a request.

Owns: nothing."""
import base64
import json
import os
import re
import string
import time

from wire import Reply, reply_json, reply_text

BODY_MAX = 2 * 1024 * 1024  # of JSON, where nothing else is said
U64_MAX = (1 << 64) - 1
ALPHABET = set((string.ascii_letters + string.digits + "+/").encode())


class Answer(Exception):
    """Ends a handler with this reply."""

    def __init__(self, reply):
        super().__init__()
        self.reply = reply


def success(**fields):
    return reply_json({"status": 0, "message": "success", **fields})


def failure(status, message):
    """An error of the service itself: HTTP 200, the status in the body."""
    return reply_json({"status": status, "message": message})


def words(err):
    """An OSError as the service words it."""
    return f"{os.strerror(err.errno)} (os error {err.errno})"


def os_failure(err):
    return failure({2: 1404, 13: 1403, 1: 1403}.get(err.errno, 1500), words(err))


def stamp(seconds=None):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() if seconds is None else seconds))


# ---- JSON bodies ----

KINDS = {"string": str, "boolean": bool, "sequence": list, "map": dict, "u64": int}


def json_problem(text, err):
    """What serde would say of a document that Python's parser refused."""
    line, column = err.lineno, err.colno
    rest = text[err.pos:].strip()
    if not rest:
        before = text.rstrip()
        column = len(text) - (text.rfind("\n") + 1)
        line = text.count("\n") + 1
        if err.msg.startswith("Unterminated string"):
            what = "EOF while parsing a string"
        elif before.endswith(("{", ",")) and "[" not in before:
            what = "EOF while parsing an object"
        else:
            what = "EOF while parsing a value"
    elif err.msg.startswith("Unterminated string"):
        what = "EOF while parsing a string"
        column = len(text) - (text.rfind("\n") + 1)
    elif err.msg.startswith("Invalid control"):
        what = "control character (\\u0000-\\u001F) found while parsing a string"
    elif err.msg.startswith("Extra data"):
        what = "trailing characters"
    else:
        what = "expected value"
    keys = re.findall(r'"((?:[^"\\]|\\.)*)"\s*:', text[:err.pos])
    where = f"{keys[-1]}: " if keys and what.startswith(("EOF while parsing a v", "EOF while parsing a s", "expected")) else ""
    return f"{where}{what} at line {line} column {column}"


def kind_of(value):
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"boolean `{str(value).lower()}`"
    if isinstance(value, int):
        return f"integer `{value}`"
    if isinstance(value, float):
        return f"floating point `{value}`"
    if isinstance(value, str):
        return f"string {json.dumps(value, ensure_ascii=False)}"
    return "sequence" if isinstance(value, list) else "map"


def misfit(value, kind):
    """Why VALUE is not of KIND ("string", "[string]", "{string}", "boolean", "u64"), or None."""
    if kind in ("[string]", "{string}"):
        want = list if kind == "[string]" else dict
        if not isinstance(value, want):
            return f"invalid type: {kind_of(value)}, expected a {'sequence' if want is list else 'map'}"
        for item in value if want is list else value.values():
            if not isinstance(item, str):
                return f"invalid type: {kind_of(item)}, expected a string"
        return None
    if kind == "u64":
        if isinstance(value, int) and not isinstance(value, bool):
            return None if 0 <= value <= U64_MAX else f"invalid value: {kind_of(value)}, expected u64"
        return f"invalid type: {kind_of(value)}, expected u64"
    if isinstance(value, KINDS[kind]):
        return None
    return f"invalid type: {kind_of(value)}, expected a {kind}"


def parse_json(data, need, may):
    """DATA as a dict with the fields NEED and MAY ({name: kind}; a field of MAY can be null), or (problem, HTTP status)."""
    syntax = "Failed to parse the request body as JSON: "
    shape = "Failed to deserialize the JSON body into the target type: "
    try:
        text = data.decode()
    except UnicodeDecodeError as err:
        return f"{syntax}invalid unicode code point at line 1 column {err.start + 1}", 400
    try:
        value = json.loads(text)
    except json.JSONDecodeError as err:
        return syntax + json_problem(text, err), 400
    except RecursionError:
        return f"{syntax}recursion limit exceeded at line 1 column 128", 400
    end = f" at line {text.count(chr(10)) + 1} column {len(text.rstrip().encode()) - (text.rfind(chr(10)) + 1)}"
    if not isinstance(value, dict):
        return f"{shape}invalid type: {kind_of(value)}, expected struct{end}", 422
    for name, kind in (*need.items(), *may.items()):
        if name in value and (value[name] is not None or name in need):
            problem = misfit(value[name], kind)
            if problem:
                return f"{shape}{name}: {problem}{end}", 422
    for name in need:
        if name not in value:
            return f"{shape}missing field `{name}`{end}", 422
    return value


def json_body(request, need, may, as_1422=False, limit=BODY_MAX):
    """The request's JSON; what is wrong with it ends the handler, by HTTP code as the framework does it."""
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise Answer(reply_text(415, "Expected request with `Content-Type: application/json`"))
    data = request.body(limit)
    if data is None:
        message = "Failed to buffer the request body: length limit exceeded"
        raise Answer(failure(1422, message) if as_1422 else reply_text(413, message))
    value = parse_json(data, need, may)
    if isinstance(value, dict):
        return value
    raise Answer(failure(1422, value[0]) if as_1422 else reply_text(value[1], value[0]))


# ---- queries ----


def bad_query(message):
    return Answer(reply_text(400, f"Failed to deserialize query string: {message}"))


def query(request, need=(), flags=(), numbers=()):
    """The query as a dict."""
    out = {}
    for name, value in request.fields():
        if name in out and name in (*need, *flags, *numbers):
            raise bad_query(f"duplicate field `{name}`")
        if name in flags:
            if value not in ("true", "false"):
                raise bad_query(f"{name}: provided string was not `true` or `false`")
            value = value == "true"
        elif name in numbers:
            if not re.fullmatch(r"\+?[0-9]+", value):
                empty = "cannot parse integer from empty string" if not value else "invalid digit found in string"
                raise bad_query(f"{name}: {empty}")
            value = int(value)
            if value > U64_MAX:
                raise bad_query(f"{name}: number too large to fit in target type")
        out[name] = value
    for name in need:
        if name not in out:
            raise bad_query(f"missing field `{name}`")
    return out


# ---- base64 ----


def decode_base64(text):
    """The bytes, or the problem as a str: strict, as the service's decoder is."""
    data = text.encode()
    body = data.rstrip(b"=")
    for i, byte in enumerate(body):
        if byte not in ALPHABET:
            return f"Invalid symbol {byte}, offset {i}."
    if len(body) % 4 == 1:
        return f"Invalid input length: {len(body)}"
    if len(data) - len(body) != -len(body) % 4:
        return "Invalid padding"
    return base64.b64decode(data)


__all__ = ["Answer", "Reply", "BODY_MAX", "U64_MAX", "decode_base64", "failure", "json_body", "os_failure", "query",
           "stamp", "success", "words"]
