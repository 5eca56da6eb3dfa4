"""How much one side has lost of what both should have."""

from collections.abc import Collection, Iterator

from konnector import service_views
from konnector.both_sides import BothSides
from reconciler.core.refs import ObjectKey


def orphans(sides: BothSides, index: str, besides: Collection[ObjectKey] = ()) -> tuple[int, int]:
    """Count the copies under an index of their names that lack their origin, and all copies.

    What is `besides`, by its place in the app cluster, and no longer there counts as both.
    """
    lost = total = 0
    gone = set(besides)
    for app, recent in sides.all().items():
        origins = set(sides.view.store.names(app))
        copies = recent.view.store.values(index)
        lost += sum(one not in origins for one in copies)
        total += len(copies)
        if gone:
            gone.difference_update(ObjectKey(app, one) for one in copies)
    return lost + len(gone), total + len(gone)


def bereft(
    sides: BothSides,
    index: str,
    *,
    leaving: str,
    besides: Collection[ObjectKey],
    without: Collection[ObjectKey],
) -> tuple[int, int]:
    """Count the claims under an index of their keys that lack their copy, and all of them.

    What is `besides` counts as lost though it has a copy. What is `without` does not count. Those
    under the index `leaving` have lost nothing, and count as long as they have a copy.
    """
    lost, total = 0, sum(has_copy for _, has_copy in _claims(sides, leaving))
    for place, has_copy in _claims(sides, index):
        if place not in without:
            total += 1
            lost += not has_copy or place in besides
    return lost, total


def bereft_places(
    sides: BothSides, index: str, *, without: Collection[ObjectKey]
) -> list[ObjectKey]:
    """Return the places of the claims under an index of their keys that lack their copy."""
    return [
        place for place, has_copy in _claims(sides, index) if not has_copy and place not in without
    ]


def _claims(sides: BothSides, index: str) -> Iterator[tuple[ObjectKey, bool]]:
    """Yield each claim whose other side was seen, and whether it has a copy there."""
    keys = sides.view.store.values(index)
    if not keys:
        return
    copies = {
        app: set(recent.view.store.values(service_views.NAME))
        for app, recent in sides.all().items()
    }
    for key in keys:
        place = ObjectKey(*key.split("/", 1))
        there = copies.get(place.namespace)
        if there is not None:
            yield place, place.name in there


def copies_in(sides: BothSides, index: str, app_namespace: str) -> list[ObjectKey]:
    """Return the places of the copies under an index that belong to an app namespace."""
    recent = sides.all().get(app_namespace)
    names = () if recent is None else recent.view.store.values(index)
    return [ObjectKey(app_namespace, one) for one in names]
