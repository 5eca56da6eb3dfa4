"""Applies an approved plan: each write has its precondition, each line its outcome."""

from reconciler.apply.outcomes import Observer, Options, Outcome, Report, Status
from reconciler.apply.run import apply
from reconciler.controller.fence import WriteFence

__all__ = ["Observer", "Options", "Outcome", "Report", "Status", "WriteFence", "apply"]
