"""Which overrides of a konnector on the control plane are allowed (trust.md T5).

Whoever may create an AppClusterBinding need not be one who may run any container beside the
control plane: an image with its arguments is as far as it goes. Refuses to know the container that
the overrides are laid over.
"""

from collections.abc import Iterator
from typing import Final

from reconciler.core import names
from reconciler.core.manifest import Manifest, get_map, get_maps, get_text

ALLOWED: Final = "image, imagePullPolicy, args, env, resources and probes"

_PLAIN: Final = frozenset({"image", "imagePullPolicy", "args"})
_PROBES: Final = frozenset({"livenessProbe", "readinessProbe", "startupProbe"})
_RESOURCES: Final = frozenset({"limits", "requests"})
_VARIABLE: Final = frozenset({"name", "value", "valueFrom"})
# Nothing of these is beyond the Pod and its namespace; a Secret is looked at by name.
_SOURCES: Final = frozenset({"fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef"})
# From where a probe is sent, others than the Pod can be reached.
_AIMS: Final = ("httpGet", "tcpSocket")


def refused(overrides: Manifest, secret: str) -> Iterator[str]:
    """Yield the path of each field that is not allowed.

    `secret` is the one Secret that variables may read: the konnector's own kubeconfig.
    """
    for field, value in sorted(overrides.items()):
        if value is None or field in _PLAIN:
            continue
        if field == "name":
            if value != names.KONNECTOR:
                yield field
        elif field == "env":
            yield from _variables(overrides, secret)
        elif field == "resources":
            yield from _others(get_map(overrides, field), _RESOURCES, field)
        elif field in _PROBES:
            yield from _aimed(get_map(overrides, field), field)
        else:
            yield field


def _variables(overrides: Manifest, secret: str) -> Iterator[str]:
    for place, variable in enumerate(get_maps(overrides, "env")):
        path = f"env[{place}]"
        yield from _others(variable, _VARIABLE, path)
        source = get_map(variable, "valueFrom")
        yield from _others(source, _SOURCES, f"{path}.valueFrom")
        if (
            source.get("secretKeyRef") is not None
            and get_text(source, "secretKeyRef", "name") != secret
        ):
            yield f"{path}.valueFrom.secretKeyRef"


def _aimed(probe: Manifest, path: str) -> Iterator[str]:
    for aim in _AIMS:
        if get_text(probe, aim, "host"):
            yield f"{path}.{aim}.host"


def _others(found: Manifest, known: frozenset[str], path: str) -> Iterator[str]:
    for field, value in sorted(found.items()):
        if value is not None and field not in known:
            yield f"{path}.{field}"
