"""Derives the names of an offering's kinds, and reads the sources in generated files.

So an offering can outlive its catalogue entry: its source lies in an annotation of the CRD of its
instances. The lock file that earlier versions wrote beside the files is read once more.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reconciler.api.osb import BrokerSpec, generated_kind, service_label
from reconciler.blueprints.offering.catalogue import CatalogueFault, Offering, Plan, Schemas
from reconciler.core import keys, manifest, names
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import Kind

VERSION: Final = "v1"
_WORD: Final = re.compile("[A-Za-z0-9]+")
_STEM: Final = re.compile("[A-Z][A-Za-z0-9]*")
_GROUP: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_TAKEN: Final = (".k8s.io", ".kubernetes.io")  # these take an approval
LOCK: Final = "catalog.lock"
_MOST_OCTETS: Final = 100 * 1024  # of an annotation: 256 KiB is what an object may have
_PARTS: Final = ("create", "update", "bind")
_DIGEST_LENGTH: Final = 16
_SHOWN: Final = ("displayName", "longDescription", "documentationUrl")  # of metadata


@dataclass(frozen=True, slots=True)
class Named:
    """An offering's kinds, by the broker that has it, their group and their stem."""

    broker: str
    group: str
    stem: str

    @property
    def instances(self) -> Kind:
        return self._kind("Instance")

    @property
    def bindings(self) -> Kind:
        return self._kind("Binding")

    @property
    def service(self) -> str:
        """The label of Secrets with credentials."""
        return service_label(self.broker, self.stem.lower())

    @property
    def template(self) -> str:
        return f"{self.broker}-{self.stem.lower()}"

    def _kind(self, suffix: str) -> Kind:
        kind = f"{self.stem}{suffix}"
        return Kind(self.group, VERSION, kind, f"{kind.lower()}s")


def stem_of(offering: str) -> str:
    """Return the words of an offering's name, capitalised and in one; "" where it has none."""
    plain = unicodedata.normalize("NFKD", offering).encode("ascii", "ignore").decode()
    words = "".join(word[0].upper() + word[1:] for word in _WORD.findall(plain))
    return f"S{words}" if words[:1].isdigit() else words


def check_broker(broker: BrokerSpec) -> None:
    """Raise CatalogueFault where names that follow from a ServiceBroker could not be used."""
    problems = []
    if problem := names.label_problem(broker.name):
        problems.append(f"the ServiceBroker's name: {problem}")
    if not _GROUP.fullmatch(broker.group) or len(broker.group) > 190:
        problems.append(f"group {broker.group!r} is none, such as services.acme.example")
    if f".{broker.group}".endswith(_TAKEN):
        problems.append(f"group {broker.group} is one of Kubernetes itself")
    if problems:
        raise CatalogueFault(problems)


def check(offered: Iterable[tuple[str, Named]]) -> None:
    """Raise CatalogueFault where names, each with its offering's, are too long or alike."""
    problems = []
    seen: dict[str, str] = {}
    for offering, named in offered:
        if not _STEM.fullmatch(named.stem):
            problems.append(f"offering {offering}: no kind follows from its name: set `kind`")
        elif problem := _too_long(named):
            problems.append(f"offering {offering}: {problem}: set a shorter `kind`")
        first = seen.setdefault(named.stem.lower(), offering)
        if first != offering:
            problems.append(f"offerings {first} and {offering} have one kind: set `kind`")
    if problems:
        raise CatalogueFault(problems)


def _too_long(named: Named) -> str:
    longest = f"{named.instances.kind}List".lower()
    if len(longest) > names.MAX_LABEL:
        return f"{longest} has more than {names.MAX_LABEL} characters"
    for text in (named.service, named.template):
        if len(text) > names.MAX_LABEL:
            return f"{text} has more than {names.MAX_LABEL} characters"
    return ""


@dataclass(frozen=True, slots=True)
class Known:
    """An offering that files were made from, and the stem of its kinds."""

    stem: str
    offering: Offering


@dataclass(frozen=True, slots=True)
class Before:
    """The sources of all files; `files` are their names. The empty one is of no files."""

    broker: str = ""
    group: str = ""
    known: Mapping[str, Known] = field(default_factory=dict)  # by the offering's id
    files: frozenset[str] = frozenset()

    def by_name(self, offering: str) -> Known | None:
        return next((one for one in self.known.values() if one.offering.name == offering), None)


def before(files: Mapping[str, Sequence[Manifest]], lock: bytes | None) -> Before:
    """Return the sources in generated files, or in a lock file. Raises ConfigError."""
    if lock is not None:
        stored = _json(lock, LOCK)
        schemas = manifest.get_map(stored, "schemas")
        found = [_known(one, schemas) for one in manifest.get_maps(stored, "offerings")]
        of = (manifest.get_text(stored, "broker"), manifest.get_text(stored, "group"))
        names = frozenset((*files, LOCK))
        return Before(*of, {one.offering.id: one for one in found}, names)
    broker = group = ""
    known: dict[str, Known] = {}
    for path, documents in files.items():
        for document in documents:
            kind = generated_kind(document)
            if kind is not None:
                broker, group = kind.broker, kind.kind.group
            if text := manifest.annotations_of(document).get(keys.OSB_OFFERED, ""):
                stored = _json(text, f"{path}, annotation {keys.OSB_OFFERED}")
                one = _known(stored, manifest.get_map(stored, "schemas"))
                known[one.offering.id] = one
    return Before(broker, group, known, frozenset(files))


def _json(content: str | bytes, where: str) -> Manifest:
    try:
        return manifest.get_map(json.loads(content))
    except (ValueError, RecursionError):
        hint = "Take it from Git; without it, nothing is known of plans that files were made for"
        raise ConfigError("it is no JSON", where=where, hint=hint) from None


def _known(stored: Manifest, schemas: Manifest) -> Known:
    offering = Offering(
        id=manifest.get_text(stored, "id"),
        name=manifest.get_text(stored, "name"),
        description=manifest.get_text(stored, "description"),
        metadata=manifest.get_map(stored, "metadata"),
        plans=tuple(_plan(one, schemas) for one in manifest.get_maps(stored, "plans")),
    )
    return Known(manifest.get_text(stored, "stem"), offering)


def _plan(stored: Manifest, schemas: Manifest) -> Plan:
    digests = manifest.get_text_map(stored, "schemas")
    parts = {key: manifest.get_map(schemas, digests[key]) for key in _PARTS if key in digests}
    return Plan(
        id=manifest.get_text(stored, "id"),
        name=manifest.get_text(stored, "name"),
        description=manifest.get_text(stored, "description"),
        bindable=manifest.get_bool(stored, "bindable"),
        plan_updateable=manifest.get_bool(stored, "planUpdateable"),
        schemas=Schemas(**parts),
    )


def noted(known: Known) -> str:
    """Return the annotation. Schemas that are too large are left out: they are any object then."""
    offering, schemas = known.offering, dict[str, JSON]()
    shown = {key: manifest.get_text(offering.metadata, key) for key in _SHOWN}
    source: dict[str, JSON] = {
        "id": offering.id,
        "name": offering.name,
        "stem": known.stem,
        "description": offering.description,
        "metadata": {key: text for key, text in shown.items() if text},
        "plans": [_noted_plan(plan, schemas) for plan in offering.plans],
    }
    text = manifest.canonical({**source, "schemas": schemas})
    if len(text) > _MOST_OCTETS:
        text = manifest.canonical({**source, "schemas": {}})
    return text.decode()


def _noted_plan(plan: Plan, schemas: dict[str, JSON]) -> dict[str, JSON]:
    digests: dict[str, JSON] = {}
    for key in _PARTS:
        schema = getattr(plan.schemas, key)
        if schema is not None:
            mark = manifest.digest(schema)[:_DIGEST_LENGTH]
            digests[key], schemas[mark] = mark, schema
    return {
        "id": plan.id,
        "name": plan.name,
        "description": plan.description,
        "bindable": plan.bindable,
        "planUpdateable": plan.plan_updateable,
        "schemas": digests,
    }
