"""The reconcilers: each looks at what concerns an object, judges it, and does what follows."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeAlias, assert_never

from postgresql_operator import binding, instance, job
from postgresql_operator.dumps import Dumps
from postgresql_operator.outcome import Discard, Dump, Load, Outcome, Work, holds
from postgresql_operator.wire import (
    BACKUP,
    BINDING,
    CLAIM,
    POSTGRESQL,
    RESTORE,
    database_of,
    instance_key_of,
    is_part,
    key_of,
    login_of,
    secret_of,
)
from postgresql_operator.world import World
from postgresql_server.postgres import JobFailed, Postgres, ServerTrouble, new_password
from postgresql_server.works import Deprovision, LetIn, Provision, ShutOut
from reconciler.controller.executor import Executor, Observed
from reconciler.core.conditions import ERROR, Cause, false
from reconciler.core.decision import Decision
from reconciler.core.errors import Forbidden, NotServed
from reconciler.core.manifest import (
    Manifest,
    get_text,
    is_deleting,
    name_of,
    namespace_of,
    ref_of,
    uid_of,
)
from reconciler.core.refs import SECRET, Kind, ObjectKey, Ref
from reconciler.kube.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What all reconcilers work with."""

    world: World
    postgres: Postgres
    dumps: Dumps
    executor: Executor

    async def perform(self, work: Work) -> None:
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

    async def write(self, kind: Kind, live: Manifest, decision: Decision) -> timedelta | None:
        """Carry a decision out, and log its Events; return when to look again."""
        ref = ref_of(self.world.cluster.name, kind, live)
        for note in decision.notes:
            level = logging.WARNING if note.type == "Warning" else logging.INFO
            fields = {"ref": ref.object, "reason": note.reason, "note": note.message}
            log.log(level, "an Event is recorded", extra=fields)
        return await self.executor.execute(decision, Observed(ref, live))


# Looks at what concerns an object, and has it judged. Raises ServerTrouble and ClusterErrors.
Look: TypeAlias = Callable[[Context, Manifest], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class KindReconciler:
    """Serves one kind; `condition` is the one that tells of troubles."""

    kind: Kind
    condition: str
    look: Look
    view: Store
    context: Context

    async def reconcile(self, key: ObjectKey) -> timedelta | None:
        """Look at one object, do what follows, and tell in its status what came of it.

        Raises ServerTrouble and ClusterErrors.
        """
        live, context = self.view.get(*key), self.context
        if live is None:
            return None
        try:
            outcome = await self.look(context, live)
            for work in outcome.works:
                await context.perform(work)
        except JobFailed as error:
            outcome = job.failed(str(error), context.executor.now())
        except ServerTrouble as error:
            trouble = false(Cause(self.condition, ERROR, "ServerTrouble"), str(error))
            await context.write(self.kind, live, Decision(conditions=(trouble,)))
            raise
        return await context.write(self.kind, live, outcome.decision)


def reconcilers(context: Context) -> dict[Kind, KindReconciler]:
    """Return what serves each kind."""
    world = context.world
    listed = (
        KindReconciler(POSTGRESQL, instance.PROVISIONED, _instance, world.instances, context),
        KindReconciler(BINDING, binding.BOUND, _binding, world.bindings, context),
        KindReconciler(BACKUP, job.DONE, _backup, world.backups, context),
        KindReconciler(RESTORE, job.DONE, _restore, world.restores, context),
    )
    return {one.kind: one for one in listed}


async def _instance(context: Context, live: Manifest) -> Outcome:
    cluster = context.world.cluster
    seen = instance.Seen(
        cluster.name,
        live,
        place=context.postgres.address().place,
        exists=await context.postgres.has_database(database_of(live)),
    )
    if is_deleting(live):
        # As the API server knows now: a view may be old, and a database does not come back.
        now = await cluster.get(ref_of(cluster.name, POSTGRESQL, live))
        if now is None or uid_of(now) != uid_of(live):
            return Outcome()
        bindings, backups = await _held(context, live, BINDING), await _held(context, live, BACKUP)
        seen = replace(
            seen,
            instance=now,
            holders=[name_of(one) for one in bindings],
            dumping=[name_of(one) for one in backups if not job.has_ended(one)],
            claim=await _claim(context, now) if is_part(now) else None,
        )
    return instance.decide(seen, now=context.executor.now())


async def _claim(context: Context, live: Manifest) -> Manifest | None:
    """Return what a Postgresql is a part of; None where that may not be read."""
    cluster = context.world.cluster
    with suppress(Forbidden, NotServed):
        return await cluster.get(ref_of(cluster.name, CLAIM, live))
    return None


async def _held(context: Context, live: Manifest, kind: Kind) -> list[Manifest]:
    """Return what is about a Postgresql, and bears our finalizer."""
    listing = await context.world.cluster.list(kind, namespace=namespace_of(live))
    mine = [one for one in listing.items if instance_key_of(one) == key_of(live)]
    return [one for one in mine if holds(one)]


async def _binding(context: Context, live: Manifest) -> Outcome:
    cluster = context.world.cluster
    seen = binding.Seen(
        cluster.name,
        live,
        instance=_instance_of(context, live),
        place=context.postgres.address().place,
        role=await context.postgres.role(login_of(live)),
        secret=await cluster.get(Ref(cluster.name, SECRET, namespace_of(live), secret_of(live))),
        fresh=new_password(),
    )
    return binding.decide(seen)


async def _backup(context: Context, live: Manifest) -> Outcome:
    seen = job.SeenBackup(
        context.world.cluster.name,
        live,
        instance=_instance_of(context, live),
        size=context.dumps.size(uid_of(live)),
    )
    return job.decide_backup(seen, now=context.executor.now())


async def _restore(context: Context, live: Manifest) -> Outcome:
    source = context.world.backups.get(namespace_of(live), get_text(live, "spec", "backupRef"))
    seen = job.SeenRestore(
        context.world.cluster.name,
        live,
        instance=_instance_of(context, live),
        source=source,
        readable=source is not None and context.dumps.size(uid_of(source)) is not None,
        done=context.dumps.is_loaded(uid_of(live)),
    )
    return job.decide_restore(seen, now=context.executor.now())


def _instance_of(context: Context, live: Manifest) -> Manifest | None:
    return context.world.instances.get(*instance_key_of(live))
