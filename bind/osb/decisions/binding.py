"""What follows for a binding: nothing yet."""

from datetime import datetime

from bind.osb.decisions.view import Ask, BindingView, InstanceView, Next
from reconciler.blueprints.offering.outcomes import Outcome


def look(view: InstanceView, binding: BindingView, *, free: bool, now: datetime) -> Next:
    """Return what follows from the present state of a binding."""
    del view, binding, free, now
    return Next()


def answered(
    view: InstanceView, binding: BindingView, ask: Ask, outcome: Outcome, *, now: datetime
) -> Next:
    """Return what follows from the answer to a call."""
    del view, binding, ask, outcome, now
    return Next()


def urgency(view: InstanceView, binding: BindingView, *, now: datetime) -> int:
    """Return how urgent a binding is."""
    del view, binding, now
    return 2


def needs_secret(binding: BindingView, *, now: datetime) -> bool:
    """Tell whether a look has to read the Secret."""
    del binding, now
    return False


def secret_name(binding: BindingView) -> str:
    """Return the name of a binding's Secret."""
    del binding
    return ""
