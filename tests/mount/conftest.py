# SPDX-License-Identifier: Apache-2.0
"""Fixtures and rules of the mount tests: see helpers.py for the environment variables.

mnt         a daemon for the tests of one module
box         a fresh sandbox of it for one test
fresh_mnt   makes daemons of a test's own: fresh_mnt(config={...}, options=[...], limits={...})

A daemon has to end with status 0, without an error in its log and without leaving processes, mounts or cgroups; a test
that provokes errors says which: mnt.allow("regex")."""
import os
import signal
import sys
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import pytest  # noqa: E402

import helpers  # noqa: E402

helpers.os.umask(0o022)


def pytest_report_header(config):
    return f"sbxfs: {helpers.SBXFS}, {'root' if helpers.ROOT else 'uid ' + str(os.geteuid())}, scale {helpers.SCALE}"


# ---- every test has a bound ----


class Hang(Exception):
    pass


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """SIGALRM ends a hanging test. Should the test's own thread be stuck in the mount in spite of that,
    the watchdog kills the daemons by their pids: then every call returns."""
    mark = item.get_closest_marker("bound")
    seconds = (mark.args[0] if mark else 60) * helpers.SLOW

    def on_alarm(*_):
        raise Hang(f"the test takes longer than {seconds:.0f} s")

    def on_stuck():
        for m in list(helpers.MOUNTS):
            if m.alive():
                print(f"\nstuck in {m.path}: killing the daemon {m.pid}\n{m.stacks()}", file=sys.__stderr__)
                m.proc.kill()

    old = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds, 5)
    dog = threading.Timer(seconds + 20, on_stuck)
    dog.daemon = True
    dog.start()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        dog.cancel()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        for m in helpers.MOUNTS:
            report.sections.append((f"log of {m.path}", m.log()[-1500:]))
    if report.skipped and helpers.STRICT and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        key = reason.partition("explained: ")[2].partition(":")[0]
        if key not in helpers.EXPLAINED:
            report.outcome = "failed"
            report.longrepr = f"SBX_STRICT=1: skipped without an explanation: {reason}"


# ---- fixtures ----


@pytest.fixture(scope="session", autouse=True)
def binary():
    if not os.access(helpers.SBXFS, os.X_OK):
        pytest.exit(f"no binary {helpers.SBXFS}: build it, or set SBXFS", 1)


def close(mounts):
    """Stop them all, then complain about all."""
    problems = []
    for m in reversed(mounts):
        try:
            problems += [f"{m.path}: {p}" for p in m.stop()]
        except Exception as e:
            problems.append(f"{m.path}: {e}")
        finally:
            m.remove()
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


@pytest.fixture(scope="module")
def mnt():
    m = helpers.Mount()
    try:
        m.start()
        yield m
    finally:
        close([m])


@pytest.fixture
def box(mnt):
    if not mnt.alive():
        died = mnt.proc.wait() if mnt.proc else "?"
        mnt.force_unmount()
        mnt.start()
        mnt.allow("")
        pytest.fail(f"the daemon had ended ({died}) before this test; it was started again\n{mnt.log()[-3000:]}")
    b = mnt.box()
    yield b
    if b.path.exists():
        mnt.note(b)
        b.delete()


@pytest.fixture
def fresh_mnt():
    mounts = []

    def make(start=True, **kw):
        m = helpers.Mount(**kw)
        mounts.append(m)
        return m.start() if start else m

    try:
        yield make
    finally:
        close(mounts)


@pytest.fixture
def tmp():
    """A folder outside of the mount, on another file system than it."""
    import pathlib
    import shutil
    import tempfile

    path = pathlib.Path(tempfile.mkdtemp(prefix="sbxfs-tmp-", dir=helpers.TMP))
    yield path
    shutil.rmtree(path, onerror=helpers.make_removable)
