"""How bindings go: all numbers of a claim that is deleted, and what is left without its claim."""

from dataclasses import replace
from typing import Final

from bind.osb.decisions import causes, holds, record
from bind.osb.decisions.bindings import calls, status
from bind.osb.decisions.bindings import outcomes as become
from bind.osb.decisions.bindings.seen import Seen, was_never_sent
from bind.osb.decisions.record import Record
from bind.osb.decisions.view import CLOSED, SOON, BindingView, InstanceView, Next, soon
from reconciler.core import keys, manifest
from reconciler.core.conditions import Cause
from reconciler.core.decision import NOTHING, Decision, Note, Step, Task

IMMEDIATE: Final = "Immediate"


def has_no_claim(binding: BindingView) -> bool:
    """Tell whether what is left of a binding is an orphan: its finalizer was taken off by force."""
    live = binding.live
    if live is None:
        return True
    return manifest.is_deleting(live) and keys.OSB not in manifest.finalizers_of(live)


def ends(view: InstanceView, binding: BindingView) -> bool:
    """Tell whether all of a claim's binding is to go: with its claim, or with its instance."""
    if binding.live is None:
        return False
    if manifest.is_deleting(binding.live):
        return True
    if view.live is None or not manifest.is_deleting(view.live):
        return False
    if manifest.get_text(view.live, "spec", "deletionPolicy") != IMMEDIATE:
        return False
    return holds.mass_deletion(view, view.kind, crd_is_deleting=view.crd_is_deleting) is None


def leave(seen: Seen) -> Next:
    """Unbind all numbers; then the Secret goes, the last record, and the claim's finalizer."""
    records = sorted(seen.binding.records, key=lambda one: one.number)
    if not records:
        return become.finished(seen, (), ())
    for one in records:
        if was_never_sent(one, seen.now):
            return become.gone(seen, one, ends=True)
    if (reason := _hold(seen)) is not None:
        return Next(status.of(seen, false=[reason], again=holds.again(reason[0])))
    for one in records:
        if one.state == record.LEAVING and one.is_open:
            return calls.unbind(seen, one)
    return next_to_leave(seen, (*(one for one in records if one.is_open), *records))


def _hold(seen: Seen) -> tuple[Cause, str] | None:
    """Return why nothing is unbound now; None where it may be."""
    broker = seen.binding.kind.broker
    if seen.broker is None:
        return causes.NO_BROKER_TO_DELETE, f"there is no ServiceBroker {broker}"
    is_deleting = seen.binding.crd_is_deleting
    return holds.mass_deletion(
        seen.view, seen.binding.kind, crd_is_deleting=is_deleting, undo="unbind"
    )


def next_to_leave(seen: Seen, records: tuple[Record, ...]) -> Next:
    """Have the first of these leave that may; what is open needs no leave of others."""
    for one in records:
        intent = one.intent if one.state == record.LEAVING else None
        if intent is not None and intent.since > seen.now:
            continue
        if seen.free or one.holds_turn(seen.now):
            return replace(soon(_left(one)), begins=True)
    waits = [one.intent.since - seen.now for one in records if one.intent is not None]
    again = min((wait for wait in waits if wait > SOON), default=CLOSED)
    return Next(status.of(seen, again=again))


def _left(one: Record) -> Step | None:
    """Have a record leave; what the broker does for it meanwhile can still be asked for."""
    if one.operation is not None:
        return record.changed(one, state=record.LEAVING)
    return record.changed(one, state=record.LEAVING, intent=None)


def orphans(seen: Seen) -> Next:
    """Keep what has no claim any more, until somebody says what becomes of it (law 1)."""
    records = sorted(seen.binding.records, key=lambda one: one.number)
    for one in records:
        if was_never_sent(one, seen.now):
            return Next(_forgotten(one))
        if one.state not in (record.ORPHANED, record.RETAINED, record.LEAVING):
            return Next(_orphaned(one))
    return next((found for one in records if (found := _kept(seen, one))), Next(NOTHING))


def _kept(seen: Seen, orphan: Record) -> Next | None:
    """Return what follows for one that is known to be an orphan; None where it just stays."""
    if orphan.state == record.LEAVING:
        return calls.unbind(seen, orphan) if orphan.is_open else next_to_leave(seen, (orphan,))
    wish = orphan.mark.get(keys.OSB_ORPHAN, "")
    if wish == keys.ORPHAN_FORGET:
        return Next(_forgotten(orphan))
    if wish == keys.ORPHAN_DEPROVISION and seen.free and seen.broker is not None:
        return next_to_leave(seen, (orphan,))
    return calls.poll(seen, orphan) if orphan.operation is not None else None


def _forgotten(one: Record) -> Decision:
    return Decision(tasks=(Task((record.deleted(one),)),), again=SOON)


def _orphaned(one: Record) -> Decision:
    """Have a record say that its claim is absent. What was begun is only waited for."""
    intent = one.intent
    if intent is not None:
        intent = replace(intent, closed=record.PAUSED, tries=max(intent.tries, 1))
    step = record.changed(one, state=record.ORPHANED, intent=intent)
    claim = f"{one.claim.kind} {one.claim.namespace}/{one.claim.name}"
    note = Note(
        "Orphaned",
        f"{claim} is gone without its deletion; binding {one.id} stays at the broker until "
        f"annotation {keys.OSB_ORPHAN} says Deprovision or Forget",
        type="Warning",
    )
    tasks = () if step is None else (Task((step,)),)
    return Decision(tasks=tasks, notes=(note,), again=SOON)


def reclaimed(one: Record) -> Next:
    """Have a record count again whose claim is there after all."""
    state = record.INTENDED if one.sent is None else record.PRESENT
    return soon(record.changed(one, state=state))
