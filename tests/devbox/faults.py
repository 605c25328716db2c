# SPDX-License-Identifier: Apache-2.0
"""What can go wrong on purpose, and how it is switched: quirks of the real service, and rules that injure answers.

Quirks are on by default, as in the real service (QUIRKS below, with what each value means).  A rule says where it
holds and what it does:

  where: "control", "agent" or absent (both)   box: a name   method: "POST"   path: beginning of the path
  skip: first so many matching requests are left alone    times: holds for so many, then it is used up
                                                          (of an agent: counted in each box by itself)
  delay: seconds before anything is done                  hang: true, no answer ever
  reset: true, the connection is closed unanswered        status: HTTP status instead of the answer
  message: text with that status                          retry_after, location: headers with that status
  body: this as the answer, of the content type `kind`
  as_200: true, the status only in the body (control)     after: true, status/hang/reset come after the work is done
  json: "wrong" (another shape), "cut" (half a document), "html" (a page of some proxy), "endless" (never ends)
  cut: bytes of the answer's body, then the connection is closed
  cut_request: bytes of the request's body that are read, then the connection is closed
  cut_after: seconds after the request, then the connection is closed
  drip: bytes a second in which the answer trickles

Owns: nothing; a Faults object belongs to the process that answers (the service, or the agent of one box)."""
import random
import threading

QUIRKS = {
    # agent: files
    "late_write": 0.33,  # share of raw writes that are answered before the bytes are in the file
    "late_write_s": 0.02,  # how much later they come
    "list_shuffle": True,  # files/list has no order, so pages shift
    "nagle": True,  # small writes on a kept-alive connection stall for the peer's delayed ACK
    "max_file_size": 100 * 1024 * 1024,  # above: 1422, and the old file is gone
    # agent: processes
    "complete_first": 0.33,  # share of streams whose `complete` comes before the last output
    "complete_first_s": 0.005,  # how long output is held back to let it pass
    "strict_utf8": True,  # a line that is not UTF-8 ends the reader, the program gets SIGPIPE
    "log_lines": 10000,  # lines that logs keep
    "keepalive_s": 15,  # comment lines of an idle stream
    # control plane
    "start_s": 0.2,  # from create or start to usable
    "nameless": True,  # a box that starts is Running for a while before agentServer has a token
    "stop_s": 0,  # from pause, shutdown or delete to its end
    "port_fails": False,  # the last port of a create cannot be had: code 201
    "monitor_wrapped": False,  # monitor answers {code, data} instead of a bare array
    "agent_url": "ports",  # "ports": agentServer.url is empty, ports[0].publicAddress has it; "name": the other way round
    "restart_token": True,  # a restart changes the token
}

WHERE = ("control", "agent")
RULE = {
    "where": str, "box": str, "method": str, "path": str, "skip": int, "times": int,
    "delay": (int, float), "hang": bool, "reset": bool, "status": int, "message": str, "retry_after": (int, str),
    "location": str, "body": str, "kind": str,
    "as_200": bool, "after": bool, "json": str, "cut": int, "cut_request": int, "cut_after": (int, float), "drip": int,
}
JSON = ("wrong", "cut", "html", "endless")


def check_rule(rule):
    """ValueError if RULE says something that no rule can: a test with a typing error must not pass."""
    for key, value in rule.items():
        if key not in RULE:
            raise ValueError(f"no such key in a rule: {key}")
        if not isinstance(value, RULE[key]) or isinstance(value, bool) != (RULE[key] is bool):
            raise ValueError(f"{key}: {value!r} is of the wrong kind")
    if rule.get("where", "agent") not in WHERE:
        raise ValueError(f"where: {rule['where']!r}")
    if rule.get("json", "cut") not in JSON:
        raise ValueError(f"json: {rule['json']!r}")
    if not set(rule) - {"where", "box", "method", "path", "skip", "times", "after"}:
        raise ValueError("a rule that does nothing")


def check_quirks(quirks):
    for key, value in quirks.items():
        if key not in QUIRKS:
            raise ValueError(f"no such quirk: {key}")
        kind = type(QUIRKS[key])
        if kind in (int, float) and not isinstance(value, bool) and isinstance(value, (int, float)):
            continue
        if not isinstance(value, kind):
            raise ValueError(f"{key}: {value!r} is of the wrong kind")


class Faults:
    """The quirks and rules in force.  Any thread."""

    def __init__(self):
        self.lock = threading.Lock()
        self.quirks = dict(QUIRKS)
        self.rules = []  # dicts; key "n": how many requests have matched

    def set(self, quirks=None, rules=None):
        """Replace what is given."""
        with self.lock:
            if quirks is not None:
                self.quirks = dict(QUIRKS, **quirks)
            if rules is not None:
                before = {id_of(r): r["n"] for r in self.rules}
                self.rules = [dict(r, n=before.get(id_of(r), 0)) for r in rules]

    def __getitem__(self, quirk):
        return self.quirks[quirk]

    def chance(self, quirk):
        return random.random() < self.quirks[quirk]

    def match(self, where, box, method, path):
        """What the rules do to this request, all that match taken together; the earlier one wins."""
        if not self.rules:
            return {}
        effect = {}
        with self.lock:
            for rule in self.rules:
                if rule.get("where", where) != where or rule.get("box", box) != box:
                    continue
                if rule.get("method", method) != method or not path.startswith(rule.get("path", "")):
                    continue
                rule["n"] += 1
                n = rule["n"] - rule.get("skip", 0)
                if n <= 0 or n > rule.get("times", n):
                    continue
                effect = {**rule, **effect}
        return effect


def id_of(rule):
    return rule.get("id")
