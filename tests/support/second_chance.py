"""Records which failed tests may run once more, and names those that passed then. For `.ci/run`.

Once more run tests that failed, in a fixture of theirs too, of a run that ended. What failed at
collection or with its process is no matter of timing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

_FILE: Final = "--second-chance"
_PHASES: Final = frozenset({"setup", "call", "teardown"})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_FILE, type=Path, help="file of the node ids that may run once more")


def pytest_configure(config: pytest.Config) -> None:
    file: Path = config.getoption(_FILE)
    if hasattr(config, "workerinput"):  # the process that gathers all reports decides
        return
    first = file.read_text().splitlines()
    config.pluginmanager.register(SecondRun(first) if first else FirstRun(file))


class FirstRun:
    """Writes the node ids of all failed tests, if each of them may run once more."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._failed: dict[str, None] = {}
        self._is_broken = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.when in _PHASES:
            self._failed[report.nodeid] = None  # in order, once: body and teardown may both fail
        elif report.failed:  # pytest-xdist says so that a worker is dead
            self._is_broken = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._is_broken |= report.failed

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        is_whole = exitstatus == pytest.ExitCode.TESTS_FAILED and not session.shouldfail
        if is_whole and not self._is_broken:
            self._file.write_text("".join(f"{nodeid}\n" for nodeid in self._failed))


class SecondRun:
    """Names the tests that passed now. The run is green if these are all that failed first."""

    def __init__(self, first: Sequence[str]) -> None:
        self._first = frozenset(first)
        self._passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and report.when == "call":
            self._passed.add(report.nodeid)
        elif report.failed:  # in its teardown, after its body has passed
            self._passed.discard(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._passed != self._first:  # a test that is skipped now did not pass
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid in sorted(self._passed):
            terminalreporter.write_line(f"flaky: {nodeid}")
