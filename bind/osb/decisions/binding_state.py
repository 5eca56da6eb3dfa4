"""A binding as one look shows it: claim, Secret, the role of each number; and its status."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from bind.osb.decisions import causes, credentials, instance_state, record
from bind.osb.decisions.instance_state import DELETING, FAILED, LOST, PENDING, READY
from bind.osb.decisions.record import Record, Sent
from bind.osb.decisions.view import BindingView, InstanceView, parameters_of
from reconciler.blueprints.offering.outcomes import Done
from reconciler.core import conditions, keys, manifest
from reconciler.core.conditions import Cause, Condition
from reconciler.core.decision import NOTHING, Decision
from reconciler.core.manifest import JSON, Manifest, is_deleting
from reconciler.core.times import format_time

IMMEDIATE: Final = "Immediate"
CHECKS: Final = timedelta(minutes=5)  # between two readings of a Secret


@dataclass(frozen=True, slots=True)
class Numbers:
    """The records of a binding, by their roles.

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
    """Return the role of each record of a binding, beside further facts."""
    rising = sorted(records, key=lambda one: one.number)
    bound = [one for one in rising if is_bound(one)]
    current = bound[-1] if bound else None
    asked = [
        one for one in rising if one.state in (record.INTENDED, record.PRESENT) and one not in bound
    ]
    top = asked[-1] if asked else None
    is_candidate = top is not None and (current is None or top.number > current.number)
    return make(
        current=current,
        candidate=top if is_candidate else None,
        older=tuple(bound[:-1]),
        lost=tuple(asked[:-1] if is_candidate else asked),
        leaving=tuple(one for one in rising if one.state == record.LEAVING),
        **more,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen(Numbers):
    """A binding in one look. One without a claim is an orphan."""

    view: InstanceView
    binding: BindingView

    @property
    def claim(self) -> Manifest:
        assert self.binding.live is not None
        return self.binding.live

    @property
    def is_retrievable(self) -> bool:
        """Whether bindings of this offering can be read at the broker."""
        offering = self.view.offering
        return offering is not None and offering.bindings_retrievable

    @property
    def has_no_catalogue(self) -> bool:
        """Whether the abilities of a plan are not known yet, or whether bindings can be read."""
        return self.view.broker is None or self.view.broker.catalogue is None

    def after(self, changed: Record) -> "Seen":
        kept = tuple(one for one in self.binding.records if one.id != changed.id)
        return seen(self.view, replace(self.binding, records=(*kept, changed)))


def seen(view: InstanceView, binding: BindingView) -> Seen:
    if has_no_claim(binding):
        binding = replace(binding, live=None)
    return numbers_of(binding.records, Seen, view=view, binding=binding)


def is_bound(one: Record) -> bool:
    """Return whether credentials of a record were written into the Secret."""
    return one.state == record.PRESENT and one.sent is not None and bool(one.sent.secret)


def is_still_bound(one: Record) -> bool:
    """Return whether a record leaves while the operation that made its binding may go on."""
    is_of_bind = one.intent is not None and one.intent.verb == "Bind"
    return one.state == record.LEAVING and one.operation is not None and is_of_bind


def is_same(seen: Seen) -> bool:
    """Return whether the last rotation gave the credentials that were there before: both stay."""
    older = (one for one in seen.older if not is_of_former(seen.view, one))
    return any(credentials.are_same(seen.current, one) for one in older)


def target(seen: Seen, plan_id: str) -> Sent:
    parameters: Mapping[str, JSON] = parameters_of(seen.claim)
    return Sent(plan_id, record.digest_of(manifest.uid_of(seen.claim), parameters))


def circumstances(seen: Seen, closed: str) -> str:
    """Return the digest of the premises of another try after a refusal, or after failures.

    "" where the catalogue counts and none was read.
    """
    offered = instance_state.catalogue(seen.view)
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
    """Return whether a binding is older than its instance, which replaced a lost one."""
    instance = view.current
    if instance is None or instance.made_at is None or one.made_at is None:
        return False
    return one.made_at < instance.made_at


def has_no_claim(binding: BindingView) -> bool:
    """Return whether the rest of a binding is an orphan: somebody removed its finalizer."""
    live = binding.live
    if live is None:
        return True
    return is_deleting(live) and keys.OSB not in manifest.finalizers_of(live)


def ends(view: InstanceView, binding: BindingView) -> bool:
    """Return whether all of a claim's binding is to go: with its claim, or with its instance."""
    if binding.live is None:
        return False
    if is_deleting(binding.live):
        return True
    if view.live is None or not is_deleting(view.live):
        return False
    if manifest.get_text(view.live, "spec", "deletionPolicy") != IMMEDIATE:
        return False
    return causes.mass_deletion(view, view.kind, crd_is_deleting=view.crd_is_deleting) is None


BINDING: Final = "Binding"
ROTATING: Final = "Rotating"
_CLOSED: Final = {record.REFUSED: causes.BIND_REFUSED, record.FAILED: causes.BIND_FAILED}


def of(
    seen: Seen,
    *,
    true: Iterable[str] = (),
    false: Iterable[tuple[Cause, str]] = (),
    again: timedelta | None = None,
) -> Decision:
    """Return the status of a claim; conditions that are not named stay."""
    if seen.binding.live is None:
        return replace(NOTHING, again=again)
    stated = [conditions.true(each) for each in true]
    stated += [conditions.false(cause, message) for cause, message in false]
    stated += _validity(seen)
    if is_same(seen):
        message = "the broker gives the same credentials to each binding, so no other follows"
        stated = [each for each in stated if each.type != causes.ROTATED]
        stated.append(conditions.false(causes.SAME_CREDENTIALS, message))
    fields = {"phase": _phase(seen), **_facts(seen)}
    return Decision(conditions=tuple(stated), fields=fields, again=again)


def _validity(seen: Seen) -> Sequence[Condition]:
    """Return whether the credentials that count are past their end, if they have one."""
    current = seen.current
    if current is None:
        return []
    intent = seen.view.current.intent if seen.view.current is not None else None
    is_lost = intent is not None and intent.closed == record.MISSING
    if is_lost or is_of_former(seen.view, current):
        message = f"the instance of binding {current.id} was lost, and its credentials with it"
        return [conditions.false(causes.INSTANCE_LOST, message)]
    if current.expires_at is None:
        return conditions.mended(seen.claim, causes.VALID)
    if current.expires_at > seen.view.now:
        return [conditions.true(causes.VALID)]
    message = f"the credentials of binding {current.id} ended at {format_time(current.expires_at)}"
    return [conditions.false(causes.EXPIRED, message)]


def _phase(seen: Seen) -> str:
    if is_deleting(seen.claim):
        return DELETING
    candidate = seen.candidate
    is_open = candidate is not None and (candidate.is_open or candidate.state == record.PRESENT)
    if seen.current is not None:
        return ROTATING if is_open else READY
    if is_open:
        return BINDING
    intent = candidate.intent if candidate is not None else None
    is_over = intent is not None and intent.closed in (record.REFUSED, record.FAILED)
    return FAILED if is_over else PENDING


def _facts(seen: Seen) -> dict[str, JSON]:
    """Return the facts of a binding; None takes a field away."""
    current, older = seen.current, seen.older
    counts = current or seen.candidate
    facts: dict[str, JSON] = {
        "bindingID": counts.id if counts is not None else None,
        "binding": {"name": credentials.name_of(seen.claim)} if current is not None else None,
        "expiresAt": _time(current.expires_at) if current is not None else None,
        "renewBefore": _time(current.renew_before) if current is not None else None,
        "previous": {"bindingID": older[-1].id, "until": _time(older[-1].leave_at)}
        if older
        else None,
    }
    if current is None:
        facts["endpoints"] = None
    elif older:
        facts["rotatedAt"] = _time(current.made_at)
    return facts


def _time(time: datetime | None) -> str | None:
    return None if time is None else format_time(time)


def projected(seen: Seen, done: Done) -> Sequence[Condition]:
    """Return whether parts of a binding come into no Secret; Ready does not hang on it."""
    if done.ignored:
        message = f"{', '.join(done.ignored)} of the binding can be used by no Secret"
        return [Condition(causes.PROJECTED, conditions.UNKNOWN, "", "NotProjected", message)]
    return conditions.mended(seen.claim, causes.PROJECTED)


def trouble(seen: Seen, cause: Cause, problem: str, *, again: timedelta | None = None) -> Decision:
    """Return the status where no credentials come: those that are there stay as they are."""
    if cause == causes.BIND_WAITS:
        return waiting(seen, problem, again=again)
    stated = cause if seen.current is None else causes.of_rotation(cause)
    return of(seen, false=[(stated, problem)], again=again)


def undeleted(seen: Seen, one: Record, problem: str) -> Decision:
    """Return the status while the broker does not delete a failed or replaced binding."""
    if seen.binding.live is None:
        return NOTHING
    if seen.current is None:
        return of(seen, false=[causes.undeleted(causes.BIND_RETRIES, seen.claim, problem)])
    message = f"binding {one.id} is not deleted at the broker: {problem}"
    stated = Condition(causes.ROTATED, conditions.UNKNOWN, "", "NotDeleted", message)
    return instance_state.trouble(of(seen), stated)


def waiting(seen: Seen, problem: str, *, again: timedelta | None = None) -> Decision:
    """Return the status while a call waits. A broker that is down changes no Ready."""
    if seen.binding.live is None:
        return replace(NOTHING, again=again)
    if is_deleting(seen.claim):
        return of(seen, false=[(causes.NOT_DELETED, problem)], again=again)
    if seen.current is not None or _has_failed(seen):
        return of(seen, again=again)
    return of(seen, false=[(causes.BIND_WAITS, problem)], again=again)


def _has_failed(seen: Seen, of_type: str = causes.BOUND) -> bool:
    """Return whether the condition has the reason for missing credentials, which is worth more."""
    condition = conditions.get(seen.claim, of_type)
    return condition is not None and condition.severity in (conditions.WARNING, conditions.ERROR)


def unstated(seen: Seen) -> Sequence[tuple[Cause, str]]:
    """Return the end of a bind that is in its record alone: a process may have ended in between."""
    intent = None if seen.candidate is None else seen.candidate.intent
    cause = None if intent is None else _CLOSED.get(intent.closed)
    if cause is None:
        return []
    cause = cause if seen.current is None else causes.of_rotation(cause)
    return [] if _has_failed(seen, cause.type) else [(cause, LOST)]


def begun(seen: Seen) -> Decision:
    """Return the status while a bind is on its way."""
    if seen.current is not None or _has_failed(seen):
        return of(seen)
    return of(seen, false=[(causes.BINDING, "the broker is asked for it")])


def after_failure(seen: Seen, new: Record) -> Decision:
    """Return the status before the next try, or after the last one."""
    intent = new.intent
    assert intent is not None
    if intent.closed == record.FAILED and seen.current is None:
        message = (
            f"{new.number} bindings failed and were deleted again, the last one as reported before"
        )
        condition = conditions.get(seen.claim, causes.BOUND)
        if condition is not None and condition.reason == causes.BIND_RETRIES.reason:
            return of(seen, false=[(causes.BIND_FAILED, f"{message}: {condition.message}")])
    return of(seen)
