"""Runs klutch-osb as one asynchronous process: informers, controllers, leadership, calls."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from bind.osb.connections import Calls
from bind.osb.controller import Brokers, Claims
from bind.osb.dataservices import reconciling as compositions
from bind.osb.dataservices.configs import Informers as Composed
from bind.osb.informers import Informers, InstanceKey, Kinds, Places
from bind.osb.metrics import BrokerMetrics
from bind.osb.settings import Settings
from reconciler.controller import program
from reconciler.controller.lease import Again, holder_here
from reconciler.controller.program import Runtime, Term
from reconciler.controller.tasks import Clock, SystemClock, Worker
from reconciler.core import keys, names
from reconciler.kube.cluster import Cluster
from reconciler.kube.turns import NOBODY, Party

CONTROL_PLANE: Final = "control-plane"
_AGENT: Final = "klutch-osb"
ADVICE: Final = (
    "Where a right or a kind is missing, apply bind/deploy/osb and schemas/crds of this version"
)


async def serve(
    settings: Settings, environ: Mapping[str, str], home: Path, *, stop: asyncio.Event
) -> None:
    """Serve the control plane until `stop` is set.

    Raises ConfigError, HostError, the ClusterErrors of a control plane that was never reached,
    and LeaseLost where a write could not be waited for.
    """
    program.start_log(settings)
    connected = program.connected(settings, environ, home, name=CONTROL_PLANE, agent=_AGENT)
    async with connected as (way, cluster, leases):
        namespace = settings.namespace or way.namespace or names.OSB_NAMESPACE
        make = partial(
            wired,
            settings,
            cluster,
            leases=leases,
            namespace=namespace,
            clock=SystemClock(),
            again=leases.again,
            holder=holder_here(),
        )
        await program.serve(settings, make, stop=stop)


def wired(  # noqa: PLR0913 - tests exchange each of them
    settings: Settings,
    cluster: Cluster,
    *,
    leases: Cluster,
    namespace: str,
    clock: Clock,
    again: Again | None = None,
    holder: str = "",
) -> Term:
    """Return a program on this control plane. `leases` is a second way there, for the lease.

    `again` and `holder` as in `Lease`; ServiceBrokers and records are in `namespace`.
    """
    holder = holder or holder_here()
    runtime = Runtime(
        cluster,
        manager=keys.MANAGER_OSB,
        reporter=f"{keys.OWN_PREFIX}{_AGENT}",
        holder=holder,
        clock=clock,
        docs=settings.docs,
    )
    informers = Informers(cluster, namespace, runtime.metrics)
    composed = Composed(cluster) if settings.dataservices else None
    where = settings.lease_namespace or namespace
    leadership = runtime.leadership(leases, where, names.OSB_LEASE, again=again)
    return runtime.term(
        [*informers.informers, *(composed.informers if composed is not None else ())],
        _workers(
            settings, informers, runtime, composed, terms=lambda: leadership.terms or (holder,)
        ),
        leadership=leadership,
        elects=settings.leader_election,
        advice=ADVICE,
    )


def _workers(
    settings: Settings,
    informers: Informers,
    runtime: Runtime,
    composed: Composed | None,
    *,
    terms: Callable[[], Sequence[str]],
) -> list[Worker]:
    executor, metrics = runtime.executor(informers.cluster), BrokerMetrics(runtime.metrics.registry)
    kinds, places = Kinds(informers), Places(informers)
    calls = Calls[InstanceKey](runtime.fence, runtime.metrics)
    brokers = Brokers(
        informers,
        executor,
        settings,
        clock=runtime.clock,
        metrics=metrics,
        opened=kinds.look_at_broker,
    )
    claims = Claims(
        informers,
        executor,
        brokers=brokers,
        calls=calls,
        places=places,
        metrics=metrics,
        terms=terms,
    )
    make = partial(runtime.controller, workers=settings.workers, party=partial(_party_of, places))
    of_claims = make("claims", claims.reconcile)
    of_kinds = make("kinds", kinds.reconcile)
    of_brokers = make("brokers", brokers.reconcile)
    claims.subscribe(of_claims)
    calls.subscribe(of_claims)
    kinds.subscribe(of_kinds, of_claims, of_brokers)
    brokers.subscribe(of_brokers)
    served: list[Worker] = [informers.claims, brokers, calls, of_brokers, of_kinds, of_claims]
    if composed is None:
        return served
    return [*served, *compositions.workers(composed, places, runtime, settings, metrics, terms)]


def _party_of(places: Places, key: object) -> Party:
    """Return the party of a key: the claims of one owner wait for each other only."""
    return places.party(key.namespace) if isinstance(key, InstanceKey) else NOBODY
