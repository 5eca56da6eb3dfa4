"""Warns of addresses that lead nowhere from another cluster (protocol-bind.md F13)."""

import ipaddress
from urllib.parse import urlsplit

from reconciler.core.live import Address
from reconciler.fleet.values import AppCluster, ControlPlane


def warning(target: ControlPlane | AppCluster, address: Address) -> str:
    """Return a sentence where a kubeconfig would lead to ourselves only, else ""."""
    if target.endpoint or not _is_local(urlsplit(address.server).hostname or ""):
        return ""
    return (
        f"{target.name} ({target.origin}): its kubeconfig will lead to {address.server}, which "
        "other clusters may not reach; set spec.endpoint to an address that they do"
    )


def _is_local(host: str) -> bool:
    """Tell whether a host means this machine, or is known inside one cluster only."""
    if host == "localhost" or host.endswith((".localhost", ".svc", ".cluster.local")):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
