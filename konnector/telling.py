"""Where Events are told: in the app cluster, to developers. Elsewhere is no right to it (A.8)."""

import logging

from konnector.decisions.sides import APP_CLUSTER
from konnector.link import Recorder
from reconciler.core.decision import Note
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Ref

log = logging.getLogger(__name__)


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
