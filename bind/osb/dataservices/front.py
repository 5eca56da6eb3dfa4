"""The front for compositions: its informers, its reconcilers, and the worker that they need."""

from typing import Any

from bind.osb.dataservices.backup.controller import Jobs
from bind.osb.dataservices.binding.controller import ServiceBindings
from bind.osb.dataservices.brokers import Brokers
from bind.osb.dataservices.informers import Informers
from bind.osb.dataservices.instance.controller import ServiceInstances
from bind.osb.dataservices.provider_config.controller import ProviderConfigs
from bind.osb.dataservices.reconciling import Common, Places
from reconciler.controller.controller import ObjectReconciler
from reconciler.controller.executor import Executor


def reconcilers(
    informers: Informers, executor: Executor, brokers: Brokers
) -> dict[str, ObjectReconciler[Any, Any]]:
    """Return the reconcilers, by the names of their controllers. `brokers` is to be run beside."""
    common = Common(informers, executor, brokers, Places(informers))
    backups, restores = informers.backups, informers.restores
    return {
        "dataservices-providerconfig": ProviderConfigs(informers, executor, brokers),
        "dataservices-serviceinstance": ServiceInstances(common),
        "dataservices-servicebinding": ServiceBindings(common),
        "dataservices-backup": Jobs(common, backups, informers.instances),
        "dataservices-restore": Jobs(common, restores, backups),
    }
