"""The algebra of Klutch's conditions: when one changes, how they are ordered, what Ready says.

These are Cluster-API style conditions with a severity, not metav1.Condition. It decides how a
list of conditions changes (protocol-konnector.md 0, protocol-bind.md A.9) and refuses to know
which conditions exist (`causes`) and where they are stored.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from reconciler.core.manifest import JSON, Manifest, get_text
from reconciler.core.times import format_time

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

ERROR: Final = "Error"
WARNING: Final = "Warning"
INFO: Final = "Info"

READY: Final = "Ready"

_TEXTS: Final = ("type", "status", "severity", "reason", "message", "lastTransitionTime")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a condition is False: what belongs together on the wire, without the message."""

    type: str
    severity: str
    reason: str


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition. "" stands for an absent text.

    `last_transition_time` is RFC 3339 text as it is on the wire; `extra` holds the fields that
    we do not know, so that writing a list back loses nothing.
    """

    type: str
    status: str
    severity: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)

    def says_the_same(self, other: "Condition") -> bool:
        """Return whether status, severity, reason and message agree."""
        return (self.status, self.severity, self.reason, self.message) == (
            other.status,
            other.severity,
            other.reason,
            other.message,
        )


Conditions = tuple[Condition, ...]


def true(condition_type: str) -> Condition:
    """Return a True condition: it carries no reason, severity or message."""
    return Condition(condition_type, TRUE)


def false(cause: Cause, message: str) -> Condition:
    """Return a False condition with all that a False one carries."""
    return Condition(cause.type, FALSE, cause.severity, cause.reason, message)


def find(conditions: Iterable[Condition], condition_type: str) -> Condition | None:
    """Return the condition of that type, or None."""
    return next((each for each in conditions if each.type == condition_type), None)


def set_condition(conditions: Iterable[Condition], new: Condition, *, now: datetime) -> Conditions:
    """Return the conditions, in their stored order, with `new` in place of those of its type.

    The time stays where it says the same as before, and is `now` otherwise.
    """
    present = tuple(conditions)
    if new.status == TRUE:
        new = true(new.type)
    old = find(present, new.type)
    if old is not None and old.last_transition_time and old.says_the_same(new):
        new = old
    else:
        new = replace(new, last_transition_time=format_time(now))
    return ordered((*(each for each in present if each.type != new.type), new))


def copy_conditions(conditions: Iterable[Condition], copied: Iterable[Condition]) -> Conditions:
    """Return the conditions, in their stored order, with `copied` verbatim over their types.

    For conditions that someone else decided: their times and reasons are theirs.
    """
    theirs = {each.type: each for each in copied}
    kept = (each for each in conditions if each.type not in theirs)
    return ordered((*kept, *theirs.values()))


def summarize(conditions: Iterable[Condition], *, now: datetime) -> Conditions:
    """Return the conditions with Ready set to their summary; untouched where there is none."""
    present = tuple(conditions)
    ready = summary(present)
    return present if ready is None else set_condition(present, ready, now=now)


def summary(conditions: Iterable[Condition]) -> Condition | None:
    """Return what Ready has to say, without a time; None without any other condition.

    The most urgent (status, severity) decides: False/Error, False/Warning, False/Info, True,
    Unknown; in it the alphabetically first type speaks. So any Info makes Ready False, and
    Unknown never spoils it while anything is True.
    """
    others = sorted(
        (each for each in conditions if each.type != READY),
        key=lambda each: (_urgency(each), each.type),
    )
    if not others:
        return None
    first = others[0]
    if first.status == TRUE:
        return true(READY)
    if first.status != FALSE:
        return Condition(READY, UNKNOWN, "", first.reason, first.message)
    # A False without a known severity is nobody's promise: it counts as an error.
    severity = first.severity if first.severity in (WARNING, INFO) else ERROR
    return Condition(READY, FALSE, severity, first.reason, first.message)


def _urgency(condition: Condition) -> int:
    if condition.status == FALSE:
        return {WARNING: 1, INFO: 2}.get(condition.severity, 0)
    return 3 if condition.status == TRUE else 4


def ordered(conditions: Iterable[Condition]) -> Conditions:
    """Return the conditions as they are stored: Ready first, the others by type."""
    return tuple(sorted(conditions, key=lambda each: (each.type != READY, each.type)))


def parse(items: Sequence[JSON]) -> Conditions:
    """Read `status.conditions` in its order. What is not a condition (no type) is left out."""
    return tuple(
        _parse(item) for item in items if isinstance(item, Mapping) and get_text(item, "type")
    )


def _parse(item: Manifest) -> Condition:
    return Condition(
        type=get_text(item, "type"),
        status=get_text(item, "status"),
        severity=get_text(item, "severity"),
        reason=get_text(item, "reason"),
        message=get_text(item, "message"),
        last_transition_time=get_text(item, "lastTransitionTime"),
        extra={name: value for name, value in item.items() if name not in _TEXTS},
    )


def dump(conditions: Iterable[Condition]) -> list[dict[str, JSON]]:
    """Write conditions for `status.conditions`, in the given order, without empty texts."""
    return [_dump(each) for each in conditions]


def _dump(condition: Condition) -> dict[str, JSON]:
    texts = (
        condition.type,
        condition.status,
        condition.severity,
        condition.reason,
        condition.message,
        condition.last_transition_time,
    )
    known = {name: text for name, text in zip(_TEXTS, texts, strict=True) if text}
    return {**condition.extra, **known}
