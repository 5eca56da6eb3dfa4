"""The CRDs that klutchctl ships, and the clusters that need each.

The files in `schemas/crds` are the source of truth; a wheel carries them inside this package.
"""

from pathlib import Path
from typing import Final

import yaml

from reconciler import api
from reconciler.api import osb
from reconciler.api.fleet_status import FLEET_STATUS
from reconciler.core.errors import HostError
from reconciler.core.manifest import Manifest

APP_CLUSTER: Final = (api.API_SERVICE_BINDING.resource,)
CONTROL_PLANE: Final = (
    api.API_SERVICE_BINDING.resource,
    api.API_SERVICE_EXPORT.resource,
    api.API_SERVICE_EXPORT_REQUEST.resource,
    api.API_SERVICE_EXPORT_TEMPLATE.resource,
    api.API_SERVICE_NAMESPACE.resource,
    api.APP_CLUSTER_BINDING.resource,
    api.CLUSTER_BINDING.resource,
)
# Where `klutch-osb` runs.
BROKERS: Final = (osb.SERVICE_BROKER.resource, osb.BROKER_RECORD.resource)
# Where `klutchctl controller` keeps its FleetStatus.
CONTROLLER: Final = (FLEET_STATUS.resource,)

_PACKAGE: Final = Path(__file__).parents[1]
_IN_WHEEL: Final = _PACKAGE / "schemas" / "crds"
_IN_CHECKOUT: Final = _PACKAGE.parent / "schemas" / "crds"


def load(*names: str) -> list[Manifest]:
    """Return the CustomResourceDefinitions of these names, in that order.

    Names are `plural.group`, as in `CONTROL_PLANE`. Raises HostError where a file is missing or
    unreadable: the installation is damaged.
    """
    folder = _IN_WHEEL if _IN_WHEEL.is_dir() else _IN_CHECKOUT
    return [_read(folder / f"{name}.yaml") for name in names]


def _read(path: Path) -> Manifest:
    try:
        manifest: Manifest = yaml.load(path.read_text("utf-8"), yaml.CSafeLoader)
    except (OSError, yaml.YAMLError) as error:
        raise HostError(
            f"The CRD file {path} cannot be read", hint="Install klutchctl again"
        ) from error
    return manifest
