"""Which clusters and which name a sandbox has: adding, refusing to lose, new ports, the file."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klutchctl.sandbox import lifecycle, state
from klutchctl.sandbox.state import (
    Component,
    Layout,
    Member,
    Role,
    Services,
    State,
    Wanted,
    layout_of,
)
from reconciler.core.errors import ConfigError, HostError
from tests.support.fleet_texts import cluster, control_plane, document
from tests.support.worlds import fleet_of

CP = Member("control-plane", Role.CONTROL_PLANE, 20003)
APP = Member("app-1", Role.APP_CLUSTER, 20004)
REMOVAL = "`klutchctl sandbox down --delete --name it` removes it"
ONE = State(20001, 20002, (CP, APP))


def counting_from(first):
    numbers = iter(range(first, first + 1000))
    return lambda count: [next(numbers) for _ in range(count)]


def test_a_new_sandbox_gets_ports_for_etcd_and_for_each_cluster():
    assert state.extend(None, state.app_clusters(1), new_ports=counting_from(20001)) == ONE


def test_more_clusters_leave_the_ports_of_the_old_ones_alone():
    got = state.extend(ONE, state.app_clusters(2), new_ports=counting_from(30000))
    assert got == State(20001, 20002, (CP, APP, Member("app-2", Role.APP_CLUSTER, 30000)))


def test_control_planes_come_first_whatever_the_order_of_the_fleet():
    fleet = (Wanted("shop", Role.APP_CLUSTER), Wanted("eu", Role.CONTROL_PLANE))
    got = state.extend(None, fleet, new_ports=counting_from(20001))
    assert [member.context for member in got.members] == ["eu", "shop"]


LACKING = {
    "the same clusters lack nothing": (state.app_clusters(1), ()),
    "more clusters lack nothing": (state.app_clusters(5), ()),
    "fewer clusters lack the last": (state.app_clusters(0), (APP,)),
    "another fleet lacks all": ((Wanted("eu", Role.CONTROL_PLANE),), (CP, APP)),
    "a cluster in another role is not the same": (
        (Wanted("control-plane", Role.CONTROL_PLANE), Wanted("app-1", Role.CONTROL_PLANE)),
        (APP,),
    ),
}


@pytest.mark.parametrize(("wanted", "lacking"), LACKING.values(), ids=LACKING.keys())
def test_lacking(wanted, lacking):
    assert state.lacking(ONE, wanted) == lacking


def test_only_taken_ports_are_replaced():
    got = state.with_new_ports(ONE, [20002, 20004], new_ports=counting_from(25000))
    assert got.ports == (20001, 25000, 20003, 25001)


contexts = st.text(min_size=1, max_size=80)


@given(st.lists(contexts, unique=True, max_size=8))
def test_the_file_gives_back_what_was_written(names):
    members = tuple(Member(name, Role.APP_CLUSTER, 20000 + i) for i, name in enumerate(names))
    written = State(1, 2, members)
    assert lifecycle.parse(lifecycle.dump(written), source="state.json", removal=REMOVAL) == written


@given(st.lists(contexts, unique=True, min_size=2, max_size=8))
def test_ids_are_safe_file_names_and_differ_where_contexts_differ(names):
    ids = [Member(name, Role.APP_CLUSTER, 1).id for name in names]
    assert len(set(ids)) == len(ids)
    for each in ids:
        assert set(each) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")
        assert each.strip(".") != ""
        assert len(each) <= 60


SERVED = Services("/fleet/services", (Component.POSTGRESQL,), ("operator",), {"postgresql": 20005})
WITH_SERVICES = State(20001, 20002, (CP, APP), SERVED)


PLAIN, SERVING = lifecycle.dump(ONE), lifecycle.dump(WITH_SERVICES)
UNUSABLE = {
    # what replaces which part of a file, or the whole of it
    "half a file": (PLAIN[40:], b""),
    "another JSON": (PLAIN, b"[]"),
    "a missing field": (PLAIN, b'{"version": 1}'),
    "any free port": (b"20004", b"0"),
    "an unknown component": (b'"postgresql"\n', b'"oracle"\n'),
    "ports of services that are none": (b"20005", b"-1"),
}


@pytest.mark.parametrize(("old", "new"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_an_unusable_file_is_named_with_a_way_out(old, new):
    whole = PLAIN if old in PLAIN else SERVING
    assert old in whole
    with pytest.raises(
        HostError, match=r"^/some/state\.json is not .*state.*down --delete"
    ) as caught:
        lifecycle.parse(whole.replace(old, new), source="/some/state.json", removal=REMOVAL)
    assert "--name" in caught.value.hint


def test_a_newer_format_is_called_one():
    with pytest.raises(HostError, match=r"has the format 6.*--name"):
        lifecycle.parse(b'{"version": 6}', source="/some/state.json", removal=REMOVAL)


FLEET = document("Fleet", "acme", "{}")
PLANE = "---\n" + control_plane(at="cp-eu")
SHOP = "---\n" + cluster(at="shop-1")


def test_clusters_and_their_roles():
    assert state.of_fleet(fleet_of(fleet=FLEET + SHOP + PLANE)) == (
        Wanted("cp-eu", Role.CONTROL_PLANE),
        Wanted("shop-1", Role.APP_CLUSTER),
    )


PROBLEMS = {
    "another way of access": (
        FLEET + PLANE.replace("kubeconfigContext: cp-eu", "inCluster: true"),
        "fleet.yaml:8:18: eu is not reached by a kubeconfig context",
    ),
    "one context twice": (
        FLEET + PLANE + SHOP.replace("shop-1", "cp-eu"),
        "the context 'cp-eu' is that of eu already",
    ),
    "no control plane": (FLEET, "the fleet has no ControlPlane document"),
}


@pytest.mark.parametrize(("text", "says"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_where_a_sandbox_cannot_stand_in(text, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        state.of_fleet(fleet_of(fleet=text))


LAYOUT = Layout(Path("/state/klutchctl/sandbox/default"))
NAMES = {
    "a word": ("default", True),
    "a dash inside": ("ci-7", True),
    "a path": ("../x", False),
    "nothing": ("", False),
    "capitals": ("A", False),
    "a leading dot, as locks have": (".default.lock", False),
    "too long": ("x" * 41, False),
    "a line break": ("a\n", False),
}


@pytest.mark.parametrize(("name", "usable"), NAMES.values(), ids=NAMES.keys())
def test_sandbox_names(name, usable):
    if usable:
        assert layout_of(name, state_home=Path("/state")).root == LAYOUT.root.parent / name
    else:
        with pytest.raises(ConfigError, match="--name"):
            layout_of(name, state_home=Path("/state"))
