"""Patterns for paths. T26: thousands of them cost one pass over the files."""

import time

import pytest

from reconciler.fleet import base_model
from reconciler.fleet.files import Patterns
from reconciler.fleet.load import load
from tests.support.fleet_texts import BINDING, GOOD, POLICY, tree

MATCHES = {
    "a name": ("a.yaml", "a.yaml", True),
    "a star": ("*.yaml", "a.yaml", True),
    "a star stays in one folder": ("*.yaml", "a/b.yaml", False),
    "a question mark": ("?.yaml", "a.yaml", True),
    "a set": ("[ab].yaml", "b.yaml", True),
    "folders": ("a/*/c.yaml", "a/b/c.yaml", True),
    "any number of folders": ("a/**/c.yaml", "a/x/y/c.yaml", True),
    "no folder": ("a/**/c.yaml", "a/c.yaml", True),
    "two stars twice": ("**/a/**/b", "x/a/y/z/b", True),
    "everything below": ("a/**", "a/b/c", True),
    "but not the folder itself": ("a/**", "a", False),
    "elsewhere": ("a/**", "b/a/c", False),
    "case counts": ("A.yaml", "a.yaml", False),
    "a dot is not matched by a star": ("*", ".a", False),
    "nor by two": ("**/config", ".git/config", False),
    "but where it is written": (".github/*.yaml", ".github/a.yaml", True),
}


@pytest.mark.parametrize(("pattern", "path", "want"), MATCHES.values(), ids=MATCHES.keys())
def test_matches(pattern, path, want):
    assert base_model.pattern_problem(pattern) == ""
    assert Patterns([pattern]).matches(path) is want


REFUSED = {
    "nothing": ("", "is empty"),
    "an absolute path": ("/etc/passwd", "is absolute"),
    "a drive": ("C:/x", "is absolute"),
    "a parent": ("a/../../b", "leaves the repository"),
    "a backslash": ("a\\b", "holds a control character or a backslash"),
    "a NUL": ("a\0b", "holds a control character or a backslash"),
    "an escape sequence": ("a\x1b[31m", "holds a control character or a backslash"),
    "what is not UTF-8": ("a\udcff", "holds a control character or a backslash"),
    "an empty name": ("a//b", "holds an empty name"),
    "a dot": ("./a", "holds an empty name or a `.`"),
}


@pytest.mark.parametrize(("path", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_paths_that_are_refused(path, says):
    assert base_model.path_problem(path).startswith(says)
    assert base_model.pattern_problem(path).startswith(says)


def test_two_stars_stand_alone():
    assert "**" in base_model.pattern_problem("a**/b")


def test_a_pattern_of_many_stars_takes_no_time():
    pattern = "/".join(["**", "*a*a*a*a*a*b"] * 8)
    assert not Patterns([pattern]).matches("/".join(["a" * 200] * 40))


INCLUDES, FILES = 2_000, 1_000
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
    """Five times sooner than one by one, which is tried for one file in a hundred."""
    texts = [glob.format(n=n) for n in range(INCLUDES)]
    began = time.process_time()
    patterns = Patterns(texts)
    for path in PATHS:
        patterns.hits(path)
    together = time.process_time() - began
    singles, began = [Patterns([text]) for text in texts], time.process_time()
    for path in PATHS[::100]:
        for one in singles:
            one.hits(path)
    assert together < (time.process_time() - began) * 100 / 5


def test_paths_of_policies():
    paths = ", ".join(f"'bindings/{n}*/**'" for n in range(INCLUDES))
    files = {
        f"bindings/{n}.yaml": BINDING.replace("name: db", f"name: b{n}").replace("prod", f"p{n}")
        for n in range(FILES)
    }
    policy = POLICY.replace("'bindings/*'", paths)
    began = time.process_time()
    load(tree({**GOOD, **files, "policies/p.yaml": policy}))
    assert time.process_time() - began < 6


def test_each_pattern_is_known_by_its_number():
    patterns = Patterns(["a/*", "a/b", "**", "a/**", "b", "a/b"])
    assert patterns.hits("a/b") == {0, 1, 2, 3, 5}
    assert patterns.hits("b") == {2, 4}
    assert patterns.hits(".b") == set()
    assert Patterns(["**"], dots=True).hits(".a/.b") == {0}
