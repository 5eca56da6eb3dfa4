"""Conditions of an AppClusterBinding: causes beside the original's two types, and their summary.

A type of ours appears only once something was wrong, and is True from then on: an
AppClusterBinding that never had trouble has the conditions of the original and no others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from reconciler.core import conditions
from reconciler.core.conditions import ERROR, INFO, WARNING, Cause, Condition
from reconciler.core.decision import Decision
from reconciler.core.manifest import Manifest, get_list
from reconciler.core.reasons import EXPORTS_READY, KONNECTOR_DEPLOYED, SECRET_VALID

SPACE_READY: Final = "BindingSpaceReady"
BINDINGS_READY: Final = "APIServiceBindingsReady"
CLEANED_UP: Final = "CleanedUp"

SECRET_NOT_GRANTED: Final = Cause(SECRET_VALID, ERROR, "KubeconfigSecretNotGranted")

SPACE_NAME_INVALID: Final = Cause(SPACE_READY, ERROR, "BindingSpaceNameInvalid")
SPACE_TAKEN: Final = Cause(SPACE_READY, ERROR, "BindingSpaceTaken")
SPACE_TERMINATING: Final = Cause(SPACE_READY, WARNING, "BindingSpaceTerminating")
SPACE_FAILED: Final = Cause(SPACE_READY, ERROR, "BindingSpaceFailed")

TEMPLATE_NOT_FOUND: Final = Cause(BINDINGS_READY, ERROR, "APIServiceExportTemplateNotFound")
BINDING_FAILED: Final = Cause(BINDINGS_READY, ERROR, "APIServiceBindingFailed")
BINDING_INVALID: Final = Cause(BINDINGS_READY, ERROR, "APIServiceBindingInvalid")
BINDINGS_DRAINING: Final = Cause(BINDINGS_READY, INFO, "Draining")

REQUEST_WAITING: Final = Cause(EXPORTS_READY, WARNING, "APIServiceExportRequestWaiting")
REQUEST_REFUSED: Final = Cause(EXPORTS_READY, ERROR, "APIServiceExportRequestFailed")
EXPORT_FAILED: Final = Cause(EXPORTS_READY, ERROR, "APIServiceExportFailed")

OVERRIDE_NOT_ALLOWED: Final = Cause(KONNECTOR_DEPLOYED, ERROR, "OverrideNotAllowed")
KONNECTOR_PROGRESSING: Final = Cause(KONNECTOR_DEPLOYED, INFO, "KonnectorProgressing")

CLEANUP_WAITING: Final = Cause(CLEANED_UP, INFO, "Waiting")
CLEANUP_TIMED_OUT: Final = Cause(CLEANED_UP, ERROR, "DeadlineExceeded")
CLEANUP_FAILED: Final = Cause(CLEANED_UP, ERROR, "CleanupFailed")

# These two are always said, as the original does; the others only from the first trouble on.
_ALWAYS: Final = (SECRET_VALID, KONNECTOR_DEPLOYED)


def trouble(cause: Cause, message: str) -> Decision:
    """Return the decision that does nothing, and says what is wrong."""
    return Decision(conditions=(conditions.false(cause, message),))


def summed_up(
    live: Manifest, parts: Decision, *, judged: Sequence[str], beside: Sequence[Condition] = ()
) -> Decision:
    """Return the decision with one condition of each type that its parts looked into, `judged`.

    A type without trouble is True where it is always said, or where `live` has it. `beside` goes
    with it as it is.
    """
    present = {each.type for each in conditions.parse(get_list(live, "status", "conditions"))}
    return replace(parts, conditions=(*beside, *_worst(parts.conditions, judged, present)))


def _worst(
    troubles: Sequence[Condition], judged: Sequence[str], present: set[str]
) -> Iterator[Condition]:
    for condition_type in judged:
        of_type = [each for each in troubles if each.type == condition_type]
        if of_type:
            worst = min(of_type, key=_urgency)
            alike = [each for each in of_type if _urgency(each) == _urgency(worst)]
            yield replace(worst, message=" ".join(dict.fromkeys(each.message for each in alike)))
        elif condition_type in _ALWAYS or condition_type in present:
            yield conditions.true(condition_type)


def _urgency(condition: Condition) -> tuple[int, str]:
    return {ERROR: 0, WARNING: 1}.get(condition.severity, 2), condition.reason
