"""Parts of a fleet: a shard with its share of the deletes, and a fleet that is suspended."""

import pytest

from reconciler.core.errors import ConfigError
from reconciler.core.live import Address, ClusterState, Live
from reconciler.fleet.load import shard, suspended
from reconciler.fleet.values import Guards
from reconciler.planning import prune_clusters
from tests.support import fleets


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
