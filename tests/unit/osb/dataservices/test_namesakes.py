"""An object that comes again under its name is another one: nothing of the former counts for it."""

import asyncio
from types import SimpleNamespace
from typing import Any

from bind.osb.connections import Answered
from bind.osb.dataservices import managed as kinds
from bind.osb.dataservices.reconciling import ServiceInstances
from bind.osb.dataservices.store import Kept
from reconciler.core.manifest import identity_of
from reconciler.core.refs import ObjectKey
from tests.support import dataservices

FORMER = dataservices.managed(kinds.SERVICE_INSTANCE, "status: {atProvider: {instanceId: former}}")
LATER = dataservices.managed(kinds.SERVICE_INSTANCE, "status: {atProvider: {instanceId: later}}")
LATER["metadata"]["uid"] = "another"
KEY = ObjectKey(*identity_of(LATER))


def reconciler(answers: dict[ObjectKey, Any]) -> Any:
    """Return what reconciles the later one, with the lock of the former one's call."""
    made: Any = object.__new__(ServiceInstances)
    made._live = SimpleNamespace(get=lambda *_: LATER)
    locks = {name: asyncio.Lock() for name in ("former", "later")}
    made._common = SimpleNamespace(turn=lambda instance: locks[instance])
    forget = answers.pop
    made.calls = SimpleNamespace(asking=lambda _: None, answer=answers.get, forget=forget)
    made._turns, made.locks = {KEY: locks["former"]}, locks
    made.remembered = {KEY: (FORMER["metadata"]["uid"], "what is known of the former one")}
    return made


def test_it_has_the_turn_of_its_own_instance():
    async def run() -> None:
        its = reconciler({KEY: Answered((FORMER["metadata"]["uid"], "a question"), "an answer")})
        await its.locks["former"].acquire()

        async def look(_: ObjectKey) -> None:
            assert [name for name, lock in its.locks.items() if lock.locked()] == ["later"]

        its.look = look
        await its.reconcile(KEY)
        assert not any(lock.locked() for lock in its.locks.values())

    asyncio.run(run())


def test_nothing_is_remembered_of_the_former():
    assert reconciler({}).kept(LATER) == Kept()
    assert reconciler({}).kept(FORMER) == "what is known of the former one"
