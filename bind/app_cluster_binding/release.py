"""How an APIServiceBinding is let go, so that the konnector can leave the app cluster in order.

Our konnector puts a finalizer on a binding as soon as it carries the annotation
`deletion-policy`, and takes it off once it is done (mapping.md 9). It gets a moment to do so
before the binding is deleted. No other konnector knows of it, so the annotation is set only now:
a finalizer that nobody takes off would hold space and AppClusterBinding for ever.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from bind.app_cluster_binding.facts import Space, Terms
from reconciler.api.bindings import API_SERVICE_BINDING, Liveness, heartbeat_of, liveness
from reconciler.api.exports import reports_sync
from reconciler.core import keys
from reconciler.core.conditions import Cause
from reconciler.core.decision import Decision, Task
from reconciler.core.manifest import (
    Manifest,
    annotations_of,
    finalizers_of,
    is_deleting,
)
from reconciler.core.times import format_time, moment

DRAIN_TIMEOUT: Final = timedelta(seconds=10)  # for the konnector's finalizer to come
RECHECK: Final = timedelta(seconds=30)  # of what only time changes, such as the last heartbeat
_AHEAD: Final = timedelta(minutes=5)  # so far a konnector's clock may be
_LONGEST: Final = timedelta(hours=1)  # until a konnector that says nothing is taken for gone


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseTerms:
    """How bindings are let go. `policy` is Release or Delete; `failure` is said of a failed write.

    `lives`: whether a konnector is there that may do something about it.
    """

    policy: str
    lives: bool
    failure: Cause
    now: datetime


def lives(space: Space, now: datetime) -> bool:
    """Tell whether the space's konnector still beats.

    It writes time and interval itself: neither a beat of the future nor a long interval lets it
    count as living for ever.
    """
    beat = heartbeat_of(space.cluster_binding)
    timeout = _LONGEST if beat is None else min(beat.timeout, _LONGEST)
    return liveness(beat, now, timeout=timeout, ahead=_AHEAD) is Liveness.ALIVE


def let_go(live: Manifest, how: ReleaseTerms, terms: Terms) -> Decision:
    """Return the next step of letting a binding go. Nothing while its deletion is under way."""
    if is_deleting(live):
        return Decision()
    drains = keys.DRAIN in finalizers_of(live)
    if not drains and not how.lives:
        return _delete(live, how, terms)
    notes = annotations_of(live)
    since = moment(notes.get(keys.DRAINING, ""))
    if since is None or notes.get(keys.DELETION_POLICY) != how.policy:
        marks = {keys.DELETION_POLICY: how.policy, keys.DRAINING: format_time(how.now)}
        return Decision(tasks=(_annotate(live, marks, how.failure, terms),), again=DRAIN_TIMEOUT)
    # A konnector may write that time, too, and is given no more of it.
    left = DRAIN_TIMEOUT - (how.now - since) if since <= how.now + _AHEAD else timedelta()
    if drains or left <= timedelta():
        return _delete(live, how, terms)
    return Decision(again=left)


def keep(live: Manifest, failure: Cause, terms: Terms) -> Decision:
    """Return what takes it back that a binding was about to be let go."""
    if keys.DRAINING not in annotations_of(live) or is_deleting(live):
        return Decision()
    marks = {keys.DELETION_POLICY: None, keys.DRAINING: None}
    return Decision(tasks=(_annotate(live, marks, failure, terms),))


def force(live: Manifest, failure: Cause, terms: Terms) -> Decision:
    """Return what lets a binding go whose konnector does not come back; only our finalizer goes."""
    finalizers = finalizers_of(live)
    if not is_deleting(live) or keys.DRAIN not in finalizers:
        return Decision()
    rest = [one for one in finalizers if one != keys.DRAIN]
    step = terms.change(API_SERVICE_BINDING, live, metadata={"finalizers": rest})
    return Decision(tasks=(Task((step,), failure),))


def is_unconfirmed(export: Manifest, *, lives: bool) -> bool:
    """Tell whether a living konnector has yet to say that it has stopped to sync an export."""
    return lives and reports_sync(export)


def _annotate(
    live: Manifest, marks: dict[str, str] | dict[str, None], failure: Cause, terms: Terms
) -> Task:
    step = terms.change(API_SERVICE_BINDING, live, metadata={"annotations": marks})
    return Task((step,), failure)


def _delete(live: Manifest, how: ReleaseTerms, terms: Terms) -> Decision:
    return Decision(tasks=(Task((terms.deletion(API_SERVICE_BINDING, live),), how.failure),))
