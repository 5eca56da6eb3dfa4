"""The requests at a provider: made once they may be, and served, refused or forgotten (D.4)."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from klutchctl.binding import response
from klutchctl.binding.errors import BindEnded, NotInTime
from klutchctl.binding.progress import Progress
from reconciler.api import API_SERVICE_EXPORT_REQUEST
from reconciler.core.errors import AlreadyExists, Forbidden
from reconciler.core.refs import Ref
from tests.support import binding_objects as objects

REF = Ref("provider", API_SERVICE_EXPORT_REQUEST, objects.SPACE, "databases.shop.example")
FORBIDDEN = Forbidden("never", ref=REF, verb="create")


@dataclass
class FakeProvider:
    """Answers creates and reads from two lists; the last of each goes on for ever."""

    creates: list[Any]
    reads: list[Any]
    name: str = "provider"
    made: list[Any] = field(default_factory=list)

    async def create(self, manifest, kind, *, manager):
        self.made.append(manifest["metadata"])
        found = self.creates.pop(0) if len(self.creates) > 1 else self.creates[0]
        if isinstance(found, Exception):
            raise found
        return {**manifest, "metadata": {"namespace": objects.SPACE, "name": found}}

    async def get(self, ref):
        return self.reads.pop(0) if len(self.reads) > 1 else self.reads[0]


def status(phase, **more):
    return {"status": {"phase": phase, **more}}


@pytest.fixture
def quick(monkeypatch):
    """Let all times pass at once."""
    sleep = asyncio.sleep
    monkeypatch.setattr(response, "_SECONDS", 0.02)
    monkeypatch.setattr(response, "_RIGHTS_SECONDS", 0.02)
    monkeypatch.setattr("klutchctl.binding.response.asyncio.sleep", lambda _: sleep(0))


async def requested(provider: Any) -> None:
    progress = Progress(write=lambda _: None)
    await response.request_exports(provider, objects.SPACE, [objects.request()], progress)


async def test_a_request_is_waited_for(quick):
    provider = FakeProvider(["a"], [status(""), status("Pending"), status("Succeeded")])
    await requested(provider)
    assert provider.made == [{"name": "databases.shop.example", "namespace": objects.SPACE}]


async def test_a_right_that_comes_late_and_a_name_that_is_taken_are_no_failure(quick):
    taken = AlreadyExists("taken", ref=REF, verb="create")
    provider = FakeProvider([FORBIDDEN, taken, "a"], [status("Succeeded")])
    await requested(provider)
    assert provider.made[-1] == {
        "generateName": "databases.shop.example-",
        "namespace": objects.SPACE,
    }


@pytest.mark.parametrize(
    ("creates", "reads", "error", "why"),
    [
        ([FORBIDDEN], [], Forbidden, "never"),
        (["a"], [status("Failed", terminalMessage="no such service")], BindEnded, "no such"),
        (["a"], [None], BindEnded, "has deleted"),
        (["a"], [status("Pending", conditions=[{"message": "no template"}])], NotInTime,
         "no template"),
        (["a"], [status("Pending")], NotInTime, "it says nothing"),
    ],
)  # fmt: skip
async def test_what_is_not_served_says_why(quick, creates, reads, error, why):
    with pytest.raises(error, match=why) as caught:
        await requested(FakeProvider(creates, reads))
    assert type(caught.value) is error
