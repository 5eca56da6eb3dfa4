"""Reads targets of the command line: `CLUSTER/BINDING`, or `CLUSTER/plural.group`. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from reconciler.core.errors import ConfigError
from reconciler.fleet import wording
from reconciler.fleet.values import Fleet, Unit, UnitKey
from reconciler.planning.changes import Change


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """An app cluster, and the name of a Binding or of a unit (`plural.group`) in it."""

    cluster: str
    name: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.name}"

    def means(self, unit: UnitKey, binding: str) -> bool:
        """Tell whether this names a unit, by itself or by its Binding."""
        return unit.cluster == self.cluster and self.name in (unit.name, binding)


def parse(text: str) -> Target:
    """Return what `text` names. Raises ConfigError where it has another form."""
    cluster, _, name = text.partition("/")
    if not cluster or not name or "/" in name:
        hint = "As shop-eu-1/orders-db, or shop-eu-1/postgresqlinstances.anynines.com"
        raise ConfigError(f"{wording.quoted(text)} is not CLUSTER/BINDING", hint=hint)
    return Target(cluster, name)


def in_files(fleet: Fleet, target: Target) -> tuple[Unit, ...]:
    """Return the units of that name that the files want, in order."""
    return tuple(
        fleet.units[key]
        for key in sorted(fleet.units)
        if target.means(key, fleet.units[key].binding)
    )


def in_plan(changes: Iterable[Change], target: Target) -> tuple[UnitKey, ...]:
    """Return the units of that name that a plan speaks of, in order."""
    return tuple(
        sorted(
            {
                change.unit
                for change in changes
                if change.unit is not None and target.means(change.unit, change.subject)
            }
        )
    )


def unknown(target: Target, known: Collection[Target]) -> ConfigError:
    """Return the error of a target that is neither in the files nor live.

    `known` are the targets there are; the nearest of them is the hint.
    """
    clusters = {one.cluster for one in known}
    if target.cluster not in clusters:
        hint = wording.nearest(target.cluster, clusters)
        return ConfigError(f"there is no cluster {wording.quoted(target.cluster)}", hint=hint)
    there = {one.name for one in known if one.cluster == target.cluster and one.name}
    message = f"{wording.quoted(target.name)} is neither in the files nor live in {target.cluster}"
    return ConfigError(message, hint=wording.nearest(target.name, there))


def known(
    fleet: Fleet, changes: Iterable[Change] = (), more: Iterable[UnitKey] = ()
) -> frozenset[Target]:
    """Return all targets of the files, of a plan and of `more` units.

    A cluster in which nothing is bound is there with the name "".
    """
    found = {Target(name, "") for name in fleet.clusters}
    for key, unit in fleet.units.items():
        found |= {Target(key.cluster, unit.binding), Target(key.cluster, key.name)}
    for change in changes:
        found.add(Target(change.cluster, ""))
        if change.unit is not None:
            found |= {
                Target(change.cluster, change.subject),
                Target(change.cluster, change.unit.name),
            }
    return frozenset(found | {Target(key.cluster, key.name) for key in more})
