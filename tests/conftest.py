"""What all tests share: lanes for tests that start processes, and no skips without need in CI."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from types import ModuleType

import pytest

# A test may be skipped for these reasons and for no other one, or CI would be green without having looked.
NEEDED_SKIPS = ("needs a GPU", "../shared/data is absent", "needs root and iproute2")

# A run in the background (nohup, a script's &) ignores these, and so would every process that a test starts
# and then ends with them.
for ignored in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, signal.default_int_handler if ignored == signal.SIGINT else signal.SIG_DFL)


@functools.cache
def starts_processes(module: ModuleType) -> bool:
    """Whether a test module, or a helper under tests/ that it imports from, uses subprocess or its like."""
    return module.__name__ == "tests.processes" or any(
        value is subprocess or (helper is not None and starts_processes(helper))
        for value in vars(module).values()
        for helper in [_helper_of(value, module)]
    )


def _helper_of(value: object, module: ModuleType) -> ModuleType | None:
    """The module under tests/ from which a name was imported."""
    name = value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", ""))
    return sys.modules.get(name) if name.startswith("tests.") and name != module.__name__ else None


# Before xdist looks for the groups, which it does first of all.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start several processes go to one lane: two such tests at once would starve each other."""
    for item in items:
        module = getattr(item, "module", None)
        if item.get_closest_marker("processes") or (module is not None and starts_processes(module)):
            item.add_marker(pytest.mark.processes)
            item.add_marker(pytest.mark.xdist_group("processes"))


def needless(reason: str) -> bool:
    """Whether a test should have run."""
    told = reason.removeprefix("Skipped: ")
    return not any(told.startswith(needed) for needed in NEEDED_SKIPS)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In CI, fail where a test was skipped without need, or where nothing passed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CI") or reporter is None or hasattr(session.config, "workerinput"):
        return
    found = []
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if needless(reason):
            found.append(f"{report.nodeid}: {reason}")
    if found:
        reporter.write_line("\nskipped although CI must run it:\n  " + "\n  ".join(found), red=True)
    if found or not reporter.stats.get("passed"):
        session.exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED
