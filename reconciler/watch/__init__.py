"""A source that is followed: what changes there, and what drifts, becomes the clusters' state."""

from reconciler.watch.agenda import Scope, Task, Terms, Trigger
from reconciler.watch.loop import Clock, Observer, Signs, Watch, ailment

__all__ = ["Clock", "Observer", "Scope", "Signs", "Task", "Terms", "Trigger", "Watch", "ailment"]
