"""Reads a ServiceBroker from a file, asks its broker, and writes the generated files."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from klutchctl import files
from klutchctl.entry import awaited
from klutchctl.render import manifests
from reconciler.api.osb import SERVICE_BROKER, BrokerSpec, broker_spec
from reconciler.blueprints.offering import kinds
from reconciler.blueprints.offering.catalogue import Catalogue, CatalogueFault, catalogue_of
from reconciler.blueprints.offering.files import Documents, Output, files_of
from reconciler.core import manifest, yaml_text
from reconciler.core.addresses import is_loopback
from reconciler.core.errors import ConfigError
from reconciler.kube import crds

_HEAD: Final = (
    "# Written by `klutchctl catalog` from a broker's catalogue: run it again, do not edit.\n"
)
_PLACES: Final = ("templates.yaml", "rights.yaml", "crds/*.yaml", "fleet/*.yaml")
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def generated(
    broker: Path,
    folder: Path,
    saved: Path | None,
    credentials: Path | None,
    *,
    allow_narrowing: bool,
) -> Output:
    """Return the files for a broker's offers: by its `saved` catalogue, else by its answer.

    Raises ConfigError, BrokerFault and others.
    """
    spec = _broker_in(broker)
    where = f"ServiceBroker {spec.name}"
    with _faults_of(str(saved or where)):
        found = (
            awaited(_fetched(spec, credentials or Path()))
            if saved is None
            else catalogue_of(files.read(saved))
        )
    lock_file = folder / kinds.LOCK
    lock = files.read(lock_file) if lock_file.exists() else None
    before = _made_before(folder)
    with _faults_of(where):
        return files_of(spec, found, before, lock, allow_narrowing=allow_narrowing)


@contextmanager
def _faults_of(where: str) -> Iterator[None]:
    """Turn the faults of a catalogue into an error that names `where`."""
    try:
        yield
    except CatalogueFault as error:
        raise ConfigError("; ".join(error.problems), where=where) from None


def _broker_in(file: Path) -> BrokerSpec:
    """Return the one ServiceBroker of a file. Raises ConfigError, also for fields that are none."""
    documents = [node.plain() for node in yaml_text.read_all(files.read(file), str(file))]
    found = [one for one in documents if manifest.get_text(one, "kind") == SERVICE_BROKER.kind]
    if len(found) != 1 or not isinstance(found[0], dict):
        raise ConfigError(f"{len(found)} ServiceBrokers are there, and not one", where=str(file))
    (definition,) = crds.load(SERVICE_BROKER.resource)
    (version,) = manifest.get_maps(definition, "spec", "versions")
    problems = [*_head_problems(found[0])]
    schema = manifest.get_map(version, "schema", "openAPIV3Schema", "properties", "spec")
    problems += _problems(schema, found[0].get("spec"), "spec")
    if problems:
        raise ConfigError("; ".join(problems), where=str(file))
    return broker_spec(found[0])


def _head_problems(live: manifest.Manifest) -> Iterator[str]:
    if manifest.get_text(live, "apiVersion") != SERVICE_BROKER.api_version:
        yield f"apiVersion is not {SERVICE_BROKER.api_version}"
    if not manifest.get_text(live, "metadata", "name"):
        yield "metadata.name is missing"


def _problems(schema: manifest.Manifest, value: manifest.JSON, path: str) -> Iterator[str]:
    """Return the parts that an API server would refuse or drop, in words."""
    kind = manifest.get_text(schema, "type")
    if not isinstance(value, _TYPES.get(kind, object)):
        yield f"{path} is no {kind}" if value is not None else f"{path} is missing"
        return
    properties = manifest.get_map(schema, "properties")
    for name in manifest.get_map(value):
        if properties and name not in properties:
            yield f"{path}.{name} is no field: there are {', '.join(sorted(properties))}"
    for name in manifest.get_texts(schema, "required"):
        if name not in manifest.get_map(value):
            yield f"{path}.{name} is missing"
    for name, inner in properties.items():
        if name in manifest.get_map(value) and isinstance(inner, Mapping):
            yield from _problems(inner, manifest.get_map(value)[name], f"{path}.{name}")
    for place, item in enumerate(manifest.get_list(value)):
        yield from _problems(manifest.get_map(schema, "items"), item, f"{path}[{place}]")
    pattern = manifest.get_text(schema, "pattern")
    if isinstance(value, str) and pattern and not re.search(pattern, value):
        yield f"{path} is not of the form {pattern}"


async def _fetched(spec: BrokerSpec, credentials: Path) -> Catalogue:
    """Return the catalogue as the broker answers it. Raises ConfigError, BrokerFault and others.

    What stands in a file of the person who runs this may lead to the own machine.
    """
    from reconciler.broker.client import BrokerClient, address_of

    keys = yaml_text.read(files.read(credentials), str(credentials)).plain()
    address = address_of(spec, {"stringData": keys})
    parts = urlsplit(address.url)
    here = is_loopback(parts)  # it never leaves this machine
    if not here and parts.scheme != "https":
        hint = "Save the answer of GET /v2/catalog, and give it with --catalog"
        raise ConfigError("only https is asked", where=f"ServiceBroker {spec.name}", hint=hint)
    async with BrokerClient(
        address,
        timeout=spec.timing.request,
        allow_loopback=True,
        allow_plain_http=here,
        allow_insecure=spec.insecure,
    ) as client:
        return await client.catalogue()


@dataclass(frozen=True, slots=True)
class Change:
    """A file that is not as it should be; `content` None is of one that should not be there."""

    path: str
    verb: str
    content: bytes | None


def changes(folder: Path, output: Output) -> list[Change]:
    """Return the files that differ; a lock file of earlier versions goes last.

    Raises ConfigError for a file in the way that was not made from a catalogue.
    """
    found = []
    for path, documents in sorted(output.files.items()):
        texts = ["\n".join(manifests.yaml_lines(one)) for one in documents]
        content, file = (_HEAD + "\n---\n".join(texts) + "\n").encode(), folder / path
        there = files.read(file) if file.exists() else None
        if there is not None and there != content:
            if path not in output.before:
                hint = "Move it, or choose another folder with --out"
                raise ConfigError(
                    "is there already, and not from a catalogue", where=str(file), hint=hint
                )
            found.append(Change(path, "changed", content))
        elif there is None:
            found.append(Change(path, "new", content))
    names = sorted(output.before - output.files.keys())
    gone = [Change(path, "gone", None) for path in names if (folder / path).exists()]
    last = [one for one in gone if one.path == kinds.LOCK]
    return [*(one for one in gone if one not in last), *found, *last]


def _made_before(folder: Path) -> dict[str, Documents]:
    """Return the documents of the files that were made from a catalogue. Raises ConfigError."""
    paths = (path for pattern in _PLACES for path in sorted(folder.glob(pattern)))
    texts = {path.relative_to(folder).as_posix(): files.read(path) for path in paths}
    return {
        path: tuple(
            m for node in yaml_text.read_all(text, path) if isinstance(m := node.plain(), dict)
        )
        for path, text in texts.items()
        if text.startswith(_HEAD.encode())
    }


def write(folder: Path, differing: list[Change]) -> None:
    """Write the files in order: after a crash, another run goes on."""
    for change in differing:
        if change.content is None:
            (folder / change.path).unlink(missing_ok=True)
        else:
            files.write_shared(folder / change.path, change.content)
