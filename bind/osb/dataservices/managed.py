"""Common rules of Crossplane's managed resources: pause, policies, Ready and Synced.

Their conditions are not those of Klutch: a True one has a reason, and none a severity. Refuses to
know what stands behind an object.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from bind.osb.decisions import causes
from bind.osb.decisions.view import Place
from reconciler.core import conditions, decision, keys, manifest
from reconciler.core.conditions import Cause, Condition
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import Kind, ObjectKey
from reconciler.core.times import format_time, is_confirmed, moment

GROUP: Final = "dataservices.anynines.com"


def _kind(name: str) -> Kind:
    # An installation's CRDs may say Namespaced, for namespaced composite resources: an object is
    # addressed by the namespace that it has, and lists are of all namespaces.
    return Kind(GROUP, "v1", name, f"{name.lower()}s", namespaced=False)


SERVICE_INSTANCE: Final = _kind("ServiceInstance")
SERVICE_BINDING: Final = _kind("ServiceBinding")
BACKUP: Final = _kind("Backup")
RESTORE: Final = _kind("Restore")
PROVIDER_CONFIG: Final = _kind("ProviderConfig")
PROVIDER_CONFIG_USAGE: Final = _kind("ProviderConfigUsage")
READY: Final = "Ready"
SYNCED: Final = "Synced"
# The condition of an object after a failed write to the cluster.
WRITE_FAILED: Final = Cause(SYNCED, "", "ReconcileError")
_ALL: Final = "*"
_SOONEST: Final = timedelta(seconds=2)
_LATEST: Final = timedelta(minutes=10)
AVAILABLE: Final = Condition(READY, "True", reason="Available")
CREATING: Final = Condition(READY, "False", reason="Creating")
DELETING: Final = Condition(READY, "False", reason="Deleting")
UNAVAILABLE: Final = Condition(READY, "False", reason="Unavailable")
# The broker or the backup manager does not know it any more, though it did.
MISSING: Final = Condition(READY, "False", reason="Missing")
SUCCESS: Final = Condition(SYNCED, "True", reason="ReconcileSuccess")
_FAILED: Final = Condition(SYNCED, "False", reason="ReconcileError")
_PAUSED: Final = Condition(
    SYNCED,
    "False",
    reason="ReconcilePaused",
    message="Nothing is done: an annotation or its policies pause it",
)


def error(message: str) -> Condition:
    """Return the condition that the object and its external resource do not agree, and why."""
    return replace(_FAILED, message=message)


_ORPHAN: Final = ", or set deletionPolicy: Orphan, and its external resource stays"
NO_CREATE: Final = "Its policies do not allow that it is made"


@dataclass(frozen=True, slots=True)
class Seen:
    """A managed resource, and the facts that any kind needs.

    `cluster` names the control plane in a Ref. `config` is its ProviderConfig and `usage` its
    ProviderConfigUsage, None where absent. `trouble` says why the server behind the config cannot
    be asked, "" where it can. `place` is where its claim lives; `terms` are as of BrokerRecords.
    `kind_goes`: its CRD is being deleted, and takes all objects along.
    """

    cluster: str
    kind: Kind
    live: Manifest = field(repr=False)
    now: datetime
    config: Manifest | None = field(default=None, repr=False)
    usage: Manifest | None = field(default=None, repr=False)
    trouble: str = ""
    place: Place | None = None
    terms: Sequence[str] = ()
    kind_goes: bool = False

    @property
    def term(self) -> str:
        return next(iter(self.terms), "")

    @property
    def uid(self) -> str:
        return manifest.uid_of(self.live)

    @property
    def space(self) -> str:
        """The space of the object: its calls share a turn at a broker."""
        return "" if self.place is None else self.place.space

    @property
    def at_provider(self) -> Manifest:
        """The state of the thing behind it."""
        return manifest.get_map(self.live, "status", "atProvider")

    @property
    def wanted(self) -> Manifest:
        return manifest.get_map(self.live, "spec", "forProvider")

    @property
    def annotations(self) -> Mapping[str, str]:
        return manifest.annotations_of(self.live)

    @property
    def is_deleting(self) -> bool:
        return manifest.is_deleting(self.live)

    def report(
        self,
        at_provider: Mapping[str, JSON],
        *stated: Condition,
        again: timedelta | None = None,
        note: decision.Note | None = None,
        step: decision.Step | None = None,
        others: Mapping[str, JSON] | None = None,
    ) -> decision.Decision:
        """Return the decision that writes this status; null removes, all else stays.

        `step` is written before. The time of a condition stays where its status and reason do: it
        is how long that lasts.
        """
        status = manifest.get_map(self.live, "status")
        after = {**status, **(others or {})}
        if stated:
            after["conditions"] = self._conditions(stated)
        if at_provider:
            after["atProvider"] = {**self.at_provider, **at_provider}
        return decision.Decision(
            tasks=() if step is None else (decision.Task((step,), WRITE_FAILED),),
            fields=decision.merge_diff(status, after),
            notes=() if note is None else (note,),
            again=again,
            sums_up=False,
        )

    def _conditions(self, stated: Sequence[Condition]) -> list[dict[str, JSON]]:
        after = {one.type: one for one in conditions.of(self.live)}
        for one in stated:
            old = after.get(one.type)
            is_same = old is not None and (old.status, old.reason) == (one.status, one.reason)
            since = old.last_transition_time if old is not None and is_same else ""
            after[one.type] = replace(one, last_transition_time=since or format_time(self.now))
        return conditions.dump(after[one] for one in sorted(after))

    def pause(self) -> timedelta:
        """Return the pause before the next try: as long as it has been failing."""
        failing = conditions.get(self.live, SYNCED, conditions.FALSE)
        since = None if failing is None else moment(failing.last_transition_time)
        lasted = timedelta() if since is None else self.now - since
        return min(max(lasted, _SOONEST), _LATEST)

    def failed(
        self,
        message: str,
        *stated: Condition,
        again: timedelta | None,
        note: decision.Note | None = None,
        step: decision.Step | None = None,
    ) -> decision.Decision:
        """Return the decision that reports a problem, and looks again."""
        return self.report({}, *stated, error(message), again=again, note=note, step=step)


def composed_for(live: Manifest) -> ObjectKey:
    """Return the claim, or the namespaced composite resource, of which an object is a part.

    What is in a namespace is composed for what controls it there; of a cluster-scoped object, the
    labels of Crossplane name the claim.
    """
    if namespace := manifest.namespace_of(live):
        controller = manifest.get_text(manifest.controller_of(live), "name")
        return ObjectKey(namespace, controller or manifest.name_of(live))
    labels = manifest.labels_of(live)
    return ObjectKey(labels.get(keys.CLAIM_NAMESPACE, ""), labels.get(keys.CLAIM_NAME, ""))


def has_finalizer(live: Manifest) -> bool:
    """Return whether our finalizer is on an object, as it is before anything is asked."""
    return keys.MANAGED_RESOURCE in manifest.finalizers_of(live)


def config_name(live: Manifest) -> str:
    return manifest.get_text(live, "spec", "providerConfigRef", "name") or "default"


def may(live: Manifest, action: str) -> bool:
    """Return whether the policies of an object allow an action, such as Create."""
    policies = _policies(live)
    return _ALL in policies or action in policies


def deletes(live: Manifest) -> bool:
    """Return whether the external resource goes with the object: policies outrank that field."""
    policies = _policies(live)
    if policies != [_ALL]:
        return may(live, "Delete")
    return manifest.get_text(live, "spec", "deletionPolicy") != "Orphan"


def _policies(live: Manifest) -> Sequence[str]:
    stated = manifest.get(live, "spec", "managementPolicies")
    return [_ALL] if stated is None else manifest.get_texts(live, "spec", "managementPolicies")


def is_paused(live: Manifest) -> bool:
    """Return whether nothing at all may be done for an object."""
    return manifest.annotations_of(live).get(keys.PAUSED) == "true" or not _policies(live)


def framed(seen: Seen) -> decision.Decision | None:
    """Return the decision that is the same for all kinds; None where the kind decides."""
    if is_paused(seen.live):
        return seen.report({}, _PAUSED)
    if seen.is_deleting and not (has_finalizer(seen.live) and deletes(seen.live)):
        stays = "The external resource of this object stays"
        return released(seen, "Orphaned", stays) if has_finalizer(seen.live) else decision.NOTHING
    name = f"ProviderConfig {config_name(seen.live)}"
    if seen.config is None:
        return seen.failed(
            f"{name} is missing: make it{_ORPHAN if seen.is_deleting else ''}", again=None
        )
    word = manifest.annotations_of(seen.config).get(keys.CONFIRM_MASS_DELETE, "")
    if seen.kind_goes and not is_confirmed(moment(word), seen.now):
        message = causes.going(seen.kind.resource, name, "delete")
        return seen.failed(message, DELETING, again=seen.pause())
    if not seen.is_deleting and (step := _usage(seen)):
        return replace(decision.writes(step, failure=WRITE_FAILED), again=_SOONEST, sums_up=False)
    return seen.failed(seen.trouble, again=seen.pause()) if seen.trouble else None


def released(seen: Seen, reason: str, message: str) -> decision.Decision:
    """Return the decision to release an object, and an Event with the reason."""
    step = decision.unfinalized(seen.cluster, seen.kind, seen.live, keys.MANAGED_RESOURCE)
    note = decision.Note(reason, message)
    return replace(decision.writes(step, failure=WRITE_FAILED), notes=(note,), sums_up=False)


def marked(
    seen: Seen, changed: Mapping[str, JSON], *, finalizer: bool = False
) -> decision.Patch | None:
    """Return the patch of annotations (None removes one), and of our `finalizer`, if asked."""
    metadata: dict[str, JSON] = {}
    if finalizer and not has_finalizer(seen.live):
        metadata["finalizers"] = [*manifest.finalizers_of(seen.live), keys.MANAGED_RESOURCE]
        if keys.EXTERNAL_NAME not in seen.annotations:
            changed = {**changed, keys.EXTERNAL_NAME: manifest.name_of(seen.live)}
    if changed:
        metadata["annotations"] = changed
    found = decision.modification(seen.cluster, seen.kind, seen.live, metadata=metadata)
    return found if metadata else None


def _usage(seen: Seen) -> decision.Create | decision.Patch | None:
    """Return the write that names the ProviderConfig of the object."""
    name = config_name(seen.live)
    labels = {keys.PROVIDER_CONFIG: name}
    if seen.usage is not None:
        if manifest.get_text(seen.usage, "providerConfigRef", "name") == name:
            return None
        return decision.modification(
            seen.cluster,
            PROVIDER_CONFIG_USAGE,
            seen.usage,
            metadata={"labels": labels},
            providerConfigRef={"name": name},
        )
    itself = {"apiVersion": seen.kind.api_version, "kind": seen.kind.kind, "uid": seen.uid}
    owner = manifest.controller_to(seen.kind, seen.live)
    namespace = manifest.namespace_of(seen.live)
    metadata: dict[str, JSON] = {"name": seen.uid, "labels": labels, "ownerReferences": [owner]}
    usage: dict[str, JSON] = {
        "apiVersion": PROVIDER_CONFIG_USAGE.api_version,
        "kind": PROVIDER_CONFIG_USAGE.kind,
        "metadata": {**metadata, "namespace": namespace} if namespace else metadata,
        "providerConfigRef": {"name": name},
        "resourceRef": {**itself, "name": manifest.name_of(seen.live)},
    }
    return decision.Create(replace(PROVIDER_CONFIG_USAGE, namespaced=bool(namespace)), usage)
