"""Patterns for paths. T26: thousands of them cost one pass over the files."""

import time

import pytest

from reconciler.core.errors import ConfigError
from reconciler.core.live import Address, ClusterState, Live
from reconciler.fleet import base_model
from reconciler.fleet.files import Patterns
from reconciler.fleet.load import load, shard, suspended
from reconciler.fleet.values import Guards
from reconciler.planning import prune_clusters
from tests.support import fleets
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
    "a backslash": ("a\\b", "contains a control character or a backslash"),
    "a NUL": ("a\0b", "contains a control character or a backslash"),
    "an escape sequence": ("a\x1b[31m", "contains a control character or a backslash"),
    "what is not UTF-8": ("a\udcff", "contains a control character or a backslash"),
    "an empty name": ("a//b", "contains an empty name"),
    "a dot": ("./a", "contains an empty name or a `.`"),
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


def fleet(max_deletes=10, here=3, elsewhere=7):
    clusters = [
        fleets.app_cluster("shop", control_plane="eu", identity="uid-shop"),
        fleets.app_cluster("cafe", control_plane="us", identity="uid-cafe"),
    ]
    units = [fleets.unit("shop", resource=("shop.example", f"a{n}")) for n in range(here)]
    units += [fleets.unit("cafe", resource=("shop.example", f"a{n}")) for n in range(elsewhere)]
    return fleets.fleet(
        control_planes=[fleets.control_plane("eu"), fleets.control_plane("us")],
        clusters=clusters,
        units=units,
        guards=Guards(max_deletes=max_deletes),
    )


def test_a_shard_has_its_control_planes_clusters_and_units_alone():
    found = shard(fleet(), ["eu"])
    assert (*found.control_planes, *found.clusters) == ("eu", "shop")
    assert {key.cluster for key in found.units} == {"shop"}
    assert found.elsewhere == {"cafe": "uid-cafe"}


SHARES = {
    "three tenths of ten": (10, 3, 7, 3),
    "never less than one": (10, 1, 99, 1),
    "none stays none": (0, 3, 7, 0),
    "without units": (10, 0, 0, 10),
}


@pytest.mark.parametrize(("most", "here", "elsewhere", "want"), SHARES.values(), ids=SHARES.keys())
def test_the_deletes_of_a_shard_are_its_share(most, here, elsewhere, want):
    assert shard(fleet(most, here, elsewhere), ["eu"]).guards.max_deletes == want


def test_the_clusters_of_other_shards_have_not_left():
    kept = shard(fleet(), ["eu"])
    live = Live(
        {}, {}, {name: ClusterState(name, Address("", ""), {}) for name in ("cafe", "gone")}
    )
    assert prune_clusters.removed(kept, live).keys() == {"gone"}


def test_a_control_plane_that_is_not_there():
    with pytest.raises(ConfigError, match=r"no such control plane: as\. There are: eu, us"):
        shard(fleet(), ["as", "eu"])


def test_nothing_of_a_suspended_fleet_is_changed():
    found = suspended(fleet(), "moving")
    assert {one.suspended for one in found.clusters.values()} == {"moving"}
    live = Live({}, {}, {"gone": ClusterState("gone", Address("", ""), {})})
    assert prune_clusters.removed(found, live) == {}
