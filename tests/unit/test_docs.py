#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The documentation names what the code has, and nothing else: files of the tree, keys of the configuration, options.

usage: test_docs.py SOURCE_ROOT"""
import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
problems = []


def read(path):
    return (root / path).read_text()


def same(what, code, docs):
    for name in sorted(code - docs):
        problems.append(f"{what}: the code has '{name}', the documentation does not")
    for name in sorted(docs - code):
        problems.append(f"{what}: the documentation has '{name}', the code does not")
    if not code:
        problems.append(f"{what}: nothing found in the code; has it moved?")


def section(text, title):
    match = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if not match:
        problems.append(f"no section '{title}'")
        return ""
    return match.group(1)


def first_cells(text):
    """Names in backticks in the first cell of each line of a table."""
    return {n for line in re.findall(r"^\| (`.*?) \|", text, re.M) for n in re.findall(r"`([^`]+)`", line)}


# every source file is found in docs/ARCHITECTURE.md; a name without a folder is in the folder of the one before it

where, here = section(read("docs/ARCHITECTURE.md"), "Where things are"), set()
for row in where.splitlines():
    folder = ""
    for name in re.findall(r"`([\w/*]+\.c)`", row):
        folder = name.rpartition("/")[0] if "/" in name else folder
        named = sorted((root / folder).glob(Path(name).name))
        here.update(str(p.relative_to(root)) for p in named)
        if not named:
            problems.append(f"docs/ARCHITECTURE.md: there is no {folder}/{Path(name).name}")
for path in sorted(p for folder in ["fs", "lib", "lib/local", "lib/init"] for p in (root / folder).glob("*.c")):
    if str(path.relative_to(root)) not in here:
        problems.append(f"docs/ARCHITECTURE.md does not say what {path.relative_to(root)} is for")

# the tree: what the tables of fs/tree_*.c say of each name, and what docs/tree.md says.  tests/mount/test_tree.py tries the rest

FOLDERS = {  # section of docs/tree.md -> tables with its files
    ".sbxfs/": ["control_files"],
    ".sbxfs/templates/NAME/": ["template_files", "link_file"],
    "BOX/": ["box_files"],
    "BOX/limits/": ["limit_files"],
    "BOX/monitor/": ["span_file"],
    "BOX/run/": ["tree_run.c run_files"],
    "BOX/processes/": ["processes_files"],
    "BOX/processes/ID/": ["PROCESS_FILES", "tree_processes.c run_files", "background_files"],
}
MODES = {  # a folder's row, or a section's own "Mode" -> its tables in the code
    ("MOUNT/", ""): ["sbx_root_folder"],
    ("MOUNT/", "BOX/"): ["sbx_box_folder"],
    ("MOUNT/", ".sbxfs/"): ["sbx_control_folder"],
    (".sbxfs/", "templates/"): ["sbx_templates_folder"],
    (".sbxfs/templates/NAME/", ""): ["template_folder"],
    ("BOX/", "limits/"): ["sbx_limits_folder"],
    ("BOX/", "monitor/"): ["sbx_monitor_folder"],
    ("BOX/", "run/"): ["sbx_run_folder"],
    ("BOX/", "processes/"): ["sbx_processes_folder"],
    ("BOX/run/", "SLOT/"): ["sbx_slot_folder"],
    ("BOX/processes/", "ID/"): ["tree_processes.c run_folder", "background_folder"],
    ("BOX/processes/", "NAME/"): ["background_folder"],
    ("BOX/processes/ID/", ""): ["tree_processes.c run_folder", "background_folder"],
}
UNNAMED = {"link_file": "BOX", "span_file": "SPAN"}  # one line for many names
ELSEWHERE = {"made_folder", "root_files", "scratch_folder"}  # never seen; .sbxfs itself; a tool's own

tables, modes = {}, {}  # of the code: table -> name -> (mode, written); folder -> mode
for path in sorted((root / "fs").glob("tree_*.c")):
    source = read(path.relative_to(root))
    for kind, name, body in re.findall(
        r"^(?:static )?const struct sbx_(file|folder) (\w+)(?:\[\])? = \{(.*?)\};", source, re.M | re.S
    ):
        key = f"{path.name} {name}" if name in ("run_files", "run_folder") else name
        if kind == "folder":
            modes[key] = re.search(r"\.mode = (\d+)", body)[1]
        else:
            tables[key] = body if body.lstrip().startswith("{") or "{ .name" in body else "{" + body + "}"
    for name, body in re.findall(r"^#define (\w+_FILES)\b(.*?[^\\])\n", source, re.M | re.S):
        tables[name] = body
    for name, body in tables.items():
        if isinstance(body, str):
            tables[name] = lines = {}
            for line in re.findall(r"\{ ?(\.name = .*?)\}", body, re.S):
                file = re.search(r'\.name = "([^"]*)"', line)[1] or UNNAMED.get(name, "")
                ops = re.search(r"\.ops = &(\w+)", line)
                written = ".write =" in line or ".write_later =" in line or bool(
                    ops and re.search(rf"{ops[1]} = \{{[^}}]*\.write_buf", source)
                )
                mode = re.search(r"\.mode = (\d+)", line)
                if ".folder =" in line:
                    lines[file + "/"] = ("folder", False)
                elif "SBX_FILE_LINK" in line:
                    lines[file] = ("link", False)
                else:
                    lines[file] = (mode[1] if mode else "none", written)
for name in sorted(set(tables) - {t for ts in FOLDERS.values() for t in ts} - ELSEWHERE):
    problems.append(f"the tree: the table '{name}' is not documented; tests/unit/test_docs.py must know where it is")
for name in sorted(set(modes) - {t for ts in MODES.values() for t in ts} - ELSEWHERE):
    problems.append(f"the tree: the folder '{name}' is not documented; tests/unit/test_docs.py must know where it is")

tree, rows = read("docs/tree.md"), {}  # section -> name -> cells
for title in re.findall(r"^## (.*)", tree, re.M):
    for line in re.findall(r"^\|(.*)\|$", section(tree, title), re.M):
        cells = [c.strip() for c in line.split("|")]
        for name in re.findall(r"`([^`]+)`", cells[0]):
            if not re.fullmatch("E[A-Z]+", name):
                rows.setdefault(title, {})[name] = cells
            if len(cells) == 5 and cells[3] == cells[2] == "" and name != ".sbxfs/":
                problems.append(f"{title} {name}: what is it good for?")

FOUND = {"1m", "10m", "1h", "SLOT/", "ID/", "NAME/"}  # by functions, not in a table
for title, names in FOLDERS.items():
    code = {}
    for table in names:
        for name, (mode, written) in tables.get(table, {}).items():
            have = code.setdefault(name, ([], []))
            have[0].append(mode)
            have[1].append(written)
    docs = {n: c for n, c in rows.get(title, {}).items() if n not in FOUND and not re.match(r"code($|\.)", n)}
    same(title, set(code), set(docs))
    for name in set(code) & set(docs):
        kinds, written = code[name]
        cells = docs[name]
        want = "; ".join(dict.fromkeys(kinds))
        if "folder" in kinds:
            continue  # its mode is compared below
        if cells[1] != want:
            problems.append(f"{title} {name}: mode {want} in the code, {cells[1]} in the documentation")
        if want != "link" and (cells[3] != "") != any(written):
            problems.append(f"{title} {name}: can be written in {'the code' if any(written) else 'the documentation'} only")
for (title, name), folders in MODES.items():
    if name:
        told = rows.get(title, {}).get(name, ["", "none"])[1]
    else:
        found = re.search(r"^Mode (\d+)", section(tree, title), re.M)
        told = found[1] if found else "none"
    for folder in folders:
        if modes.get(folder) != told:
            problems.append(f"{title}{name}: mode {modes.get(folder)} in the code, {told} in the documentation")
run = rows.get("BOX/run/", {})

# languages
language = read("lib/language.c")
table = re.search(r"builtins\[\] = \{(.*?)^\};", language, re.M | re.S).group(1)
rows = re.findall(r'\{ "(\w+)",\s*\{ ("[^}]*") \}', table)
extensions = {e for _, exts in rows for e in re.findall(r'"(\w+)"', exts)}
same("code.EXT", {f"code.{e}" for e in extensions} | {"code"}, {n for n in run if n.startswith("code")})
config_md = read("docs/config.md")
built_in = re.search(r"^Built in: (.*?)\.$", config_md, re.M | re.S)
told = re.findall(r"(\w+)(?: \(([^)]*)\))?", built_in.group(1)) if built_in else []
same("languages", {n for n, _ in rows}, {n for n, _ in told})

# the configuration
parser = "".join(read(p.relative_to(root)) for p in sorted(root.glob("lib/config*.c")))
tables = {
    name: set(re.findall(r'^\t\{ "(\w+)"', body, re.M))
    for name, body in re.findall(r"sbx_config_key (\w+)_keys\[\] = \{(.*?)\};", parser, re.S)
}
tables["limit"] = set(re.findall(r'^\tX\(\w+, "(\w+)"', read("lib/limit.h"), re.M))
below = {"policy"}  # told by the key below it
top = tables.pop("top", set()) - below | {f"policy.{k}" for k in tables.pop("policy", set())}
same("configuration", top, first_cells(config_md.split("\n## ")[0]))
for name in sorted(tables):  # template_keys are the table of "## templates", and so on
    title = next((t for t in (name, name + "s") if f"\n## {t}\n" in config_md), name)
    cells = first_cells(re.split(r"\n\n(?=How the built-in)", section(config_md, title))[0])
    same(f"configuration, {title}", tables[name], cells)

# sbxfs-config(5): the keys are the words of .TP .B in the section of each table
man_keys = {
    title: set(re.findall(r"^\.TP\n\.B ([\w.]+)$", body, re.M))
    for title, body in re.findall(r"^\.SH ([A-Z ]+)\n(.*?)(?=^\.SH|\Z)", read("docs/sbxfs-config.5"), re.M | re.S)
}
same("sbxfs-config(5), TOP LEVEL", top, man_keys.pop("TOP LEVEL", set()))
for name, keys in sorted(tables.items()):
    title = {"limit": "LIMITS", "template": "TEMPLATES", "file": "TEMPLATE FILES", "language": "LANGUAGES"}.get(name, name.upper())
    same(f"sbxfs-config(5), {title}", keys, man_keys.pop(title, set()))
for title in sorted(t for t, keys in man_keys.items() if keys):
    problems.append(f"sbxfs-config(5): the section '{title}' has keys, but no table of the parser is for it")

# the command line: what the parser knows, --help, sbxfs(1), the completion
options_c = read("fs/options.c")
known = {re.sub(r"=%s$", "", o) for o in re.findall(r'^\tOPTION\("([^"]+)"', options_c, re.M)} - {"debug"}  # another -d
help_text = "\n".join(re.findall(r'^\t"(.*)\\n"', options_c, re.M))
pattern = r"-o ([a-z_]+)|(?<![\w-])(-[a-zA-Z]|--[a-z]+)\b"
told = {a or b for a, b in re.findall(pattern, help_text)} - {"-u", "-o"}
same("sbxfs --help", known, told)
man = read("docs/sbxfs.1").replace("\\-", "-")
options = re.search(r"^\.SH OPTIONS\n(.*?)^\.SH", man, re.M | re.S).group(1)
heads = " ".join(re.findall(r"^\.TP\n(.*)", options, re.M)).replace('"', "")
same("sbxfs(1)", known, {a or b for a, b in re.findall(pattern, heads)})
completion = re.findall(r"-W (?:\\\n\s*)?'([^']*)'", read("docs/sbxfs.bash-completion"))
offered = {w.partition("=")[0] for words in completion for w in words.split() if "=" in w or w.startswith("-") or w in known}
same("the completion", known, offered - {"-o"})

print("\n".join(problems) or "the documentation agrees with the code")
sys.exit(bool(problems))
