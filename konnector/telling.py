"""What is told, and where: Events in the app cluster. Elsewhere a konnector may make none (A.8)."""

import logging

from konnector.decisions.sides import APP_CLUSTER
from konnector.link import Recorder
from reconciler.core.decision import Note
from reconciler.core.errors import ClusterError, Forbidden, Rejected
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Ref

log = logging.getLogger(__name__)


def is_refusal(error: ClusterError) -> bool:
    """Tell whether a cluster looked at a write and did not take it, for developers to know (H17).

    A webhook that fails, and a store that an object is too large for, are an API server's own
    failures to it: 500. What only passes, such as 429 and 503, is none.
    """
    return isinstance(error, Rejected | Forbidden) or error.status == 500


class Telling:
    """Tells Events of objects in the app cluster, and logs what concerns others."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def tell(self, ref: Ref, live: Manifest, note: Note) -> None:
        """Tell it, as soon as possible and as well as possible."""
        if ref.cluster == APP_CLUSTER:
            self._recorder.tell(ref, live, note)
            return
        level = logging.WARNING if note.type == "Warning" else logging.INFO
        log.log(level, "something happened", extra={"ref": str(ref), "what": note.message})
