"""What an APIServiceExport says of the app cluster (protocol-konnector.md C.5).

Connected and ConsumerInSync, and beside them all that the app cluster says of its CRD. Refuses to
know what becomes of instances; ProviderInSync is the backend's.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from reconciler.api import reports_sync
from reconciler.core import conditions, reasons
from reconciler.core.conditions import Condition
from reconciler.core.decision import NOTHING, Decision
from reconciler.core.manifest import JSON, Manifest, get_list, get_map, is_deleting, name_of
from reconciler.core.patches import merge_diff


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One APIServiceExport, whole, and what there is of its name; None where there is none.

    `binding` is the APIServiceBinding that belongs to this provider, `crd` the one in the app
    cluster, with its status. `syncing`: objects are synced for that binding, or will be.
    """

    export: Manifest = field(repr=False)
    binding: Manifest | None = field(default=None, repr=False)
    crd: Manifest | None = field(default=None, repr=False)
    syncing: bool = True


def decide(seen: Seen, *, now: datetime) -> Decision:
    """Return the status.

    The conditions of the CRD are somebody else's, so they come with their reasons and times; and
    without a CRD the last ones stay, and Ready is not summed up. So the whole list is a field.
    """
    if is_deleting(seen.export):
        return NOTHING
    held = conditions.parse(get_list(seen.export, "status", "conditions"))
    after = held
    for one in _own(seen):
        after = conditions.set_condition(after, one, now=now)
    fields: dict[str, JSON] = {}
    if seen.crd is not None:
        after = conditions.copy_conditions(after, _of_crd(seen.crd))
        after = conditions.summarize(after, now=now)
        fields = _names_and_versions(seen.export, seen.crd)
    if after != held:
        fields["conditions"] = conditions.dump(after)
    return Decision(fields=fields)


def says_connected(export: Manifest | None) -> bool:
    """Tell whether an export that stays says that its objects are synced."""
    return export is not None and not is_deleting(export) and reports_sync(export)


def _own(seen: Seen) -> Iterable[Condition]:
    if seen.binding is None or not seen.syncing:
        message = "No APIServiceBinding exists."
        yield conditions.false(reasons.BINDING_NOT_FOUND, message)
        yield conditions.false(reasons.CONSUMER_SYNC_NOT_APPLICABLE, message)
        return
    yield conditions.true(reasons.CONNECTED)
    told = conditions.parse(get_list(seen.binding, "status", "conditions"))
    in_sync = conditions.find(told, reasons.SCHEMA_IN_SYNC)
    if in_sync is None:
        message = (
            f"APIServiceBinding {name_of(seen.binding)} in the consumer cluster does not have a "
            "SchemaInSync condition."
        )
        yield conditions.false(reasons.CONSUMER_SYNC_UNKNOWN, message)
    else:
        yield replace(in_sync, type=reasons.CONSUMER_IN_SYNC, last_transition_time="", extra={})


def _of_crd(crd: Manifest) -> Iterable[Condition]:
    for one in conditions.parse(get_list(crd, "status", "conditions")):
        if one.type != conditions.READY:
            true = one.status == conditions.TRUE
            yield replace(one, severity="" if true else conditions.ERROR)


def _names_and_versions(export: Manifest, crd: Manifest) -> dict[str, JSON]:
    """Return what of it is new: what the app cluster serves, once it says so."""
    wanted: dict[str, JSON] = {
        "acceptedNames": get_map(crd, "status", "acceptedNames"),
        "storedVersions": get_list(crd, "status", "storedVersions"),
    }
    told = {key: value for key, value in wanted.items() if value}
    held = get_map(export, "status")
    return merge_diff({key: held.get(key) for key in told}, told)
