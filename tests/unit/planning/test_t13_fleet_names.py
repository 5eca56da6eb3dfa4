"""T13: a Fleet that is given another name reaches nothing of another fleet."""

from dataclasses import replace

import pytest

from klutchctl import main
from reconciler.core import keys, names
from reconciler.core.refs import NAMESPACE
from reconciler.fleet.load import load_against, load_base
from reconciler.planning import planner
from reconciler.planning.changes import Action
from tests.support import scenes
from tests.support.checkouts import Checkout
from tests.support.fleet_texts import GOOD, tree
from tests.support.scenes import (
    ACB,
    HELD,
    MODES,
    PLANE,
    WRITING,
    applied,
    binding,
    change,
    cluster,
    fleet,
    plane,
    shop,
    space_of,
)
from tests.support.worlds import World, offering


def renamed(mode="Direct", name="beta"):
    return shop(mode=mode, name=name)


@pytest.mark.parametrize("mode", MODES)
def test_a_renamed_fleet_is_blocked(mode):
    made = applied(mode=mode).plan(renamed(mode))
    assert scenes.actions(made) <= HELD
    assert scenes.guards(made) == ["foreign-fleet"]
    assert "cluster shop belongs to fleet acme" in made.held[0].message
    assert "name it acme again" in made.held[0].message


def test_so_is_all_else_that_its_files_name():
    here = applied()
    here.clusters["mall"] = []
    both = fleet(plane(), cluster(), cluster("mall"), binding(clusters="shop, mall"), name="beta")
    assert scenes.actions(here.plan(both)) <= HELD


ELSE = {
    "what was released there": (scenes.GONE, "annotations", keys.RELEASED),
    "what is being deleted": (scenes.GONE, "deletionTimestamp"),
    "a cluster of that name that is another one": ("other", "annotations", keys.APP_CLUSTER_UID),
    "a cluster that may be another one": (None, "annotations", keys.APP_CLUSTER_UID),
    "a cluster of another name": ("mall", "labels", keys.CLUSTER),
}


@pytest.mark.parametrize("row", ELSE.values(), ids=ELSE.keys())
def test_nobody_owns(row):
    here, (value, *path) = applied(), row
    change(here, PLANE, NAMESPACE, space_of(here), value, "metadata", *path)
    assert "foreign-fleet" not in scenes.guards(here.plan(renamed()))


SEARCHES = "searches"
SPACE = names.direct_space("beta", "shop")


def sharing(*, at="eu", more=""):
    """Return another fleet's files for the same app cluster, and another of its services."""
    planes = plane(), *([] if at == "eu" else [plane(at)])
    return fleet(*planes, cluster(at=at, more=more), binding(SEARCHES), name="beta")


def test_two_fleets_share_a_cluster_where_the_files_say_so():
    here = applied()
    (held,) = here.plan(sharing()).held
    assert held.guard == "foreign-fleet"
    assert f"if both are to bind shop, add `adopt: {{space: {SPACE}}}`" in held.message
    made = here.plan(sharing(more=f", adopt: {{space: {SPACE}}}"))
    assert scenes.guards(made) == []
    assert scenes.actions(made) & WRITING == {Action.CREATE}
    assert scenes.of_unit(made) == {Action.CREATE}


def test_in_the_other_mode_another_name_says_so():
    here = applied(mode=ACB)
    (held,) = here.plan(renamed(ACB)).held
    assert "if both are to bind shop, give another name to its Cluster document" in held.message
    here.clusters["store"], here.uids["store"] = here.clusters["shop"], "uid-shop"
    files = plane(mode=ACB), cluster("store"), binding(SEARCHES, clusters="store")
    made = here.plan(fleet(*files, name="beta"))
    assert scenes.guards(made) == []
    assert scenes.of_unit(made) == {Action.CREATE}


@pytest.mark.parametrize(("uid", "expected"), [("cp", ["foreign-fleet"]), ("other", [])])
def test_a_cluster_behind_another_control_plane_is_shared(uid, expected):
    here, files = applied(), sharing(at="us")
    us = World(control_plane=offering(scenes.SEARCH), plane="us").live(files).control_planes["us"]
    live = here.live(files)
    planes = {**live.control_planes, "us": replace(us, uid=uid)}
    made = planner.plan(files, replace(live, control_planes=planes))
    assert scenes.guards(made) == expected


def test_a_fleet_that_has_something_here_is_known():
    here = applied()
    here.clusters["mall"] = []
    here.apply(here.plan(fleet(plane(), cluster("mall"), binding(clusters="mall"), name="beta")))
    both = fleet(plane(), cluster(), cluster("mall"), binding(clusters="shop, mall"), name="beta")
    assert "foreign-fleet" not in scenes.guards(here.plan(both))


def test_a_cluster_that_was_not_read_owns_nothing():
    here = applied()
    here.unseen.add("shop")
    made = planner.plan(renamed(), here.live(renamed()))
    assert scenes.guards(made) == []
    assert scenes.actions(made) <= HELD


def test_a_pull_request_cannot_rename():
    base = load_base("main", tree())
    other = {"fleet.yaml": GOOD["fleet.yaml"].replace("acme", "beta")}
    found, (problem,) = load_against(base, tree(other))
    assert found is None
    assert str(problem) == (
        "fleet.yaml:3:18: the Fleet is acme in main, and beta here: what the clusters hold of beta"
        " would be taken for its own. Name it acme [fleet-renamed]"
    )


@pytest.mark.parametrize("command", ["validate", "plan"])
def test_exit_code_4_and_nobody_is_contacted(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    made = Checkout(tmp_path)
    made.write(GOOD)
    made.commit()
    made.write({"fleet.yaml": GOOD["fleet.yaml"].replace("acme", "beta")})
    assert main.run([command, "repo", "--base", "main"]) == 4
    answer = capsys.readouterr()
    assert "the Fleet is acme in main" in answer.out + answer.err
