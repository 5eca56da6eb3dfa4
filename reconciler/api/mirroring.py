"""Kubeconfigs in app clusters, which konnectors mirror from their sources in binding spaces.

Which of them are mirrored, and whether a konnector reports that its own leads nowhere any more.
"""

from typing import Final

from reconciler.api import KubeconfigFacts, kubeconfig_facts_of
from reconciler.core import conditions, field_set, keys, names
from reconciler.core.conditions import FALSE
from reconciler.core.manifest import Manifest

# Each writes what the source says; of anybody else it is known that he chose the way himself.
_MIRRORING: Final = (keys.MANAGER_CLI, keys.MANAGER_BIND, *sorted(keys.KONNECTORS))


def is_mirrored(secret: Manifest) -> bool:
    """Tell whether the kubeconfig in an app cluster's Secret is of klutchctl, or of a konnector.

    Another's may lead to the source's space by another way, chosen by those who know the app
    cluster's network.
    """
    written = field_set.owned(secret, *_MIRRORING)
    return field_set.holds(written, field_set.place_of("data", names.KUBECONFIG))


def mirrored_facts(secret: Manifest, source: KubeconfigFacts | None) -> KubeconfigFacts | None:
    """Return the facts of an observed kubeconfig in an app cluster that its source decides.

    A way that another chose counts as that of the source.
    """
    facts = kubeconfig_facts_of(secret)
    if facts is None or source is None or is_mirrored(secret):
        return facts
    way = source.server, source.ca_digest, source.tls_server_name
    return KubeconfigFacts(*way, facts.namespace, facts.token_digest)


def reports_cut_off(binding: Manifest) -> bool:
    """Tell whether the konnector of a binding reports that it cannot reach its control plane."""
    connected = conditions.said(binding, conditions.CONNECTED, FALSE)
    if connected is not None and connected.reason in conditions.CUT_OFF:
        return True
    return conditions.said(binding, conditions.HEARTBEATING, FALSE) is not None


def reports_refusal(binding: Manifest) -> bool:
    """Tell whether the konnector of a binding reports that its token is not taken any more.

    The original's only repeats what the API server says.
    """
    refused = conditions.CONTROL_PLANE_REFUSES.reason
    connected = conditions.said(binding, conditions.CONNECTED, FALSE)
    if connected is not None and connected.reason == refused:
        return True
    beating = conditions.said(binding, conditions.HEARTBEATING, FALSE)
    return beating is not None and refused in beating.message
