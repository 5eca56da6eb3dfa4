"""CI runs failed tests once more: `.ci/run` in a throwaway project."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).parents[3]

MAKEFILE: Final = """
test:
\ttest ! -e unformatted
\t.venv/bin/pytest -n 2 --dist loadfile $(ARGS)
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

    def run(self, *arguments: str, **tests: str) -> tuple[int, list[str]]:
        for name, text in tests.items():
            (self.home / f"test_{name}.py").write_text(text.replace("{}", name))
        done = subprocess.run(
            ["bash", ".ci/run", *arguments],
            cwd=self.home,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout.splitlines()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_run_without_failures_happens_once(project: Project) -> None:
    code, lines = project.run(passes=PASSES)
    assert code == 0
    assert "1 passed in" in lines[-1]
    assert len([line for line in lines if "test session starts" in line]) == 1
    assert any("slowest 25 durations" in line for line in lines)


def test_flaky_tests_are_named_before_the_closing_line(project: Project) -> None:
    code, lines = project.run(one=FLAKY, other=FLAKY, passes=PASSES)
    assert code == 0
    assert lines[-5:-1] == [
        "flaky: test_one.py::test_is_flaky[a b]",
        "flaky: test_one.py::test_is_flaky[c]",
        "flaky: test_other.py::test_is_flaky[a b]",
        "flaky: test_other.py::test_is_flaky[c]",
    ]
    assert "4 passed in" in lines[-1]


def test_a_test_that_fails_twice_fails(project: Project) -> None:
    code, lines = project.run(fails=FAILS, flaky=FLAKY)
    assert code != 0
    assert "1 failed, 2 passed in" in lines[-1]


def test_a_test_that_is_skipped_the_second_time_did_not_pass(project: Project) -> None:
    code, lines = project.run(skips=SKIPS_LATER)
    assert code != 0
    assert "2 skipped in" in lines[-1]


@pytest.mark.parametrize(
    "phase",
    {
        "setup": "assert was_here('fixture')",
        "teardown": "yield; assert was_here('fixture')",
    }.items(),
    ids=lambda each: each[0],
)
def test_what_is_flaky_in_a_fixture_runs_once_more(
    project: Project, phase: tuple[str, str]
) -> None:
    name, text = phase
    code, lines = project.run(**{name: FLAKY + IN_FIXTURE.replace("{}", text)})
    assert code == 0
    assert f"flaky: test_{name}.py::test_with_it" in lines


@pytest.mark.parametrize("text", ["assert False", "yield; assert False"])
def test_a_fixture_that_fails_twice_fails(project: Project, text: str) -> None:
    (project.home / "test_fixture.py").write_text(IN_FIXTURE.replace("{}", text))
    code, lines = project.run(passes=PASSES)
    assert code != 0
    assert not any(line.startswith("flaky:") for line in lines)


@pytest.mark.parametrize(
    "broken",
    {
        "collection": "import nothing_of_this_name\n",
        "crash": "import os\ndef test_crashes(): os._exit(1)\n",
        "interrupt": "def test_stops(): raise KeyboardInterrupt\n",
    }.items(),
    ids=lambda each: each[0],
)
def test_nothing_else_gets_a_second_chance(project: Project, broken: tuple[str, str]) -> None:
    name, text = broken
    (project.home / f"test_{name}.py").write_text(text)
    code, lines = project.run(flaky=FLAKY)
    assert code != 0
    assert not any("Once more" in line or line.startswith("flaky:") for line in lines)


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
