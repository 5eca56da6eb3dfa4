"""A source that is followed: what changes there, and what drifts, becomes the clusters' state."""

from reconciler.watch.agenda import Task, Terms, Trigger
from reconciler.watch.loop import Clock, Ears, Watch
from reconciler.watch.scope import Scope

__all__ = ["Clock", "Ears", "Scope", "Task", "Terms", "Trigger", "Watch"]
