#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may include whom, and what every C file must have: the rules of docs/ARCHITECTURE.md, checked.

usage: test_includes.py SOURCE_ROOT [--selftest]"""
import os
import re
import sys
from pathlib import Path

# folder -> folders whose headers it may include (besides its own)
MAY = {
    "lib/base": set(),
    "lib/init": {"lib/base"},
    "lib": {"lib/base"},
    "lib/local": {"lib", "lib/base", "lib/init"},
    "lib/devbox": {"lib", "lib/base", "lib/init"},
    "fs": {"lib", "lib/base"},
}
# the registry is the one place that names the backends; each exception says why
EXCEPT = {
    "lib/provider.c": {"lib/local", "lib/devbox"},
    "lib/base/spawn.c": {"lib"},  # waits on the loop; would lie better in lib/
}
# headers of libraries, and the only places for them (prefixes of paths)
ONLY = {
    "fuse_lowlevel.h": ["fs/"],
    "fuse.h": ["fs/"],
    "fuse_opt.h": ["fs/"],
    "curl/curl.h": ["lib/devbox/http.c", "lib/loop.c"],
    "cjson/cJSON.h": ["lib/"],
    "yaml.h": ["lib/yamlread.c"],
}
# init/ is one program for inside the sandbox; from outside only these of it are known
INIT_HEADERS = {"init/protocol.h", "init/blob.h"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+([<"])([^>"]+)[>"]', re.M)


def folder_of(path):
    return str(Path(path).parent)


def resolve(root, path, name):
    """The file of ours that an #include "name" means: beside it, or under lib/ or fs/."""
    for base in (folder_of(path), "lib", "fs"):
        if (root / base / name).is_file():
            return os.path.normpath(f"{base}/{name}")
    return None


def check_file(root, path, text):
    problems = []
    folder = folder_of(path)
    lines = text.splitlines()
    if not lines or lines[0] != "/* SPDX-License-Identifier: Apache-2.0 */":
        problems.append(f"{path}:1: the first line must be the SPDX line")
    if not re.search(r"^(/\*| \*) Owns: ", "\n".join(lines[1:6]), re.M):
        problems.append(f"{path}:2: no comment that says what it owns")
    for match in INCLUDE.finditer(text):
        where = f"{path}:{text[: match.start()].count(chr(10)) + 1}"
        kind, name = match.groups()
        allowed = ONLY.get(name)
        if allowed and not any(path.startswith(p) for p in allowed):
            problems.append(f"{where}: <{name}> is only for {', '.join(allowed)}")
        if kind == "<":
            continue
        target = resolve(root, path, name)
        if not target:
            if name not in GENERATED:
                problems.append(f'{where}: "{name}" is no file of ours')
            continue
        other = folder_of(target)
        if other == folder or other in EXCEPT.get(path, set()):
            continue
        if other not in MAY.get(folder, set()):
            problems.append(f"{where}: {folder}/ may not include {other}/ ({name})")
        elif other == "lib/init" and name not in INIT_HEADERS:
            problems.append(f"{where}: of lib/init/ only {', '.join(sorted(INIT_HEADERS))} may be included")
    return problems


GENERATED = {"init_blob.h"}  # made by lib/init/build.sh


def check_tree(root):
    problems, n = [], 0
    for top in ("fs", "lib"):
        for path in sorted((root / top).rglob("*.[ch]")):
            n += 1
            problems += check_file(root, path.relative_to(root).as_posix(), path.read_text())
    return problems, n


def selftest(root):
    """Each rule must be able to fail."""
    head = "/* SPDX-License-Identifier: Apache-2.0 */\n/* Owns: x. */\n"
    wrong = {
        ("lib/box.c", head + "#include <fuse_lowlevel.h>\n"): "only for fs/",
        ("fs/ops.c", head + "#include <cjson/cJSON.h>\n"): "only for lib/",
        ("lib/config.c", head + "#include <yaml.h>\n"): "only for lib/yamlread.c",
        ("lib/run.c", head + "#include <curl/curl.h>\n"): "only for",
        ("fs/ops.c", head + '#include "local/local.h"\n'): "may not include lib/local/",
        ("lib/box.c", head + '#include "local/local.h"\n'): "may not include lib/local/",
        ("lib/base/err.c", head + '#include "config.h"\n'): "may not include lib/",
        ("lib/local/local.c", head + '#include "init/init.h"\n'): "only init/",
        ("lib/box.c", head + '#include "nowhere.h"\n'): "no file of ours",
        ("lib/box.c", "int x;\n"): "SPDX",
        ("lib/box.c", head.replace("Owns", "Has")): "owns",
    }
    problems = []
    for (path, text), reason in wrong.items():
        found = check_file(root, path, text)
        if not any(reason in p for p in found):
            problems.append(f"selftest: {path} with {text.splitlines()[-1]!r} was not refused: {found}")
    return problems


def main():
    root = Path(sys.argv[1])
    problems = selftest(root)
    found, n = check_tree(root)
    problems += found
    print("\n".join(problems) or f"{n} files keep the rules")
    return 1 if problems or n < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
