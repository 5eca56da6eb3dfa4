"""Kinds and keys of dataservices.anynines.com/v1, each name once, as provider-anynines has them.

Refuses to know what becomes of an object.
"""

from typing import Final

from reconciler.core.refs import Kind

GROUP: Final = "dataservices.anynines.com"


def _kind(name: str) -> Kind:
    return Kind(GROUP, "v1", name, f"{name.lower()}s", namespaced=False)


SERVICE_INSTANCE: Final = _kind("ServiceInstance")
SERVICE_BINDING: Final = _kind("ServiceBinding")
BACKUP: Final = _kind("Backup")
RESTORE: Final = _kind("Restore")
PROVIDER_CONFIG: Final = _kind("ProviderConfig")
PROVIDER_CONFIG_USAGE: Final = _kind("ProviderConfigUsage")
KINDS: Final = (
    SERVICE_INSTANCE,
    SERVICE_BINDING,
    BACKUP,
    RESTORE,
    PROVIDER_CONFIG,
    PROVIDER_CONFIG_USAGE,
)
