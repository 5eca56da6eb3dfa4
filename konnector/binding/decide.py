"""Decides the status of an APIServiceBinding, and its CRD in the app cluster.

All conditions are written at once (protocol-konnector.md C.2, H16, H31). A condition that cannot be
decided now is Unknown if it was ever set, and absent otherwise. Connected begins as False, Pending,
so that Ready is not True before the provider was read. Does not know how the provider is reached,
and what becomes of single objects.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Final, TypeAlias

from konnector.binding import crd
from konnector.binding.crd import Owner, Plan
from konnector.kubeconfig.judge import Judged
from reconciler.api import is_established
from reconciler.core import conditions, keys
from reconciler.core.conditions import Cause, Condition
from reconciler.core.decision import NOTHING, Create, Decision, Note, writes
from reconciler.core.manifest import JSON, Manifest, get_text, is_deleting, name_of, namespace_of
from reconciler.core.refs import Kind
from reconciler.core.times import format_time

# So many of one sort of trouble are named in a condition.
_LISTED: Final = 5
_OF_THE_PROVIDER: Final = (
    conditions.CONNECTED,
    conditions.HEARTBEATING,
    conditions.INFORMERS_SYNCED,
    conditions.SCHEMA_IN_SYNC,
)

_UNREAD: Final = "The service provider cluster could not be read yet."

# The cause of a problem, and a sentence about it.
Problem: TypeAlias = tuple[Cause, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """The state of a binding's provider.

    `synced`: every view of it was complete once. `late` names what is missing in the views, or
    why they are old, once that has lasted for 150 s; "" before. `silent_since` is when it answered
    last, where it does not any more; `refused_since` when it began not to take the kubeconfig's
    token. `heartbeat` is "" after one that
    was written, or was not due; else why it could not be; None before the first. Each object is
    whole, None where it is not there.
    """

    synced: bool = False
    late: str = ""
    heartbeat: str | None = None
    silent_since: datetime | None = None
    refused_since: datetime | None = None
    cluster_binding: Manifest | None = field(default=None, repr=False)
    export: Manifest | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """All that concerns one APIServiceBinding.

    `judged` is what its Secret is good for. `provider` is the one that it belongs to, which goes
    on with its last good kubeconfig while the Secret is not usable; None: none. `crd` is the one
    of the binding's name in the app cluster, whole. `live_uids` and `owned_crd` are as `live` and
    `owned_crd` of `crd.Owner`. `space_uid` is "" while it is not known; in `control_plane_mode`
    nothing is reported or done then that needs it. `unowned`, in that mode: the app cluster serves
    apiservicebindings cluster-scoped, so the CRD must not be owned by the binding. `unclaimed`:
    the app cluster stores no claim.
    `claim_problems` are sentences about accepted claims that cannot be served, `refusals` about
    instances that one side does not take (quota, admission); in neither is anything that changes
    by itself, such as an age, or is secret. `orphans` is what there is to say of copies whose
    instance is absent, `mismatch` why nothing may be written on either side (`guard.mismatch`).
    """

    binding: Manifest = field(repr=False)
    judged: Judged
    provider: Provider | None = None
    crd: Manifest | None = field(default=None, repr=False)
    live_uids: Set[str] = frozenset()
    owned_crd: str = ""
    space_uid: str = ""
    control_plane_mode: bool = False
    unowned: bool = False
    unclaimed: bool = False
    claim_problems: Sequence[str] = ()
    refusals: Sequence[str] = ()
    orphans: str = ""
    mismatch: str = ""

    @property
    def synced(self) -> bool:
        """Whether enough is known of a provider to judge its offers."""
        known = bool(self.space_uid) or not self.control_plane_mode
        return self.provider is not None and self.provider.synced and known

    @property
    def export(self) -> Manifest | None:
        """The export, if the views of the provider are complete and hold one."""
        return self.provider.export if self.provider is not None and self.synced else None

    @cached_property
    def plan(self) -> Plan | None:
        """The plan for the CRD; None where no CRD follows from the look."""
        if self.export is None or _refusal(self.export) is not None:
            return None
        return crd.plan(self.export, self.crd, self._owner, unclaimed=self.unclaimed)

    @property
    def withdrawn(self) -> Manifest | None:
        """The CRD of a kind that the provider exports no more, where it is this binding's."""
        if not self.synced or self.export is not None or self.mismatch or self.crd is None:
            return None
        return None if crd.is_anothers(self.crd, self._owner) else self.crd

    @property
    def _owner(self) -> Owner:
        return Owner(
            self.binding,
            self.live_uids,
            self.space_uid,
            self.owned_crd,
            marks=self.control_plane_mode,
            referenced=not self.unowned,
        )


def decide(seen: Seen) -> Decision:
    """Return the write of the CRD, and all conditions.

    A binding that is being deleted is left to what undoes it.
    """
    if is_deleting(seen.binding):
        return NOTHING
    plan = None if seen.mismatch else seen.plan
    before = {one.type: one for one in conditions.of(seen.binding)}
    reported = tuple(_conditions(seen, plan, before))
    notes = (*_written(seen, plan), *_troubles(reported, before))
    return replace(_writes(plan), conditions=reported, fields=_fields(seen), notes=notes)


def synced_kind(seen: Seen) -> Kind | None:
    """Return the kind to sync under this binding, or None while none can be synced, or may be.

    It takes a CRD of ours that the app cluster serves, and a version of it; whether its schema is
    the newest is no matter, so that a change of it interrupts nothing. One that is being deleted
    waits for its instances to go, and those for the sync.
    """
    plan = seen.plan
    if (
        seen.mismatch
        or is_deleting(seen.binding)
        or plan is None
        or seen.export is None
        or seen.crd is None
    ):
        return None
    usable = plan.standing in ("ours", "left") and is_established(seen.crd)
    kind = crd.instance_kind(seen.export, seen.crd)
    return kind if usable and kind.version else None


def _refusal(export: Manifest) -> Problem | None:
    """Return why an export is not brought into the app cluster, if so."""
    if sentence := crd.problem(export):
        return conditions.EXPORT_INVALID, sentence
    if sentence := crd.isolation_problem(export):
        return conditions.ISOLATION_UNSUPPORTED, sentence
    return None


def _writes(plan: Plan | None) -> Decision:
    step = None if plan is None else plan.step
    created = isinstance(step, Create)
    failure = conditions.CRD_CREATE_FAILED if created else conditions.CRD_UPDATE_FAILED
    return writes(step, failure=failure)


def _fields(seen: Seen) -> dict[str, JSON]:
    if seen.provider is None or not seen.synced or seen.mismatch:
        return {}
    name = get_text(seen.provider.cluster_binding, "spec", "providerPrettyName")
    shown = get_text(seen.binding, "status", "providerPrettyName")
    return {} if name == shown else {"providerPrettyName": name}


def _conditions(
    seen: Seen, plan: Plan | None, before: Mapping[str, Condition]
) -> Iterator[Condition]:
    yield seen.judged.condition
    judged = {one.type: one for one in _of_provider(seen, plan, before)}
    yield from judged.values()
    if _is_starting(seen) and conditions.CONNECTED not in before:
        yield conditions.false(conditions.NOT_YET_CONNECTED, _UNREAD)
    unknown, why = _not_known(seen)
    for condition_type in unknown:
        if condition_type in before and condition_type not in judged:
            yield Condition(condition_type, conditions.UNKNOWN, "", "Unknown", why)
    yield from _of_ours(seen, before)


def _of_provider(
    seen: Seen, plan: Plan | None, before: Mapping[str, Condition]
) -> Iterator[Condition]:
    provider = seen.provider
    if provider is None:
        return
    if provider.late:
        yield conditions.false(conditions.INFORMER_SYNC_TIMEOUT, provider.late)
    elif provider.synced:
        yield conditions.true(conditions.INFORMERS_SYNCED)
    if provider.heartbeat:
        yield conditions.false(conditions.CLUSTER_BINDING_UPDATE_FAILED, provider.heartbeat)
    elif provider.heartbeat is not None:
        yield conditions.true(conditions.HEARTBEATING)
    cut = _cut_off(seen, provider, before)
    if cut is not None:
        yield cut
    if seen.synced:
        if cut is None:
            yield _connected(seen, plan)
        if plan is not None and plan.standing != "foreign":
            yield _schema_in_sync(seen, plan)


def _cut_off(seen: Seen, provider: Provider, before: Mapping[str, Condition]) -> Condition | None:
    """Return the condition of a control plane that was there, and does not let us in any more."""
    found = cut_off(provider.silent_since, provider.refused_since)
    if found is None:
        return None
    last = before.get(conditions.CONNECTED)
    was_there = last is not None and (
        last.status == conditions.TRUE or last.reason in conditions.CUT_OFF
    )
    return None if not seen.synced and not was_there else conditions.false(*found)


def cut_off(silent: datetime | None, refused: datetime | None) -> tuple[Cause, str] | None:
    """Return why nothing is synced with a control plane, by when it answered, or refused, last."""
    if silent is not None:
        message = (
            f"The service provider cluster has not answered since {format_time(silent)}."
            " Nothing is synced until it does; existing objects stay as they are."
        )
        return conditions.CONTROL_PLANE_UNREACHABLE, message
    if refused is None:
        return None
    message = (
        f"The service provider cluster has answered with Unauthorized since {format_time(refused)}:"
        " the token of the kubeconfig is revoked. Nothing is synced until it is renewed, by"
        " `klutchctl apply` or `kubectl bind`; existing objects stay as they are."
    )
    return conditions.CONTROL_PLANE_REFUSES, message


def _is_starting(seen: Seen) -> bool:
    late = seen.provider is not None and seen.provider.late
    return seen.judged.usable and not seen.synced and not late


def _not_known(seen: Seen) -> tuple[Sequence[str], str]:
    """Return the conditions that are Unknown where no other verdict is there, and why."""
    if seen.provider is None:
        # With a Secret that can be used, there is a provider in a moment.
        types = () if seen.judged.usable else _OF_THE_PROVIDER
        return types, "There is no usable kubeconfig secret."
    if not seen.synced:
        types = _OF_THE_PROVIDER if seen.provider.late else ()
        return types, _UNREAD
    return (conditions.SCHEMA_IN_SYNC,), "There is no CustomResourceDefinition to compare."


def _connected(seen: Seen, plan: Plan | None) -> Condition:
    name = name_of(seen.binding)
    if seen.mismatch:
        return conditions.false(conditions.NOT_OF_THIS_SPACE, seen.mismatch)
    if seen.export is None:
        message = f"APIServiceExport {name} not found on the service provider cluster."
        return conditions.false(conditions.EXPORT_NOT_FOUND, message)
    if problem := _refusal(seen.export):
        return conditions.false(*problem)
    if plan is not None and plan.standing == "foreign":
        message = f"CustomResourceDefinition {name} is not owned by {keys.KLUTCH_GROUP}."
        return conditions.false(conditions.CRD_FOREIGN, message)
    return conditions.true(conditions.CONNECTED)


def _schema_in_sync(seen: Seen, plan: Plan) -> Condition:
    subject = f"CustomResourceDefinition {name_of(seen.binding)}"
    if seen.crd is None:
        return conditions.false(conditions.CRD_NOT_ESTABLISHED, f"{subject} is not there yet.")
    if is_deleting(seen.crd):
        message = f"{subject} is being deleted; it is made again when it is gone."
        return conditions.false(conditions.CRD_TERMINATING, message)
    if not plan.same_spec:
        message = f"{subject} does not yet match the APIServiceExport."
        return _replaced(seen, plan) or conditions.false(conditions.CRD_OUTDATED, message)
    if conflict := crd.name_conflict(seen.crd):
        message = f"The app cluster does not accept the names of {subject}: {conflict}"
        return conditions.false(conditions.CRD_NAMES_NOT_ACCEPTED, message)
    if not is_established(seen.crd):
        message = f"{subject} is not served by the app cluster yet."
        return conditions.false(conditions.CRD_NOT_ESTABLISHED, message)
    return conditions.true(conditions.SCHEMA_IN_SYNC)


def _replaced(seen: Seen, plan: Plan) -> Condition | None:
    """Return why a CRD does not follow its export, where that waits for a person."""
    name, new = name_of(seen.binding), crd.synced_version(seen.export or {})
    if plan.replaced:
        message = (
            f"CustomResourceDefinition {name} cannot follow the APIServiceExport: {plan.replaced}."
            f" No claim is synced. `kubectl delete crd {name}` deletes them; then it is made again."
        )
        return conditions.false(conditions.KIND_REPLACED, message)
    if not (old := plan.kept_version):
        return None
    key = f"{namespace_of(seen.binding)} apiservicebinding {name} {keys.CONFIRM_VERSION}={new}"
    message = (
        f"The provider offers {name} in {new} in place of {old}, in which claims are stored here:"
        f" read in {new}, they would lose what it does not know. So they stay in {old}. Ask the"
        f" provider for {old}; or accept the loss, by `kubectl annotate -n {key}`, and apply all"
        f" claims again, written for {new}."
    )
    return conditions.false(conditions.STORED_VERSION_REPLACED, message)


def _of_ours(seen: Seen, before: Mapping[str, Condition]) -> Iterator[Condition]:
    """Yield the conditions that only we report, each from its first problem on."""
    troubles: list[tuple[Cause, Sequence[str]]] = [
        (conditions.CLAIMS_DEGRADED, seen.claim_problems),
        (conditions.ORPHANED, [seen.orphans, *seen.refusals])
        if seen.orphans
        else (conditions.INSTANCES_REFUSED, seen.refusals),
    ]
    if seen.export is not None:
        troubles.append((conditions.VERSIONS_DIFFER, _lossy(seen.export)))
    for cause, sentences in troubles:
        if sentences:
            yield conditions.false(cause, _listed(sentences))
        elif cause.type in before and seen.export is not None:
            yield conditions.true(cause.type)


def _lossy(export: Manifest) -> Sequence[str]:
    lossy = crd.lossy_versions(export)
    if not lossy:
        return ()
    return [
        f"Instances are synced in version {crd.synced_version(export)}; what only the schema of "
        f"{', '.join(lossy)} knows is lost."
    ]


def _listed(sentences: Iterable[str]) -> str:
    every = sorted(set(sentences))
    more = len(every) - _LISTED
    return " ".join(every[:_LISTED]) + (f" And {more} more." if more > 0 else "")


def _written(seen: Seen, plan: Plan | None) -> Iterator[Note]:
    if plan is None or plan.step is None:
        return
    subject = f"CustomResourceDefinition {name_of(seen.binding)}"
    if isinstance(plan.step, Create):
        yield Note("CustomResourceDefinitionCreated", f"{subject} is made in the app cluster")
    elif plan.standing == "left":
        message = f"{subject} is taken over from an APIServiceBinding that is gone"
        yield Note("CustomResourceDefinitionTakenOver", message)
    else:
        yield Note("CustomResourceDefinitionUpdated", f"{subject} follows the APIServiceExport")
    if seen.unowned:
        message = (
            f"{subject} gets no owner: the app cluster serves apiservicebindings cluster-scoped, "
            "would not find this one there, and would delete the definition with all instances"
        )
        yield Note("CustomResourceDefinitionUnowned", message)


def _troubles(reported: Iterable[Condition], before: Mapping[str, Condition]) -> Iterator[Note]:
    for one in reported:
        last = before.get(one.type)
        if one.severity in (conditions.ERROR, conditions.WARNING) and not (
            last is not None and last.agrees_with(one)
        ):
            yield Note(one.reason, one.message, "Warning")
