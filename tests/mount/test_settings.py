# SPDX-License-Identifier: Apache-2.0
"""args, cwd, env, stdin, timeout, language: the settings of the next run, and slots."""
import errno
import os

import pytest
from helpers import expect_errno, finish, need, sh, spawn, started, wait_for

DEFAULTS = {"args": "", "cwd": ".\n", "env": "", "stdin": "", "timeout": "300\n", "language": "auto\n"}

# setting, what is written, what is read back
TAKEN = [
    ("args", "a\n", "a\n"),
    ("args", "a b\n  c\n\n", "a b\n  c\n\n"),
    ("args", "no newline", "no newline\n"),
    ("cwd", "sub\n", "sub\n"),
    ("cwd", "sub", "sub\n"),
    ("cwd", "sub/deep\n", "sub/deep\n"),
    ("cwd", ".\n", ".\n"),
    ("env", "A=1\nB=two words\n", "A=1\nB=two words\n"),
    ("env", "EMPTY=\n", "EMPTY=\n"),
    ("env", "X=a=b\n", "X=a=b\n"),
    ("stdin", "line\n", "line\n"),
    ("stdin", "no newline", "no newline"),
    ("timeout", "30\n", "30\n"),
    ("timeout", "30s", "30\n"),
    ("timeout", "500ms\n", "0.5\n"),
    ("timeout", "5m\n", "300\n"),
    ("timeout", "2h\n", "7200\n"),
    ("timeout", "max\n", "max\n"),
    ("language", "python\n", "python\n"),
    ("language", "auto\n", "auto\n"),
]

# setting, what is written, a word that the reason has
REFUSED = [
    ("cwd", "..\n", "cwd"),
    ("cwd", "../x\n", "cwd"),
    ("cwd", "a/../../b\n", "cwd"),
    ("cwd", "/etc\n", "cwd"),
    ("timeout", "soon\n", "timeout"),
    ("timeout", "-1\n", "timeout"),
    ("timeout", "5x\n", "timeout"),
    ("timeout", "\n", "timeout"),
    ("timeout", "1 2\n", "timeout"),
    ("language", "klingon\n", "klingon"),
]

REFUSED_AT_CLOSE = [
    ("env", "no equals sign\n", "env"),
    ("env", "=x\n", "env"),
    ("env", "1A=x\n", "env"),
    ("args", "a\0b\n", "args"),
]


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_default_of(box, name):
    assert (box.run / name).read_text() == DEFAULTS[name]


@pytest.mark.parametrize("name,text,back", TAKEN)
def test_a_value_is_taken_and_read_back(box, name, text, back):
    if name == "cwd":
        (box.ws / "sub/deep").mkdir(parents=True)
    (box.run / name).write_text(text)
    assert (box.run / name).read_text() == back
    assert box.no_failure()
    (box.run / name).write_text(back)
    assert (box.run / name).read_text() == back, "what can be read back can be written"


@pytest.mark.parametrize("name,text,word", REFUSED)
def test_a_bad_value_fails_the_write_with_einval_and_a_reason(box, name, text, word):
    fd = os.open(box.run / name, os.O_WRONLY | os.O_TRUNC)
    try:
        expect_errno(errno.EINVAL, os.write, fd, text.encode())
    finally:
        os.close(fd)
    assert word in box.error()
    assert (box.run / name).read_text() == DEFAULTS[name], "nothing has changed"


@pytest.mark.parametrize("name,text,word", REFUSED_AT_CLOSE)
def test_a_bad_text_of_lines_fails_the_close_with_einval_and_a_reason(box, name, text, word):
    fd = os.open(box.run / name, os.O_WRONLY | os.O_TRUNC)
    os.write(fd, text.encode())
    expect_errno(errno.EINVAL, os.close, fd)
    assert word in box.error()
    assert (box.run / name).read_text() == DEFAULTS[name]


def test_a_shell_sees_the_refusal(box):
    done = sh(f"echo soon > {box.run}/timeout")
    assert done.rc == 1 and b"Invalid argument" in done.err
    assert "timeout" in box.error() and "30s" in box.error(), "the reason says what would be right"


def test_args_are_one_per_line(box):
    (box.run / "args").write_text("first arg\n\n--flag=x\n")
    assert box.go("import sys; print(sys.argv[1:])").text == "['first arg', '', '--flag=x']\n"
    assert box.go("for a in \"$@\"; do echo \"<$a>\"; done", "code.sh").text == "<first arg>\n<>\n<--flag=x>\n"
    need("node", "nodejs")
    assert box.go("console.log(process.argv.slice(2).join('|'))", "code.js").text == "first arg||--flag=x\n"


def test_args_written_right_before_the_code_count_for_it(box):
    for i in range(50):
        (box.run / "args").write_text(f"{i}\n")
        assert box.go("echo $1", "code.sh").text == f"{i}\n"


def test_cwd_is_where_the_run_starts(box):
    (box.ws / "a/b").mkdir(parents=True)
    (box.run / "cwd").write_text("a/b\n")
    assert box.go("pwd", "code.sh").text == "/workspace/a/b\n"
    assert box.go("import os; print(os.getcwd()); open('here', 'w')").text == "/workspace/a/b\n"
    assert (box.ws / "a/b/here").exists()


def test_a_cwd_that_is_not_there_is_a_told_failure(box):
    (box.run / "cwd").write_text("missing\n")
    box.save("print(1)")
    try:
        code = box.exit()
    except OSError as e:
        assert e.errno == errno.EIO
    else:
        assert code in (126, 127)
    assert "missing" in (box.run / "error").read_text()


def test_a_cwd_that_is_a_link_out_of_the_workspace_is_refused(box):
    box.go("ln -s / out; ln -s /etc etc", "code.sh").ok()
    for name in ("out", "etc"):
        try:
            (box.run / "cwd").write_text(name + "\n")
        except OSError as e:
            assert e.errno == errno.EINVAL
            continue
        box.save("import os; print(os.getcwd())")
        assert (box.run / "stdout").read_text() != "/etc\n"


def test_env_is_given_to_the_run(box):
    (box.run / "env").write_text("GREETING=hello world\nPATH=/usr/bin\nLANG=C\nEMPTY=\n")
    r = box.go(
        "import os\nprint(os.environ['GREETING'], os.environ['PATH'], os.environ['LANG'], repr(os.environ['EMPTY']))"
    )
    assert r.text == "hello world /usr/bin C ''\n"


def test_nothing_of_the_daemons_environment_reaches_a_run(fresh_mnt):
    m = fresh_mnt(env={"SECRET_OF_THE_HOST": "71a0", "AWS_SECRET_ACCESS_KEY": "71a0"})
    box = m.box()
    assert "71a0" not in box.go("env", "code.sh").ok().text


def test_stdin_is_given_to_the_run_and_each_run_reads_it_from_the_start(box):
    (box.run / "stdin").write_text("one\ntwo\n")
    for _ in range(2):
        assert box.go("import sys; print(sys.stdin.read().split())").text == "['one', 'two']\n"


def test_without_stdin_there_is_an_end_at_once(box):
    assert box.go("import sys; print(repr(sys.stdin.read()))").text == "''\n"


def test_stdin_takes_binary_bytes_and_megabytes(box):
    data = bytes(range(256)) * 20000
    (box.run / "stdin").write_bytes(data)
    assert (box.run / "stdin").read_bytes() == data
    r = box.go("import hashlib, sys; print(hashlib.md5(sys.stdin.buffer.read()).hexdigest())")
    import hashlib

    assert r.text.strip() == hashlib.md5(data).hexdigest()


def test_stdin_by_a_pipe_of_a_shell(box):
    sh(f"seq 3 > {box.run}/stdin").ok()
    assert box.go("cat; echo end", "code.sh").text == "1\n2\n3\nend\n"


def test_timeout_counts_for_the_next_run_only_from_its_start(box):
    (box.run / "timeout").write_text("300ms\n")
    box.save("while :; do :; done", "code.sh")
    assert box.exit() == 124
    (box.run / "timeout").write_text("max\n")
    assert box.go("sleep 0.5; echo late", "code.sh").text == "late\n"


def test_language_is_for_the_plain_code_file(box):
    (box.run / "language").write_text("python\n")
    assert box.go("print(2**5)", "code").text == "32\n"
    (box.run / "language").write_text("sh\n")
    assert box.go("echo from $0 | wc -l", "code").text.strip() == "1"


def test_settings_stay_until_they_are_changed(box):
    (box.run / "args").write_text("kept\n")
    for _ in range(3):
        assert box.go("echo $1", "code.sh").text == "kept\n"
    (box.run / "args").write_text("")
    assert box.go("echo \"<$1>\"", "code.sh").text == "<>\n"


@pytest.mark.parametrize("name", DEFAULTS)
def test_unlink_of_a_setting_puts_its_default_back(box, name):
    value = {"args": "x\n", "cwd": ".\n", "env": "A=1\n", "stdin": "x\n", "timeout": "7\n", "language": "node\n"}[name]
    (box.run / name).write_text(value)
    os.unlink(box.run / name)
    assert (box.run / name).read_text() == DEFAULTS[name]
    assert name in os.listdir(box.run)


@pytest.mark.parametrize("name,text", [("args", "one\ntwo\n"), ("env", "A=1\nB=2\n"), ("stdin", "one\ntwo\n")])
def test_truncate_by_path_cuts_a_setting(box, name, text):
    path = box.run / name
    path.write_text(text)
    os.truncate(path, 4)
    assert path.read_text() == text[:4]
    sh(["truncate", "-s", "0", path]).ok()
    assert path.read_text() == "" and os.stat(path).st_size == 0
    (box / "env").write_text("A=1\n")
    os.truncate(box / "env", 0)
    assert (box / "env").read_text() == ""


def test_truncate_by_path_to_what_is_no_value_is_refused(box):
    (box.run / "env").write_text("A=1\nLONG=2\n")
    expect_errno(errno.EINVAL, os.truncate, box.run / "env", 6)
    assert "env: line 2 has no '='" in box.error()
    assert (box.run / "env").read_text() == "A=1\nLONG=2\n"


def test_settings_do_not_run_anything(box):
    box.go("echo 1", "code.sh")
    (box.run / "args").write_text("a\n")
    (box.run / "stdin").write_text("b\n")
    (box.run / "timeout").write_text("5\n")
    assert started(box) == 1


def test_a_setting_changed_while_a_run_goes_on_is_for_the_next(box):
    box.start(
        "import os, sys, time\nprint('READY', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.005)\nprint(sys.argv[1:])"
    )
    (box.run / "args").write_text("late\n")
    (box.ws / "go").touch()
    assert (box.run / "stdout").read_text() == "READY\n[]\n"


# ---- slots ----


def test_a_slot_has_files_and_settings_of_its_own(box):
    (box.run / "one").mkdir()
    assert {"stdout", "stderr", "exit", "result.json", "status", "args", "env"} <= set(os.listdir(box.run / "one"))
    assert "one" in os.listdir(box.run)
    (box.run / "args").write_text("main\n")
    (box.run / "one/args").write_text("slot\n")
    assert box.go("echo $1", "code.sh", slot="one").text == "slot\n"
    assert box.go("echo $1", "code.sh").text == "main\n"
    assert (box.run / "one/stdout").read_text() == "slot\n"


def test_a_slot_starts_with_the_defaults(box):
    (box.run / "args").write_text("main\n")
    (box.run / "new").mkdir()
    for name, text in DEFAULTS.items():
        assert (box.run / "new" / name).read_text() == text
    assert (box.run / "new/stdout").read_text() == "" and (box.run / "new/status").read_text() == "none\n"


def test_a_slot_can_be_removed_and_made_again(box):
    (box.run / "s").mkdir()
    box.go("echo x", "code.sh", slot="s")
    sh(["rm", "-rf", box.run / "s"]).ok()
    assert "s" not in os.listdir(box.run)
    (box.run / "s").mkdir()
    assert (box.run / "s/stdout").read_text() == ""
    (box.run / "s").rmdir()


def test_a_waiting_reader_of_a_removed_slot_ends(box):
    from helpers import until_waiting

    (box.run / "s").mkdir()
    box.start("import time; print('READY', flush=True); time.sleep(2)", slot="s")
    reader = spawn(["cat", box.run / "s/stdout"])
    until_waiting(reader)
    (box.run / "s").rmdir()
    finish(reader)  # with the output or an error: but it ends
    assert box.go("echo ok", "code.sh").text == "ok\n"


@pytest.mark.parametrize(
    "name,code",
    [
        ("stdout", errno.EEXIST),
        ("args", errno.EEXIST),
        ("-x", errno.EINVAL),
        ("a b", errno.EINVAL),
    ],
)
def test_a_slot_with_a_bad_name_is_refused(box, name, code):
    expect_errno(code, os.mkdir, box.run / name)


def test_a_slot_named_like_code_is_refused(box):
    try:
        os.mkdir(box.run / "code.py")
    except OSError as e:
        assert e.errno in (errno.EINVAL, errno.EEXIST)
    else:
        raise AssertionError("mkdir run/code.py must not make a folder where a save belongs")
    assert box.go("print(1)").text == "1\n"


def test_slots_do_not_nest(box):
    (box.run / "s").mkdir()
    expect_errno(errno.EPERM, os.mkdir, box.run / "s/t")


def test_a_slot_cannot_be_renamed(box):
    (box.run / "s").mkdir()
    expect_errno(errno.EPERM, os.rename, box.run / "s", box.run / "t")


def test_workspace_is_shared_by_the_slots(box):
    (box.run / "s").mkdir()
    box.go("echo from-s > f", "code.sh", slot="s").ok()
    assert box.go("cat f", "code.sh").text == "from-s\n"
    wait_for(lambda: (box.ws / "f").exists(), "f")


# ---- policy ----


def test_policy_refuses_code_at_the_write_with_eacces_and_a_reason(fresh_mnt):
    m = fresh_mnt(config={"policy": {"deny": ["rm +-rf +/", "BITCOIN"]}})
    m.allow("EACCES", "policy", "denied")
    box = m.box()
    for text in ("rm -rf /\n", "echo bitcoin\n"):
        with open(box.run / "code.sh", "wb", 0) as f:
            expect_errno(errno.EACCES, f.write, text.encode())
        assert "polic" in box.error()
        (box.run / "x.tmp").write_text(text)
        expect_errno(errno.EACCES, os.rename, box.run / "x.tmp", box.run / "code.sh")
        os.unlink(box.run / "x.tmp")
    done = sh(f"echo 'rm -rf /' > {box.run}/code.sh")
    assert done.rc == 1 and b"Permission denied" in done.err
    assert started(box) == 0
    assert box.go("echo fine", "code.sh").text == "fine\n"
