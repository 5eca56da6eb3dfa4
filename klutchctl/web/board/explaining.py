"""What the files of a snapshot say of a unit, for pages of the board."""

import threading
from collections.abc import Callable

from reconciler.fleet.files import Snapshot
from reconciler.fleet.load import Loaded, load_valid_part
from reconciler.fleet.values import UnitKey
from reconciler.reports import why
from reconciler.reports.partial_plans import Target
from reconciler.reports.why import Provenance


class Explaining:
    """Explains units by the newest snapshot, which is read once a person asks for the first one.

    May be called from any thread.
    """

    def __init__(self, newest: Callable[[], Snapshot | None]) -> None:
        self._newest = newest
        self._snapshot: Snapshot | None = None
        self._loaded: Loaded | None = None
        self._lock = threading.Lock()

    def __call__(self, key: UnitKey) -> Provenance | None:
        """Return what the files say of a unit; None where they do not name it."""
        loaded = self._read(self._newest())
        return why.provenance(loaded, Target(key.cluster, key.name)) if loaded else None

    def _read(self, snapshot: Snapshot | None) -> Loaded | None:
        with self._lock:
            if snapshot is not self._snapshot:
                loaded = load_valid_part(snapshot, []) if snapshot is not None else None
                self._snapshot, self._loaded = snapshot, loaded
            return self._loaded
