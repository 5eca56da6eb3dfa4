"""Reads which units of an app cluster are being released, as an annotation remembers.

A unit's objects go one by one, and after the first of them nothing else tells that the rest is
still to do. So the space, or the AppClusterBinding, carries the annotation `leaving` from before
the first step until after the last (mapping.md 9).
"""

from collections.abc import Mapping

from reconciler.core import keys
from reconciler.core.manifest import Manifest, annotations_of
from reconciler.fleet.values import DeletionPolicy, read_unit_policies


def remembered(home: Manifest | None) -> Mapping[str, DeletionPolicy]:
    """Return the units (`plural.group`) that are being let go, and how each."""
    return read_unit_policies("" if home is None else annotations_of(home).get(keys.LEAVING, ""))
