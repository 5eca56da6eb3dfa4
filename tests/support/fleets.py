"""Fleets as values, for tests that are not about files."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from reconciler.core.errors import Origin
from reconciler.fleet.values import (
    Access,
    AppCluster,
    Claim,
    ControlPlane,
    DeletionPolicy,
    Fleet,
    Guards,
    Konnector,
    Mode,
    Owner,
    Unit,
    UnitKey,
)

DATABASES: Final = ("shop.example", "databases")
NO_LABELS: Final[Mapping[str, str]] = {}


def control_plane(name="eu", mode=Mode.DIRECT, **more: Any) -> ControlPlane:
    values: dict[str, Any] = {"namespace": "klutch-fleet"}
    return ControlPlane(
        name=name,
        origin=Origin(f"controlplanes/{name}.yaml", 1, 1),
        access=Access(context=f"cp-{name}"),
        mode=mode,
        **(values | more),
    )


def app_cluster(name="shop", control_plane="eu", **more: Any) -> AppCluster:
    values: dict[str, Any] = {
        "labels": NO_LABELS,
        "konnector": Konnector(),
        "app_cluster_binding": ("klutch-fleet", name),
    }
    return AppCluster(
        name=name,
        origin=Origin(f"clusters/{name}.yaml", 1, 1),
        access=Access(context=name),
        control_plane=control_plane,
        **(values | more),
    )


def claim(resource="secrets", owner=Owner.PROVIDER, **more: Any) -> Claim:
    values: dict[str, Any] = {
        "group": "",
        "version": "v1",
        "names": ("*",),
        "namespaces": ("*",),
        "labels": (),
        "accepted": True,
        "origin": Origin("bindings/orders-db.yaml", 6, 5),
    }
    return Claim(resource=resource, owner=owner, **(values | more))


def unit(cluster="shop", resource=DATABASES, **more: Any) -> Unit:
    values: dict[str, Any] = {
        "binding": "orders-db",
        "origin": Origin("bindings/orders-db.yaml", 1, 1),
        "template": "",
        "parameters": {},
        "claims": (claim(),),
        "deletion_policy": DeletionPolicy.RELEASE,
        "depends_on": (),
        "labels": NO_LABELS,
    }
    return Unit(key=UnitKey(cluster, *resource), **(values | more))


def fleet(
    *,
    control_planes: Iterable[ControlPlane] = (control_plane(),),
    clusters: Iterable[AppCluster] = (app_cluster(),),
    units: Iterable[Unit] = (unit(),),
    guards: Guards | None = None,
) -> Fleet:
    return Fleet(
        name="acme",
        origin=Origin("fleet.yaml", 1, 1),
        guards=guards or Guards(),
        control_planes={one.name: one for one in control_planes},
        clusters={one.name: one for one in clusters},
        units={one.key: one for one in units},
        digest="d",
        revision="",
    )
