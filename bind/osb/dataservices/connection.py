"""Stores a ServiceBinding's bindings in an annotation, and builds Crossplane's connection Secret.

It has the credentials of a binding, as provider-anynines writes them.

Maps are flattened with dots, lists are `[a b]`, and a key that repeats a nested one is left out.
Does not know whether there should be a Secret.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from bind.osb.dataservices import managed, rules
from bind.osb.dataservices.rules import read_json
from bind.osb.decisions import record
from bind.osb.decisions.credentials import NO_KEY
from reconciler.core import keys, manifest
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import ObjectKey
from reconciler.core.secret import Secret

CREATED: Final = "true"
SECRET_TYPE: Final = "connection.crossplane.io/v1alpha1"
_SQL: Final = (("host", "port", "SQL"),)
# For each type of instance: the keys of host and port, and the name of the endpoint. Without a key
# of the port, the host includes it.
_ENDPOINTS: Final[Mapping[str, Sequence[tuple[str, str, str]]]] = {
    "postgresql": _SQL,
    "mariadb": _SQL,
    "keyvalue": (("host", "valkey.port", "KeyValue"), ("host", "port", "KeyValue")),
    "mongodb": (("hosts", "", "MongoDB"),),
    "search": (("host", "", "Search"),),
    "logme2": (("host", "", "Logme2"),),
    "prometheus": (
        ("prometheus_urls", "", "Prometheus"),
        ("alertmanager_urls", "", "Alertmanager"),
        ("grafana_urls", "", "Grafana"),
        ("graphite_exporters", "graphite_exporter_port", "Graphite"),
    ),
}
_ANY: Final = (("host", "port", ""), ("hostname", "port", ""))


@dataclass(frozen=True, slots=True)
class Ledger:
    """The bindings beside the first one, which has the uid as its id, by the annotation.

    `number` is that of the binding whose credentials count, made at `made`, `coming` that of one in
    its place, 0 without. `old` are ids of bindings that leave, and when; "": not before another one
    replaced them. `rotate` is the request that was answered last. `refused` is what was asked when
    the broker said no for good. So many `tries` of the present binding had an unknown outcome.
    `content` is the digest of the Secret as it was written.
    """

    number: int = 0
    coming: int = 0
    old: Mapping[str, str] = field(default_factory=dict)
    rotate: str = ""
    refused: str = ""
    tries: int = 0
    made: str = ""
    content: str = ""

    def text(self) -> str:
        """Return the annotation, "" where the original's rules give all of it."""
        if self == Ledger():
            return ""
        later = ("tries", "made", "content")
        wire = {key: one for key, one in asdict(self).items() if one or key not in later}
        return manifest.canonical(wire).decode()


def ledger_of(text: str) -> Ledger:
    return Ledger(**record.values_of(Ledger, rules.read_json(text) or {}))


@dataclass(frozen=True, slots=True)
class Seen(rules.OfBroker):
    """A ServiceBinding. `instance` is its ServiceInstance; `lookup` is why there is not one.

    `secret` is its connection Secret, None where it is absent, or was not read: `has_read`.
    """

    instance: Manifest | None = field(default=None, repr=False)
    lookup: str = ""
    secret: Manifest | None = field(default=None, repr=False)
    has_read: bool = False

    @property
    def ledger(self) -> Ledger:
        return ledger_of(self.annotations.get(keys.OSB_BINDINGS, ""))

    @property
    def operation(self) -> Manifest:
        """The operation that goes on, as its annotation has it; {} without."""
        return rules.read_json(self.annotations.get(keys.OSB_OPERATION, "")) or {}

    @property
    def is_created(self) -> bool:
        """Whether its credentials were handed out."""
        return self.annotations.get(keys.BINDING_CREATED) == CREATED

    @property
    def instance_id(self) -> str:
        """The id of its instance, "" where it was never asked for."""
        return manifest.get_text(self.at_provider, "instanceId")

    @property
    def plan_id(self) -> str:
        """The id of its instance's plan, which may have changed since."""
        at = manifest.get_map(self.instance, "status", "atProvider")
        if at and manifest.get_text(at, "instanceId") == self.instance_id:
            return manifest.get_text(at, "planId")
        return manifest.get_text(self.at_provider, "planID")

    @property
    def rotation(self) -> str:
        """The text by which a user asks for new credentials."""
        wish = self.annotations.get(keys.OSB_ROTATE, "")
        return wish if managed.may(self.live, "Update") else self.ledger.rotate

    @property
    def asked(self) -> str:
        """The subject of a refusal: another spec or annotation asks for something else."""
        generation = manifest.get_int(self.live, "metadata", "generation") or 0
        wish = self.annotations.get(keys.OSB_ROTATE, "")
        return f"{generation} {self.annotations.get(keys.OSB_RETRY, '')} {wish}"


def flattened(credentials: Secret) -> dict[str, str]:
    flat = dict(_entries(read_json(credentials.reveal()) or {}, ""))
    repeated = {
        key.rpartition(".")[2]
        for key, value in flat.items()
        if "." in key and flat.get(key.rpartition(".")[2]) == value
    }
    return {key: value for key, value in flat.items() if key not in repeated}


def _entries(value: Manifest, prefix: str) -> Iterable[tuple[str, str]]:
    for key, item in value.items():
        name = NO_KEY.sub("_", f"{prefix}.{key}" if prefix else key)
        if isinstance(item, Mapping):
            yield from _entries(item, name)
        else:
            yield name, _text(item)


def _text(value: JSON) -> str:
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{key}:{_text(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list | tuple):
        return f"[{' '.join(map(_text, value))}]"
    if value is None:
        return "<nil>"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def place(live: Manifest) -> ObjectKey | None:
    """Return where the Secret of a managed resource is to be, None where it wants none.

    As in Crossplane 2.x, that of a namespaced one is beside it: no other namespace is reached.
    """
    ref = manifest.get_map(live, "spec", "writeConnectionSecretToRef")
    namespace = manifest.namespace_of(live) or manifest.get_text(ref, "namespace")
    found = ObjectKey(namespace, manifest.get_text(ref, "name"))
    return found if all(found) else None


def decoded(value: str) -> str:
    """Return the text of a value of a Secret, "" where it is none."""
    try:
        return base64.b64decode(value).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def details(texts: Mapping[str, str], instance_type: str) -> list[JSON]:
    """Return the address of a service, as far as its credentials name it: no names, no passwords.

    `instance_type` is what the binding's label says; of others host and port are told.
    """
    known = next((keys for name, keys in _ENDPOINTS.items() if name in instance_type), _ANY)
    found = [_detail(texts, *one) for one in known]
    return [*(one for at, one in enumerate(found) if one and one not in found[:at])]


def _detail(texts: Mapping[str, str], host: str, port: str, label: str) -> dict[str, JSON]:
    stated = texts.get(host, "").strip("[]").split(" ")[0]
    number = texts.get(port, "")
    if not port:
        stated, _, number = stated.rpartition(":")
    number = number.partition("/")[0]
    if not stated or "@" in stated or not number.isdigit():
        return {}
    detail: dict[str, JSON] = {"hostURL": stated, "port": number}
    return {**detail, "label": label} if label else detail
