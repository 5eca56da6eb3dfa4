"""An approved plan becomes the state of the clusters: each write guarded, each outcome told."""

from reconciler.apply.outcomes import Outcome, Report, Status
from reconciler.apply.run import Observer, Options, apply
from reconciler.controller.fence import WriteFence

__all__ = ["Observer", "Options", "Outcome", "Report", "Status", "WriteFence", "apply"]
