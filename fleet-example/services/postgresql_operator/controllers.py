"""The controllers: each looks at what concerns an object, has it judged, and has that done."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias, assert_never

from postgresql_operator import binding, instance, job
from postgresql_operator.dumps import Dumps, password
from postgresql_operator.outcome import (
    Deprovision,
    Discard,
    Dump,
    LetIn,
    Load,
    Outcome,
    Provision,
    ShutOut,
    Work,
    holds,
)
from postgresql_operator.postgres import Postgres
from postgresql_operator.troubles import JobFailed, ServerTrouble
from postgresql_operator.wire import (
    BACKUP,
    BINDING,
    POSTGRESQL,
    RESTORE,
    database_of,
    login_of,
    secret_of,
)
from postgresql_operator.world import World
from reconciler.controller.events import Recorder
from reconciler.controller.executor import Executor, Observed
from reconciler.core.conditions import ERROR, Cause, false
from reconciler.core.decision import Decision
from reconciler.core.manifest import (
    Manifest,
    get_text,
    is_deleting,
    name_of,
    namespace_of,
    ref_of,
    uid_of,
)
from reconciler.core.refs import SECRET, Kind, Ref
from reconciler.kube.cache.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hands:
    """What all controllers act with."""

    world: World
    postgres: Postgres
    dumps: Dumps
    recorder: Recorder
    executor: Executor
    now: Callable[[], datetime]

    async def do(self, work: Work) -> None:
        """Do it. Raises ServerTrouble and JobFailed."""
        self.executor.fence.check()
        match work:
            case Provision():
                await self.postgres.provision(work)
            case Deprovision():
                await self.postgres.deprovision(work)
            case LetIn():
                await self.postgres.let_in(work)
            case ShutOut():
                await self.postgres.shut_out(work)
            case Dump():
                await self.dumps.dump(work)
            case Load():
                await self.dumps.load(work)
            case Discard():
                self.dumps.discard(work.uid)
            case _:
                assert_never(work)

    async def write(self, live: Manifest, kind: Kind, decision: Decision) -> None:
        """Tell the Events, do the steps, write the status. Raises ClusterErrors."""
        ref = ref_of(self.world.cluster.name, kind, live)
        for note in decision.notes:
            level = logging.WARNING if note.type == "Warning" else logging.INFO
            fields = {"ref": ref.object, "reason": note.reason, "note": note.message}
            log.log(level, "an object is told of", extra=fields)
            self.recorder.tell(ref, live, note)
        await self.executor.execute(decision, Observed(ref, live))


_INSTANCE_REF: Final = ("spec", "instanceRef")
# Looks at what concerns an object, and has it judged. Raises ServerTrouble and ClusterErrors.
Look: TypeAlias = Callable[[Hands, Manifest], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Serves one kind; `condition` is the one that tells of troubles. A key is `namespace/name`."""

    kind: Kind
    condition: str
    look: Look
    view: Store
    hands: Hands

    async def reconcile(self, key: str) -> timedelta | None:
        """Look at one object, do what follows, and tell in its status what came of it.

        Raises ServerTrouble and ClusterErrors.
        """
        namespace, _, name = key.partition("/")
        live, hands = self.view.get(namespace, name), self.hands
        if live is None:
            return None
        try:
            outcome = await self.look(hands, live)
            for work in outcome.works:
                await hands.do(work)
        except JobFailed as error:
            outcome = job.failed(str(error), hands.now())
        except ServerTrouble as error:
            trouble = false(Cause(self.condition, ERROR, "ServerTrouble"), str(error))
            await hands.write(live, self.kind, Decision(conditions=(trouble,)))
            raise
        await hands.write(live, self.kind, outcome.decision)
        return outcome.decision.again


def reconcilers(hands: Hands) -> dict[Kind, Reconciler]:
    """Return what serves each kind."""
    world = hands.world
    listed = (
        Reconciler(POSTGRESQL, instance.PROVISIONED, _instance, world.instances, hands),
        Reconciler(BINDING, binding.BOUND, _binding, world.bindings, hands),
        Reconciler(BACKUP, job.DONE, _backup, world.backups, hands),
        Reconciler(RESTORE, job.DONE, _restore, world.restores, hands),
    )
    return {one.kind: one for one in listed}


async def _instance(hands: Hands, live: Manifest) -> Outcome:
    cluster = hands.world.cluster
    seen = instance.Seen(
        cluster.name,
        live,
        place=hands.postgres.address().place,
        exists=await hands.postgres.has_database(database_of(live)),
    )
    if is_deleting(live):
        # As the API server knows now: a view may be old, and a database does not come back.
        now = await cluster.get(ref_of(cluster.name, POSTGRESQL, live))
        if now is None or uid_of(now) != uid_of(live):
            return Outcome()
        bindings, backups = await _held(hands, live, BINDING), await _held(hands, live, BACKUP)
        seen = replace(
            seen,
            instance=now,
            holders=[name_of(one) for one in bindings],
            dumping=[name_of(one) for one in backups if not job.has_ended(one)],
        )
    return instance.decide(seen)


async def _held(hands: Hands, live: Manifest, kind: Kind) -> list[Manifest]:
    """Return what is about a Postgresql, and bears our finalizer."""
    listing = await hands.world.cluster.list(kind, namespace=namespace_of(live))
    mine = [one for one in listing.items if get_text(one, *_INSTANCE_REF) == name_of(live)]
    return [one for one in mine if holds(one)]


async def _binding(hands: Hands, live: Manifest) -> Outcome:
    cluster = hands.world.cluster
    seen = binding.Seen(
        cluster.name,
        live,
        instance=_instance_of(hands, live),
        place=hands.postgres.address().place,
        role=await hands.postgres.role(login_of(live)),
        secret=await cluster.get(Ref(cluster.name, SECRET, namespace_of(live), secret_of(live))),
        fresh=password(),
    )
    return binding.decide(seen)


async def _backup(hands: Hands, live: Manifest) -> Outcome:
    seen = job.SeenBackup(
        hands.world.cluster.name,
        live,
        instance=_instance_of(hands, live),
        size=hands.dumps.size(uid_of(live)),
    )
    return job.decide_backup(seen, now=hands.now())


async def _restore(hands: Hands, live: Manifest) -> Outcome:
    source = hands.world.backups.get(namespace_of(live), get_text(live, "spec", "backupRef"))
    seen = job.SeenRestore(
        hands.world.cluster.name,
        live,
        instance=_instance_of(hands, live),
        source=source,
        readable=source is not None and hands.dumps.size(uid_of(source)) is not None,
        done=hands.dumps.is_loaded(uid_of(live)),
    )
    return job.decide_restore(seen, now=hands.now())


def _instance_of(hands: Hands, live: Manifest) -> Manifest | None:
    return hands.world.instances.get(namespace_of(live), get_text(live, *_INSTANCE_REF))
