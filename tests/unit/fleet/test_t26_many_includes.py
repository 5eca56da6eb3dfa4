"""T26: thousands of includes and paths of Policies cost one pass over the files."""

import time

import pytest

from reconciler.fleet.globs import Patterns
from reconciler.fleet.load import load
from tests.support.fleet_texts import BINDING, GOOD, POLICY, tree

INCLUDES, FILES = 2_000, 1_000
# Of the CPU, on a busy machine; one by one they took 4 s on an idle one, and 20 s on that.
SECONDS = 3.0
KINDS = {
    "stars in names": "b/**/app-{n:04}*.yaml",
    "folders": "b/team-{n}/*.yaml",
    "stars in folders": "b/*/x{n}*.yaml",
    "two stars twice": "**/{n}*/**/*.yaml",
    "stars on both sides": "**/*{n}*.yaml",
}
PATHS = [f"b/team-{n % 50}/app-{n:04}.yaml" for n in range(FILES)]


@pytest.mark.parametrize("glob", KINDS.values(), ids=KINDS.keys())
def test_includes(glob):
    began = time.process_time()
    patterns = Patterns(glob.format(n=n) for n in range(INCLUDES))
    for path in PATHS:
        patterns.hits(path)
    assert time.process_time() - began < SECONDS


def test_paths_of_policies():
    paths = ", ".join(f"'bindings/{n}*/**'" for n in range(INCLUDES))
    files = {
        f"bindings/{n}.yaml": BINDING.replace("name: db", f"name: b{n}").replace("prod", f"p{n}")
        for n in range(FILES)
    }
    policy = POLICY.replace("'bindings/*'", paths)
    began = time.process_time()
    load(tree({**GOOD, **files, "policies/p.yaml": policy}))
    assert time.process_time() - began < SECONDS + 3


def test_each_pattern_is_known_by_its_number():
    patterns = Patterns(["a/*", "a/b", "**", "a/**", "b", "a/b"])
    assert patterns.hits("a/b") == {0, 1, 2, 3, 5}
    assert patterns.hits("b") == {2, 4}
    assert patterns.hits(".b") == set()
    assert Patterns(["**"], dots=True).hits(".a/.b") == {0}
