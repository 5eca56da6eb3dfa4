"""CI runs failed tests once more: `.ci/run` in a throwaway project."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).parents[3]

MAKEFILE: Final = """
compiled:
test:
\ttest ! -e unformatted
\t.venv/bin/pytest -n $(PROCESSES) $(ARGS)
"""
PASSES: Final = "def test_passes(): pass\n"
FAILS: Final = "def test_fails(): assert 1 == 2\n"
FLAKY: Final = """
import pytest
from pathlib import Path

@pytest.mark.parametrize("case", ["a b", "c"])
def test_is_flaky(case):
    assert was_here("{}" + case)

def was_here(name):
    mark = Path(__file__).with_name(name + ".mark")
    try:
        return mark.exists()
    finally:
        mark.touch()
"""
SKIPS_LATER: Final = FLAKY.replace("assert was_here(", "pytest.skip() if was_here(").replace(
    "+ case)", "+ case) else pytest.fail()"
)
IN_FIXTURE: Final = """
import pytest

@pytest.fixture
def broken():
    {}

def test_with_it(broken): pass
"""


class Project:
    """A project with `.ci/run`, and a Makefile that runs its tests."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / ".ci").mkdir()
        (home / ".ci" / "run").write_text((REPOSITORY / ".ci" / "run").read_text())
        (home / ".venv").symlink_to(sys.prefix)
        (home / "Makefile").write_text(MAKEFILE)
        (home / "pytest.ini").write_text("[pytest]\naddopts = -ra -p xdist.plugin\n")

    def run(self, *arguments: str, processes: int = 0, **tests: str) -> tuple[int, list[str]]:
        for name, text in tests.items():
            (self.home / f"test_{name}.py").write_text(text.replace("{}", name))
        done = subprocess.run(
            ["bash", ".ci/run", *arguments],
            cwd=self.home,
            env={
                **os.environ,
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PROCESSES": str(processes),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout.splitlines()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


PAIR: Final = ["test_flaky.py::test_is_flaky[a b]", "test_flaky.py::test_is_flaky[c]"]
MARKED: Final = FLAKY[FLAKY.index("def was_here") :] + "from pathlib import Path\n" + IN_FIXTURE
RUNS: Final[dict[str, tuple[dict[str, str], bool, list[str]]]] = {
    # the tests, whether the run is green, and which are named as flaky
    "flaky in a test, in a setup and in a teardown": (
        {
            "flaky": FLAKY,
            "passes": PASSES,
            "setup": MARKED.replace("    {}\n", "    assert was_here('setup')\n"),
            "teardown": MARKED.replace("    {}\n", "    yield; assert was_here('teardown')\n"),
        },
        True,
        [*PAIR, "test_setup.py::test_with_it", "test_teardown.py::test_with_it"],
    ),
    "what fails twice": (
        {
            "fails": FAILS,
            "flaky": FLAKY,
            "setup": IN_FIXTURE.replace("{}", "assert False"),
            "teardown": IN_FIXTURE.replace("{}", "yield; assert False"),
        },
        False,
        PAIR,
    ),
    "skipped the second time": ({"skips": SKIPS_LATER}, False, []),
    "no collection": ({"flaky": FLAKY, "a": "import nothing_of_this_name\n"}, False, []),
    "a crash": ({"flaky": FLAKY, "a": "import os\ndef test_it(): os._exit(1)\n"}, False, []),
    "an interruption": (
        {"flaky": FLAKY, "a": "def test_stops(): raise KeyboardInterrupt\n"},
        False,
        [],
    ),
}


@pytest.mark.parametrize(("tests", "is_green", "flaky"), RUNS.values(), ids=RUNS.keys())
def test_a_run(
    project: Project, tests: dict[str, str], *, is_green: bool, flaky: list[str]
) -> None:
    # Processes may crash, and what several of them report has to be gathered, as in CI.
    code, lines = project.run(processes=2 if is_green or "a" in tests else 0, **tests)
    assert (code == 0) is is_green
    assert [line.removeprefix("flaky: ") for line in lines if line.startswith("flaky: ")] == flaky


def test_style_gets_no_second_chance(project: Project) -> None:
    (project.home / "unformatted").touch()
    code, lines = project.run(flaky=FLAKY)
    assert code != 0
    assert not any("test session starts" in line for line in lines)


def test_failures_of_an_earlier_run_are_forgotten(project: Project) -> None:
    project.run(fails=FAILS)
    code, lines = project.run("test_flaky.py", flaky=FLAKY)
    assert code == 0
    assert "2 passed in" in lines[-1]
