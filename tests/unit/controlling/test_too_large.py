"""An object that is too large to be read is left alone, with an Event about it."""

from typing import Any

import pytest

from reconciler.controller.controller import ObjectReconciler
from reconciler.core.errors import Oversized
from reconciler.core.manifest import stub_of
from reconciler.core.refs import CONFIG_MAP
from reconciler.kube.store import Store


class Recorded:
    """A recorder, and the executor that has it."""

    def __init__(self) -> None:
        self.recorder, self.notes = self, list[Any]()

    def record(self, about: Any, live: Any, note: Any) -> None:
        self.notes.append((about.object, live["metadata"]["uid"], note.reason, note.type))


class Settings(ObjectReconciler[str, Any]):
    def __init__(self, executor: Any, view: Store) -> None:
        super().__init__(executor)
        self.view = view

    subscribe = decide = None  # type: ignore[assignment]

    async def look(self, key: str) -> Any:
        return self.view.get("ns", key)


async def test_an_event_names_it() -> None:
    view, executor = Store(CONFIG_MAP, cluster="c"), Recorded()
    view.put(stub_of({"metadata": {"namespace": "ns", "name": "a", "uid": "u"}}))
    with pytest.raises(Oversized):
        await Settings(executor, view).reconcile("a")
    assert executor.notes == [("ConfigMap ns/a", "u", "TooLarge", "Warning")]
    assert await Settings(executor, view).reconcile("b") is None
