"""The front for compositions: its reconcilers, and the workers that they need."""

from typing import Any, Final

from bind.osb.controllers.places import Places
from bind.osb.dataservices import controllers
from bind.osb.dataservices.brokers import Brokers, Terms
from bind.osb.dataservices.informers import Informers
from bind.osb.dataservices.reconciling import Common
from reconciler.controller.controller import Controller, ObjectReconciler
from reconciler.controller.executor import Executor
from reconciler.controller.program import Runtime
from reconciler.controller.tasks import Worker

# A worker waits for the answer to its call: those that hang leave enough for the others.
_WORKERS: Final = 64


def reconcilers(
    informers: Informers, executor: Executor, brokers: Brokers, places: Places
) -> dict[str, ObjectReconciler[Any, Any]]:
    """Return the reconcilers, by the names of their controllers. `brokers` is to be run beside."""
    common = Common(informers, executor, brokers, places)
    backups, restores = informers.backups, informers.restores
    return {
        "dataservices-providerconfig": controllers.ProviderConfigs(informers, executor, brokers),
        "dataservices-serviceinstance": controllers.ServiceInstances(common),
        "dataservices-servicebinding": controllers.ServiceBindings(common),
        "dataservices-backup": controllers.Jobs(common, backups, informers.instances),
        "dataservices-restore": controllers.Jobs(common, restores, backups),
    }


def workers(informers: Informers, places: Places, runtime: Runtime, terms: Terms) -> list[Worker]:
    """Return all that works on these views."""
    brokers = Brokers(informers.cluster, clock=runtime.clock, fence=runtime.fence, terms=terms)
    executor = runtime.executor(informers.cluster)
    working = list[Worker]()
    for name, reconciler in reconcilers(informers, executor, brokers, places).items():
        controller: Controller[Any] = Controller(
            name,
            reconciler.reconcile,
            clock=runtime.clock,
            metrics=runtime.metrics,
            workers=_WORKERS,
            depends_on=(informers.cluster.connectivity,),
        )
        reconciler.subscribe(controller)
        working.append(controller)
    return [brokers, *working]
