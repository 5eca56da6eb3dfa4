"""Does what calls ask for: decides, remembers what it begins, has PostgreSQL do it."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

from postgresql_broker import instances, refusal
from postgresql_broker.instances import Binding, Change, Instance, Verb
from postgresql_broker.refusal import Refusal
from postgresql_broker.store import Rows, Store
from postgresql_server.postgres import Postgres, ServerTrouble
from postgresql_server.works import Deprovision, Place, ShutOut, credentials
from reconciler.core.secret import Secret

log = logging.getLogger(__name__)

_AT_ONCE: Final = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0  # seconds


@dataclass(frozen=True, slots=True)
class Login:
    """A binding, and how a client gets in by it."""

    binding: Binding
    new: bool
    place: Place
    credentials: Mapping[str, str]


class Broker:
    """One broker. `asynchronous`: operations of instances go on after the answer to a call."""

    def __init__(self, postgres: Postgres, key: Secret, *, asynchronous: bool) -> None:
        self._postgres, self._key = postgres, key
        self._store, self.asynchronous = Store(postgres), asynchronous
        self._running = dict[str, asyncio.Task[None]]()
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def start(self, digest: str) -> None:
        """Go on with what an earlier broker began. Raises ServerTrouble and ConfigError."""
        for instance in await self._store.open(digest):
            self._go_on(instance)

    async def stop(self) -> None:
        """End what runs; the next broker goes on with it."""
        running = [*self._running.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def provision(self, change: Change, *, may_wait: bool) -> tuple[Instance, bool]:
        """Have an instance; return it, and whether it is new. Raises Refusal and ServerTrouble."""
        instance = change.instance
        async with self._store.turn(instance) as rows:
            known = await rows.instance(instance)
            wanted = instances.provision(known, change)
            return await self._carry_out(rows, known, wanted, may_wait=may_wait), known is None

    async def update(self, change: Change, *, may_wait: bool) -> Instance:
        """Have an instance be another way. Raises Refusal and ServerTrouble."""
        instance = change.instance
        async with self._store.turn(instance) as rows:
            known = await rows.instance(instance)
            wanted = instances.update(known, change)
            return await self._carry_out(rows, known, wanted, may_wait=may_wait)

    async def deprovision(self, instance: str, *, may_wait: bool) -> Instance:
        """Have no such instance. Raises Refusal and ServerTrouble."""
        async with self._store.turn(instance) as rows:
            known = await rows.instance(instance)
            bindings = await rows.bindings(instance)
            wanted = instances.deprovision(known, bindings, operation())
            return await self._carry_out(rows, known, wanted, may_wait=may_wait)

    async def last_operation(self, instance: str) -> Instance | None:
        """Return an instance with its last operation, None if it is gone. Raises ServerTrouble."""
        async with self._store.read() as rows:
            return await rows.instance(instance)

    async def fetch(self, instance: str) -> Instance:
        """Return an instance. Raises Refusal and ServerTrouble."""
        return instances.fetched(await self.last_operation(instance))

    async def bind(self, binding: Binding) -> Login:
        """Have a login. Raises Refusal and ServerTrouble.

        Done again for one that is there: its role may have been cut off.
        """
        async with self._store.turn(binding.instance) as rows:
            instance = await rows.instance(binding.instance)
            if binding.predecessor:
                before = await rows.binding(binding.instance, binding.predecessor)
                binding = instances.successor(before, binding)
            known = await rows.binding(binding.instance, binding.id)
            wanted = instances.bind(known, instance, binding)
            await rows.put_binding(wanted)
            await self._postgres.let_in(instances.login_of(wanted, self._key))
            return self._login(wanted, new=known is None)

    async def fetch_binding(self, instance: str, binding: str) -> Login:
        """Return a login. Raises Refusal and ServerTrouble."""
        async with self._store.read() as rows:
            known = await rows.binding(instance, binding)
        if known is None:
            raise Refusal(404, "There is no such binding")
        return self._login(known, new=False)

    async def unbind(self, instance: str, binding: str) -> None:
        """Have no such login. Raises Refusal and ServerTrouble."""
        async with self._store.turn(instance) as rows:
            known = instances.unbind(await rows.binding(instance, binding))
            await self._postgres.shut_out(ShutOut(instances.role_of(known)))
            await rows.drop_binding(known)

    async def _carry_out(
        self, rows: Rows, known: Instance | None, wanted: Instance, *, may_wait: bool
    ) -> Instance:
        """Remember an operation and do it, or have it done; return the instance as it is then."""
        if self.asynchronous and not may_wait:
            raise Refusal(422, "Operations of this broker take a while", refusal.ASYNC)
        if wanted != known:
            await rows.put_instance(wanted)
        if not self.asynchronous:
            return wanted if wanted.done else await self._done(rows, wanted)
        if not wanted.done:
            self._go_on(wanted.id)
        return wanted

    async def _done(self, rows: Rows, instance: Instance) -> Instance:
        """Do the operation of an instance; return it as it is then."""
        work = instances.work_of(instance)
        if isinstance(work, Deprovision):
            await self._postgres.deprovision(work)
            await rows.drop_instance(instance.id)
        else:
            await self._postgres.provision(work)
        done = replace(instance, done=True, problem="")
        if instance.verb is not Verb.DELETE:
            await rows.put_instance(done)
        fields = {"instance": instance.id, "verb": instance.verb.value}
        log.info("an operation succeeded", extra=fields)
        return done

    def _go_on(self, instance: str) -> None:
        if instance not in self._running:
            task = asyncio.create_task(self._until_done(instance))
            self._running[instance] = task

    async def _until_done(self, instance: str) -> None:
        """Do the operation of an instance, again and again until PostgreSQL has it."""
        pause = _FIRST_PAUSE
        while instance in self._running:
            try:
                async with self._places, self._store.turn(instance) as rows:
                    known = await rows.instance(instance)
                    if known is not None and not known.done:
                        await self._done(rows, known)
                    # Within the turn: a call that begins another operation comes after this.
                    del self._running[instance]
            except ServerTrouble as error:
                await self._troubled(instance, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _troubled(self, instance: str, error: ServerTrouble) -> None:
        log.warning("an operation failed", extra={"instance": instance, "why": str(error)})
        with suppress(ServerTrouble):
            async with self._store.turn(instance) as rows:
                known = await rows.instance(instance)
                if known is not None:
                    await rows.put_instance(replace(known, problem=str(error)))

    def _login(self, binding: Binding, *, new: bool) -> Login:
        place = self._postgres.address().place
        login = instances.login_of(binding, self._key)
        return Login(binding, new, place, credentials(place, login))


def operation() -> str:
    """Return the name of a new operation."""
    return uuid4().hex
