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


def table_names(path):
    return set(re.findall(r'\{ \.name = "([^"]+)"', read(path)))


# the tree
tree = read("docs/tree.md")
same("BOX/", table_names("fs/tree_box.c"), {n.rstrip("/") for n in first_cells(section(tree, "BOX/"))})
same(".sbxfs/", table_names("fs/tree_control.c"), {n.rstrip("/") for n in first_cells(section(tree, ".sbxfs/"))})
run = first_cells(section(tree, "BOX/run/"))
same("BOX/run/", table_names("fs/tree_run.c"), {n for n in run if not n.startswith("code")})
processes = {n for n in first_cells(section(tree, "BOX/processes/")) if not n.endswith("/")}
of_one = first_cells(section(tree, "BOX/processes/ID/"))
same("BOX/processes/", table_names("fs/tree_processes.c"), processes | of_one)

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
    for name, body in re.findall(r"sbx_config_key (\w+)_keys\[\] = \{(.*?)^\};", parser, re.M | re.S)
}
below = {"policy"}  # told by the key below it
top = tables.pop("top", set()) - below | {f"policy.{k}" for k in tables.pop("policy", set())}
same("configuration", top, first_cells(config_md.split("\n## ")[0]))
for name in sorted(tables):  # template_keys are the table of "## templates", and so on
    title = next((t for t in (name, name + "s") if f"\n## {t}\n" in config_md), name)
    cells = first_cells(re.split(r"\n\n(?=How the built-in)", section(config_md, title))[0])
    same(f"configuration, {title}", tables[name], cells)

# the command line
help_text = "".join(re.findall(r'^\t"(.*)\\n"', read("fs/options.c"), re.M))
man = read("docs/sbxfs.1").replace("\\-", "-")
for option in sorted(set(re.findall(r"-o ([a-z_]+)|(?<![\w-])(-[a-zA-Z]|--[a-z]+)\b", help_text))):
    name = option[0] or option[1]
    if name != "-u" and not re.search(rf"(?<![\w]){re.escape(name)}", man):
        problems.append(f"sbxfs(1): '{name}' of --help is missing")

print("\n".join(problems) or "the documentation agrees with the code")
sys.exit(bool(problems))
