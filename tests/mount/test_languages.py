# SPDX-License-Identifier: Apache-2.0
"""Every language of the table, plain code by shebang and detection, and modules of the workspace."""
import errno
import os
import re

import pytest
from helpers import expect_errno, need, sh, started

# extension -> (program that the host must have, its package, code that prints 42 and its first argument)
LANGUAGES = {
    "py": ("python3", "python3", "import sys\nprint(6 * 7, sys.argv[1])"),
    "js": ("node", "nodejs", "console.log(6 * 7, process.argv[2])"),
    "mjs": (
        "node",
        "nodejs",
        "import os from 'node:os'; console.log(6 * 7, process.argv[2], os.EOL === '\\n' ? '' : 'x')",
    ),
    "cjs": (
        "node",
        "nodejs",
        "const os = require('os'); console.log(6 * 7, process.argv[2], os.EOL === '\\n' ? '' : 'x')",
    ),
    "sh": ("sh", "dash", "echo $((6 * 7)) \"$1\""),
    "bash": ("bash", "bash", "a=(6 7); echo $((a[0] * a[1])) \"$1\""),
    "rb": ("ruby", "ruby", "puts \"#{6 * 7} #{ARGV[0]}\""),
    "pl": ("perl", "perl", "print 6 * 7, ' ', $ARGV[0], \"\\n\";"),
    "php": ("php", "php-cli", "<?php echo 6 * 7, ' ', $argv[1], \"\\n\";"),
    "lua": ("lua", "lua5.4", "print(string.format('%d %s', 6 * 7, arg[1]))"),
    "go": ("go", "golang-go", "package main\nimport (\"fmt\"; \"os\")\nfunc main() { fmt.Println(6*7, os.Args[1]) }\n"),
}
FAILING = {
    "py": ("import sys; sys.exit(3)", 3),
    "js": ("process.exit(3)", 3),
    "sh": ("exit 3", 3),
    "bash": ("exit 3", 3),
    "rb": ("exit 3", 3),
    "pl": ("exit 3;", 3),
    "php": ("<?php exit(3);", 3),
    "lua": ("os.exit(3)", 3),
}


@pytest.mark.bound(120)
@pytest.mark.parametrize("ext", LANGUAGES)
def test_a_program_with_an_argument_in(box, ext):
    program, package, code = LANGUAGES[ext]
    need(program, package)
    (box.run / "args").write_text("an arg\n")
    r = box.go(code, f"code.{ext}")
    assert r.code == 0, r
    assert r.text.split() == ["42", "an", "arg"]


@pytest.mark.parametrize("ext", FAILING)
def test_the_exit_code_of_a_program_in(box, ext):
    need(*LANGUAGES[ext][:2])
    code, want = FAILING[ext]
    assert box.go(code, f"code.{ext}").code == want


def test_typescript_runs_or_is_127_with_a_reason(box):
    need("node", "nodejs")
    r = box.go("const n: number = 6 * 7;\nconsole.log(n);\n", "code.ts")
    if r.code == 127:
        assert re.search("ts|typescript|node", (box.run / "error").read_text(), re.I)
    else:
        assert (r.code, r.text) == (0, "42\n"), r


@pytest.mark.parametrize(
    "shebang,code,want",
    [
        ("#!/bin/sh", "echo $0 | wc -l", "1"),
        ("#!/usr/bin/env python3", "print(6 * 7)", "42"),
        ("#!/usr/bin/python3 -u", "print(6 * 7)", "42"),
        ("#!/usr/bin/env -S python3 -u", "print(6 * 7)", "42"),
        ("#!/usr/bin/perl -w", "print 6 * 7;", "42"),
        ("#!/usr/bin/env node", "console.log(6 * 7)", "42"),
        ("#! /bin/bash", "x=(42); echo ${x[0]}", "42"),
    ],
)
def test_plain_code_with_a_shebang(box, shebang, code, want):
    for program in ("python3", "perl", "node"):
        if program in shebang:
            need(program)
    r = box.go(f"{shebang}\n{code}\n", "code")
    assert (r.code, r.text.strip()) == (0, want), r


@pytest.mark.parametrize(
    "code,language",
    [
        ("import sys\nfor i in range(2):\n    print(i)\n", "python"),
        ("def f():\n    return 1\nprint(f())\n", "python"),
        ("const a = [1, 2].map((x) => x * 2);\nconsole.log(a);\n", "node"),
        ("let x = 1;\nfunction f() { return x; }\nconsole.log(f());\n", "node"),
        ("print('const x = 1;')\n", "python"),
        ("console.log('import sys')\n", "node"),
    ],
)
def test_plain_code_is_detected(box, code, language):
    r = box.go(code, "code")
    assert r.code == 0, r
    assert box.json()["language"] == language


def test_plain_code_that_nobody_can_tell_is_a_told_failure(box):
    box.save("lorem ipsum dolor sit amet\n", "code")
    try:
        code = box.exit()
        assert code in (126, 127)
    except OSError as e:
        assert e.errno == errno.EIO
    assert re.search("language|shebang", (box.run / "error").read_text())


def test_an_extension_of_the_config_is_a_language(fresh_mnt):
    m = fresh_mnt(
        config={
            "languages": {
                "upper": {"extensions": ["up"], "command": ["/bin/sh", "-c", "tr a-z A-Z"]},
                "counter": {"extensions": ["count"], "command": ["/usr/bin/wc", "-l", "{code}"]},
            }
        }
    )
    box = m.box()
    assert box.go("a\nb\nc\n", "code.count").text.split()[0] == "3"
    (box.run / "stdin").write_text("shout\n")
    assert box.go("x", "code.up").text == "SHOUT\n"
    assert box.json()["language"] == "upper"


def test_a_command_need_not_say_where_the_code_goes(fresh_mnt):
    """The example of docs/config.md: another interpreter, with an option."""
    m = fresh_mnt(config={"languages": {"python": {"command": ["python3", "-u"]}}})
    box = m.box()
    (box.run / "args").write_text("a b\nc\n")
    assert box.go("import sys; print(sys.argv[1:])").text == "['a b', 'c']\n"


# ---- modules ----


def test_python_imports_a_module_of_the_workspace(box):
    (box.ws / "helper.py").write_text("def f(): return 'from the workspace'\n")
    (box.ws / "package").mkdir()
    (box.ws / "package/__init__.py").write_text("N = 5\n")
    assert box.go("import helper, package; print(helper.f(), package.N)").text == "from the workspace 5\n"


def test_python_imports_from_the_cwd(box):
    (box.ws / "sub").mkdir()
    (box.ws / "sub/local.py").write_text("N = 6\n")
    (box.run / "cwd").write_text("sub\n")
    assert box.go("import local; print(local.N)").text == "6\n"


def test_a_module_that_was_changed_is_imported_anew(box):
    for i in range(5):
        (box.ws / "m.py").write_text(f"N = {i}\n")
        assert box.go("import m; print(m.N)").text == f"{i}\n"


@pytest.mark.parametrize("module", ["pdb", "code", "codeop", "doctest", "unittest"])
def test_an_import_of_the_standard_library_does_not_run_the_code_again(box, module):
    r = box.go(f"print('once')\nimport {module}\n").ok()
    assert r.out == b"once\n"


def test_the_code_is_no_file_of_the_workspace(box):
    r = box.go("import os; print(os.listdir('.'), __name__)").ok()
    assert r.text == "[] __main__\n"
    assert os.listdir(box.ws) == [] or os.listdir(box.ws) == ["__pycache__"]


def test_a_python_traceback_shows_the_file_and_the_line(box):
    r = box.go("def f():\n    raise ValueError('boom')\n\nf()\n")
    err = r.err.decode()
    assert r.code == 1
    assert re.search(r'File ".*code\.py", line 4', err) and re.search(r'File ".*code\.py", line 2', err)
    assert "raise ValueError('boom')" in err and "ValueError: boom" in err


def test_a_python_syntax_error_shows_the_line(box):
    r = box.go("x = 1\ny = = 2\n")
    assert r.code == 1 and b'code.py", line 2' in r.err and b"SyntaxError" in r.err


def test_pickle_dataclasses_and_multiprocessing_work_in_python(box):
    r = box.go(
        """import multiprocessing, pickle, dataclasses
@dataclasses.dataclass
class P:
    x: int
def square(n):
    return n * n
if __name__ == '__main__':
    print(pickle.loads(pickle.dumps(P(3))))
    with multiprocessing.Pool(2) as pool:
        print(pool.map(square, range(4)))
    with multiprocessing.get_context('spawn').Pool(1) as pool:
        print(pool.map(square, [5]))
"""
    )
    assert r.text == "P(x=3)\n[0, 1, 4, 9]\n[25]\n", r


def test_threads_sqlite_ssl_and_asyncio_work_in_python(box):
    r = box.go(
        """import asyncio, hashlib, sqlite3, ssl, subprocess, tempfile, threading
c = sqlite3.connect('db'); c.execute('create table t (n)'); c.execute('insert into t values (1)'); c.commit()
t = threading.Thread(target=lambda: print('thread')); t.start(); t.join()
async def main():
    p = await asyncio.create_subprocess_exec('echo', 'sub', stdout=-1)
    print((await p.communicate())[0].decode().strip())
asyncio.run(main())
tempfile.TemporaryFile().write(b'x')
print(subprocess.run(['ls', '/workspace'], capture_output=True, text=True).stdout.strip())
"""
    )
    assert r.code == 0 and r.text == "thread\nsub\ndb\n", r


# ---- node ----


@pytest.fixture
def node_box(box):
    need("node", "nodejs")
    package = box.ws / "node_modules/pack"
    package.mkdir(parents=True)
    (package / "index.js").write_text("exports.name = 'pack';\n")
    (box.ws / "lib.js").write_text("exports.name = 'lib';\n")
    (box.ws / "es.mjs").write_text("export const name = 'es';\n")
    (box.ws / "data.json").write_text('{"name": "data"}')
    return box


def test_node_requires_files_and_packages_of_the_workspace(node_box):
    r = node_box.go(
        "console.log(require('./lib').name, require('pack').name, require('./data.json').name, require.main === module)",
        "code.js",
    )
    assert r.text == "lib pack data true\n", r


def test_node_imports_dynamically(node_box):
    r = node_box.go(
        "import('./es.mjs').then((m) => console.log(m.name)); import('pack').then((m) => console.log(m.default.name))",
        "code.js",
    )
    assert sorted(r.text.split()) == ["es", "pack"], r


def test_an_es_module_imports_files_and_packages(node_box):
    r = node_box.go(
        "import { name } from './es.mjs';\nimport pack from 'pack';\nimport fs from 'node:fs';\n"
        "const x = await Promise.resolve(1);\nconsole.log(name, pack.name, fs.existsSync('lib.js'), x);\n",
        "code.mjs",
    )
    assert r.text == "es pack true 1\n", r


def test_import_in_a_js_file_works_when_it_is_an_es_module(node_box):
    (node_box.ws / "package.json").write_text('{"type": "module"}')
    r = node_box.go("import { name } from './es.mjs';\nconsole.log(name);\n", "code.js")
    assert r.text == "es\n", r


def test_node_paths_are_relative_to_cwd(node_box):
    (node_box.ws / "sub").mkdir()
    (node_box.ws / "sub/lib.js").write_text("exports.name = 'sub';\n")
    (node_box.run / "cwd").write_text("sub\n")
    r = node_box.go("console.log(require('./lib').name, require('pack').name, process.cwd(), __dirname)", "code.js")
    assert r.text == "sub pack /workspace/sub /workspace/sub\n", r


def test_a_node_error_shows_the_file_and_the_line(node_box):
    r = node_box.go("const a = 1;\n\nthrow new Error('boom');\n", "code.js")
    assert r.code == 1 and re.search(rb"code\.js:3", r.err) and b"Error: boom" in r.err


def test_node_workers_and_child_processes_work(node_box):
    r = node_box.go(
        """const { Worker } = require('worker_threads');
const { execSync } = require('child_process');
console.log(execSync('echo child').toString().trim());
new Worker('require("worker_threads").parentPort.postMessage("worker")', { eval: true }).on('message', console.log);
""",
        "code.js",
    )
    assert r.text == "child\nworker\n", r


# ---- names of code files ----


def test_each_code_file_runs_in_its_language_and_the_newest_is_shown(box):
    assert box.go("print('py')").text == "py\n"
    assert box.go("echo sh", "code.sh").text == "sh\n"
    assert box.json()["language"] == "sh"
    assert box.go("print('again')").text == "again\n"
    assert {"code.py", "code.sh"} <= set(os.listdir(box.run))
    assert started(box) == 3


def test_a_file_with_an_unknown_extension_is_scratch(box):
    (box.run / "code.xyz").write_text("print(1)")
    assert started(box) == 0
    expect_errno(errno.ENOENT, os.stat, box.run / "code.abc")


def test_quoting_in_code_reaches_the_interpreter_untouched(box):
    text = "print('''$HOME `x` \\\\ \"q\" %s \u00fc''')\n"
    sh(["tee", box.run / "code.py"], data=text.encode()).ok()
    assert (box.run / "stdout").read_text() == '$HOME `x` \\ "q" %s \u00fc\n'
