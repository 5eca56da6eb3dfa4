"""A binding as one look shows it: claim, Secret, and the role of each number."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from bind.osb.decisions import causes, credentials, record
from bind.osb.decisions.record import Record, Sent
from bind.osb.decisions.view import BindingView, Broker, InstanceView, Pause, parameters_of
from reconciler.blueprints.offering.catalogue import Plan
from reconciler.core import keys, manifest
from reconciler.core.manifest import JSON, Manifest

IMMEDIATE: Final = "Immediate"
CHECKS: Final = timedelta(minutes=5)  # between two readings of a Secret


@dataclass(frozen=True, slots=True)
class Numbers:
    """The records of a binding, as what they are to it.

    `current` holds the credentials that count. `candidate` has a higher number: it is being bound,
    was refused, or waits. `older` still hold credentials, `lost` never came to hold any, `leaving`
    are being unbound.
    """

    current: Record | None = None
    candidate: Record | None = None
    older: tuple[Record, ...] = ()
    lost: tuple[Record, ...] = ()
    leaving: tuple[Record, ...] = ()


N = TypeVar("N", bound=Numbers)


def numbers_of(records: Iterable[Record], make: Callable[..., N], **more: object) -> N:
    """Return what each record of a binding is to it, beside what is known more."""
    rising = sorted(records, key=lambda one: one.number)
    held = [one for one in rising if is_held(one)]
    current = held[-1] if held else None
    asked = [
        one for one in rising if one.state in (record.INTENDED, record.PRESENT) and not is_held(one)
    ]
    top = asked[-1] if asked else None
    is_candidate = top is not None and (current is None or top.number > current.number)
    return make(
        current=current,
        candidate=top if is_candidate else None,
        older=tuple(held[:-1]),
        lost=tuple(asked[:-1] if is_candidate else asked),
        leaving=tuple(one for one in rising if one.state == record.LEAVING),
        **more,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen(Numbers):
    """A binding in one look. `free`: it may begin something that changes it at the broker."""

    view: InstanceView
    binding: BindingView
    now: datetime
    free: bool

    @property
    def claim(self) -> Manifest:
        assert self.binding.live is not None
        return self.binding.live

    @property
    def broker(self) -> Broker | None:
        return self.view.broker

    @property
    def is_retrievable(self) -> bool:
        """Whether bindings of this offering can be read at the broker."""
        offering = None if self.broker is None else self.broker.offering(self.view.kind)
        return offering is not None and offering.bindings_retrievable

    def plan(self, plan_id: str) -> Plan | None:
        return None if self.broker is None else self.broker.plan(self.view.kind, plan_id)

    @property
    def has_no_catalogue(self) -> bool:
        """Whether it is not known yet what a plan can do, or whether bindings can be read."""
        return self.broker is None or self.broker.catalogue is None

    def pause(self, one: Record) -> Pause:
        return self.binding.pause(one)

    def after(self, changed: Record) -> "Seen":
        kept = tuple(one for one in self.binding.records if one.id != changed.id)
        binding = replace(self.binding, records=(*kept, changed))
        return seen(self.view, binding, free=self.free, now=self.now)


def seen(view: InstanceView, binding: BindingView, *, free: bool = False, now: datetime) -> Seen:
    return numbers_of(binding.records, Seen, view=view, binding=binding, now=now, free=free)


def is_held(one: Record) -> bool:
    """Return whether credentials of a record were written into the Secret."""
    return one.state == record.PRESENT and one.sent is not None and bool(one.sent.secret)


def was_never_sent(one: Record, now: datetime) -> bool:
    """Return whether the broker surely has nothing of a record."""
    if one.state != record.INTENDED or one.operation is not None:
        return False
    intent = one.intent
    return intent is None or (not intent.tries and (bool(intent.closed) or intent.since > now))


def is_still_bound(one: Record) -> bool:
    """Return whether a record leaves while the operation that made its binding may go on."""
    is_of_bind = one.intent is not None and one.intent.verb == "Bind"
    return one.state == record.LEAVING and one.operation is not None and is_of_bind


def is_same(seen: Seen) -> bool:
    """Return whether the credentials in use are of an older binding, so that both stay."""
    current = seen.current
    return current is not None and credentials.is_repeated(current, seen.older)


def is_of_lost(view: InstanceView, one: Record) -> bool:
    """Return whether the instance of a binding was lost since, whether it was made anew or not."""
    intent = view.current.intent if view.current is not None else None
    is_lost = intent is not None and intent.closed == record.MISSING
    return is_lost or is_of_former(view, one)


def target(seen: Seen, plan_id: str) -> Sent:
    parameters: Mapping[str, JSON] = parameters_of(seen.claim)
    return Sent(plan_id, record.digest_of(manifest.uid_of(seen.claim), parameters))


def circumstances(seen: Seen, closed: str) -> str:
    """Return the digest of what another try after a refusal, or after failures, hangs on.

    "" where the catalogue counts and none was read.
    """
    catalogue = seen.broker.catalogue if seen.broker is not None else None
    offered = catalogue.digest if catalogue is not None else ""
    if closed == record.REFUSED and not offered:
        return ""
    instance = seen.view.current
    parts: list[JSON] = [
        offered if closed == record.REFUSED else "",
        manifest.annotations_of(seen.claim).get(keys.OSB_RETRY, ""),
        credentials.terms(seen.claim).request,
        dict(parameters_of(seen.claim)),
        instance.plan if instance is not None else "",
    ]
    return record.digest_of(manifest.uid_of(seen.claim), parts)


def is_of_former(view: InstanceView, one: Record) -> bool:
    """Return whether a binding is of what its instance was before that was lost and made anew."""
    instance = view.current
    if instance is None or instance.made_at is None or one.made_at is None:
        return False
    return one.made_at < instance.made_at


def has_no_claim(binding: BindingView) -> bool:
    """Return whether the rest of a binding is an orphan: somebody removed its finalizer."""
    live = binding.live
    if live is None:
        return True
    return manifest.is_deleting(live) and keys.OSB not in manifest.finalizers_of(live)


def ends(view: InstanceView, binding: BindingView) -> bool:
    """Return whether all of a claim's binding is to go: with its claim, or with its instance."""
    if binding.live is None:
        return False
    if manifest.is_deleting(binding.live):
        return True
    if view.live is None or not manifest.is_deleting(view.live):
        return False
    if manifest.get_text(view.live, "spec", "deletionPolicy") != IMMEDIATE:
        return False
    return causes.mass_deletion(view, view.kind, crd_is_deleting=view.crd_is_deleting) is None
