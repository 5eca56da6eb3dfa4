"""Errors: each tells what, where, what next; and whether to retry is data."""

import inspect
import re

import pytest

from reconciler.core import errors
from reconciler.core.errors import ClusterError, ConfigError, HostError, KlutchError, Retry
from reconciler.core.refs import CONFIG_MAP, Ref

REF = Ref("shop", CONFIG_MAP, "ns", "x")

SENTENCES = {
    "what has no name yet": (
        ClusterError("no connection in time", ref=Ref("shop", CONFIG_MAP, "", ""), verb="create"),
        "shop: create ConfigMap: no connection in time",
    ),
    "config with a place": (ConfigError("bad", where="a.yaml:3:1"), "a.yaml:3:1: bad"),
    "config with a hint": (
        ConfigError("bad", where="--server", hint="Give a URL"),
        "--server: bad. Give a URL",
    ),
    "host": (HostError("port 80 is taken"), "port 80 is taken"),
    "host with a hint": (HostError("no Go", hint="Install it"), "no Go. Install it"),
    "cluster": (
        ClusterError("timed out", ref=REF, verb="get"),
        "shop: get ConfigMap ns/x: timed out",
    ),
    "a write without an answer": (
        ClusterError("cut", ref=REF, verb="create", outcome_unknown=True),
        "shop: create ConfigMap ns/x: cut (the write may have happened)",
    ),
}


@pytest.mark.parametrize(("error", "want"), SENTENCES.values(), ids=SENTENCES.keys())
def test_sentences(error, want):
    assert str(error) == want


def problem(path, line=1, message="x is required", **more):
    return errors.Problem(errors.Origin(path, line, 1), "missing-field", message, **more)


MANY = [problem(f"clusters/edge-{n:03}.yaml", 9) for n in range(200)]
ALIKE = {
    "none": ([], []),
    "a few stay apart": (MANY[:3], [(one, 0) for one in MANY[:3]]),
    "many are one": (MANY, [(MANY[0], 199)]),
    "another message, hint or severity is another problem": (
        [
            *MANY,
            problem("clusters/edge-100.yaml", 1, "y is required"),
            problem("clusters/edge-100.yaml", 9, hint="Name it"),
            problem("clusters/edge-100.yaml", 9, severity=errors.Severity.WARNING),
        ],
        [
            (MANY[0], 199),
            (problem("clusters/edge-100.yaml", 1, "y is required"), 0),
            (problem("clusters/edge-100.yaml", 9, severity=errors.Severity.WARNING), 0),
            (problem("clusters/edge-100.yaml", 9, hint="Name it"), 0),
        ],
    ),
}


@pytest.mark.parametrize(("problems", "want"), ALIKE.values(), ids=ALIKE.keys())
def test_problems_that_are_alike(problems, want):
    found = errors.alike(errors.in_order(problems))
    assert [(first, len(more)) for first, more in found] == want


def test_many_problems_that_are_alike_are_one_line():
    (line,) = str(errors.InvalidRepository(MANY)).splitlines()
    assert line == (
        "clusters/edge-000.yaml:9:1: x is required [missing-field] (the same in 199 more places)"
    )


def test_a_cluster_error_keeps_the_facts():
    error = errors.Unreachable(
        "busy", ref=REF, verb="list", status=429, reason="TooManyRequests", retry_after=2.5
    )
    assert (error.cluster, error.ref, error.verb) == ("shop", REF, "list")
    assert (error.status, error.reason, error.retry_after) == (429, "TooManyRequests", 2.5)
    assert not error.outcome_unknown
    assert error.message == "busy"


# ├─ NAME   RETRY   text; children of Conflict inherit theirs.
DRAWN = re.compile(r"^[\u2502 ]*[\u251c\u2514]\u2500 (\w+) +(NOW|LATER|NEVER)?", re.MULTILINE)


def test_the_tree_is_as_drawn():
    tree = dict(DRAWN.findall(inspect.getdoc(errors) or ""))
    classes = {
        name: each
        for name, each in vars(errors).items()
        if inspect.isclass(each) and issubclass(each, KlutchError) and each is not KlutchError
    }
    assert set(tree) == set(classes)
    for name, retry in tree.items():
        if retry:
            assert classes[name].retry is Retry[retry], name


def test_what_inherits_a_retry():
    assert KlutchError.retry is Retry.NEVER
    for error in (errors.AlreadyExists, errors.Missing, errors.Replaced):
        assert issubclass(error, errors.Conflict)
        assert error.retry is Retry.NOW
