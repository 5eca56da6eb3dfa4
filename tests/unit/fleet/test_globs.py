"""Patterns for paths."""

import pytest

from reconciler.fleet import globs
from reconciler.fleet.globs import Patterns

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
    assert globs.pattern_problem(pattern) == ""
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
    assert globs.path_problem(path).startswith(says)
    assert globs.pattern_problem(path).startswith(says)


def test_two_stars_stand_alone():
    assert "**" in globs.pattern_problem("a**/b")


def test_a_pattern_of_many_stars_takes_no_time():
    pattern = "/".join(["**", "*a*a*a*a*a*b"] * 8)
    assert not Patterns([pattern]).matches("/".join(["a" * 200] * 40))
