"""Parses a fleet repository's services/services.yaml, and applies objects until each is accepted.

Objects need others that come up meanwhile: a kind its CRD, a claim the controller that makes its
CRD, an object its namespace. No order is needed for that, only time:
CRDs come first, then others.
"""

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from klutchctl import files
from klutchctl.sandbox.state import Component, Role
from reconciler.core import conditions, errors, yaml_text
from reconciler.core import manifest as m
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import CRD, Kind, Ref
from reconciler.core.yaml_text import Fields, Node, UnreadableText, locate
from reconciler.fleet import base_model, wording
from reconciler.fleet.files import ENTRY_NAMES, Patterns
from reconciler.kube import crds
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection

FILE: Final = "services.yaml"
_FOLDER: Final = "services"
_IN_WHEEL: Final = Path(__file__).parent / "example"
_IN_CHECKOUT: Final = Path(__file__).parents[2] / "fleet-example" / "services"
# What `${...}` in a command can stand for.
REFERENCES: Final = frozenset({"binaries", "data", "kubeconfig", "postgresql", "python"})
_OF_POSTGRESQL: Final = frozenset({"binaries", "postgresql"})
_REFERENCE: Final = re.compile(r"\$\{([^}]*)\}?")
# Names that servers of the sandbox have already.
_TAKEN: Final = frozenset(
    {"etcd", "kube-apiserver", "kube-controller-manager", "keycloak", *Component}
)
_CRDS: Final = {
    Role.CONTROL_PLANE: (*crds.CONTROL_PLANE, *crds.CONTROLLER),
    Role.APP_CLUSTER: crds.APP_CLUSTER,
}
_MANAGER: Final = "klutchctl"
_DEADLINE: Final = 120.0
_REFUSED_DEADLINE: Final = 20.0  # without a change of what is refused
_POLL: Final = 0.1
_XRD: Final = ("apiextensions.crossplane.io", "CompositeResourceDefinition")


def _component(value: Any) -> Any:
    if isinstance(value, str) and value in {*Component}:
        return Component(value)
    raise base_model.refused(f"must be one of {', '.join(Component)}", code="not-one-of")


def _command_word(text: str) -> str:
    for name in _REFERENCE.findall(text):
        if name not in REFERENCES:
            nearest = wording.nearest(name, REFERENCES)
            raise base_model.refused(
                f"refers to {wording.quoted(name)}. {nearest}", code="unknown-reference"
            )
    return text


def _free_name(name: str) -> str:
    if name in _TAKEN:
        raise base_model.refused("is the name of a server that the sandbox runs itself")
    return name


_Component: TypeAlias = Annotated[Component, BeforeValidator(_component)]


class Program(base_model.StrictModel):
    """A process to run. Its working folder is the folder of the file."""

    name: Annotated[base_model.Name, AfterValidator(_free_name)]
    command: list[Annotated[base_model.Line, AfterValidator(_command_word)]] = Field(min_length=1)


class Spec(base_model.StrictModel):
    """The programs to run and the files to apply."""

    components: list[_Component] = Field(default_factory=list)
    manifests: list[base_model.PathPattern] = Field(default_factory=list)
    programs: list[Program] = Field(default_factory=list)


class Services(base_model.StrictModel):
    """The document."""

    api_version: Literal["sandbox.klutchctl.dev/v1alpha1"]
    kind: Literal["Services"]
    metadata: base_model.Metadata
    spec: Spec


@dataclass(frozen=True, slots=True)
class Written:
    """An object to apply, and where it is written."""

    manifest: Manifest
    origin: errors.Origin


@dataclass(frozen=True, slots=True)
class Suite:
    """A folder with services. `manifests` are in the order of the patterns, then of the files."""

    folder: Path
    components: tuple[Component, ...]
    programs: tuple[Program, ...]
    manifests: tuple[Written, ...]


def folder_of(fleet: Path | None) -> Path:
    """Return the folder with the services of a fleet, None: of the one in this folder.

    A fleet that says nothing of services has those of the example, which a wheel carries in this
    package.
    """
    at = Path() if fleet is None else fleet if fleet.is_dir() else fleet.parent
    file = at / _FOLDER / FILE
    is_fleet = fleet is not None or any(Path(name).is_file() for name in ENTRY_NAMES)
    if is_fleet and os.path.lexists(file):
        return file.parent
    return _IN_WHEEL if _IN_WHEEL.is_dir() else _IN_CHECKOUT


def read(folder: Path) -> Suite:
    """Read the manifests of a folder. Raises InvalidRepository with all problems, ConfigError."""
    folder = folder.resolve()
    document, node = parse(_bytes(folder / FILE), str(folder / FILE))
    problems: list[errors.Problem] = []
    paths: dict[Path, None] = {}
    names = sorted(_names(folder))
    for index, pattern in enumerate(document.spec.manifests):
        wanted = Patterns([pattern])
        matched = [name for name in names if wanted.matches(name)]
        paths.update(dict.fromkeys(folder / name for name in matched))
        if not matched:
            origin = locate(node, ("spec", "manifests", index))[0]
            problems.append(errors.Problem(origin, "no-match", f"no file is like {pattern}"))
    manifests = [one for path in paths for one in _objects(path, problems)]
    if problems:
        raise errors.InvalidRepository(problems)
    spec = document.spec
    return Suite(folder, tuple(spec.components), tuple(spec.programs), tuple(manifests))


def parse(content: bytes, path: str) -> tuple[Services, Node]:
    """Return the document in `content`, and its node. Raises InvalidRepository."""
    try:
        nodes = yaml_text.read_all(content, path)
    except UnreadableText as error:
        raise errors.InvalidRepository([_unreadable(error)]) from None
    if len(nodes) != 1:
        message = f"there must be one document in here, and there are {len(nodes)}"
        raise errors.InvalidRepository(
            [errors.Problem(errors.Origin(path, 1, 1), "wrong-type", message)]
        )
    [node] = nodes
    try:
        document = Services.model_validate(node.plain(), by_alias=True, by_name=False)
    except UnreadableText as error:
        raise errors.InvalidRepository([_unreadable(error)]) from None
    except ValidationError as error:
        raise errors.InvalidRepository(base_model.problems_of(error, node, Services)) from None
    problems = list(_misfits(document, node))
    if problems:
        raise errors.InvalidRepository(problems)
    return document, node


def _misfits(document: Services, node: Node) -> Iterator[errors.Problem]:
    """Return the problems between parts that are each right."""
    seen: set[str] = set()
    for index, program in enumerate(document.spec.programs):
        steps: tuple[str | int, ...] = ("spec", "programs", index)
        if program.name in seen:
            origin = locate(node, (*steps, "name"))[0]
            yield errors.Problem(
                origin, "duplicate-program", f"program {program.name} is there twice"
            )
        seen.add(program.name)
        if Component.POSTGRESQL in document.spec.components:
            continue
        for word, text in enumerate(program.command):
            if _OF_POSTGRESQL.intersection(_REFERENCE.findall(text)):
                message = f"{text} needs the component {Component.POSTGRESQL}"
                origin = locate(node, (*steps, "command", word))[0]
                yield errors.Problem(
                    origin, "missing-component", message, "Add it to spec.components"
                )


def _objects(path: Path, problems: list[errors.Problem]) -> Iterator[Written]:
    try:
        nodes = yaml_text.read_all(_bytes(path), str(path))
        for node in nodes:
            if not isinstance(node, Fields) or not _is_object(node.plain()):
                message = "an object has apiVersion, kind and metadata.name"
                problems.append(errors.Problem(node.origin, "no-object", message))
            else:
                yield Written(node.plain(), node.origin)
    except UnreadableText as error:
        problems.append(_unreadable(error))


def _is_object(manifest: Manifest) -> bool:
    needed = (("apiVersion",), ("kind",), ("metadata", "name"))
    return all(get_text(manifest, *place) for place in needed)


def _bytes(path: Path) -> bytes:
    """Return the content of a file. A link could lead out of the repository: none is followed."""
    if path.is_symlink():
        raise errors.ConfigError("is a symbolic link", where=str(path))
    hint = f"Services come from a file {FILE}; --no-services continues without"
    return files.read(path, hint=hint if path.name == FILE else "")


def _names(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.relative_to(folder).as_posix()


def _unreadable(error: UnreadableText) -> errors.Problem:
    return errors.Problem(error.origin, error.code, error.message, error.hint)


@dataclass(slots=True)
class _Pending:
    """An object that has not stuck yet, and why."""

    written: Written
    reason: str = "was not tried"
    refused: bool = False


@dataclass(slots=True)
class _Kinds:
    """The kinds that the cluster serves, looked up once each."""

    cluster: Cluster
    known: dict[tuple[str, str], Kind] = field(
        default_factory=lambda: {(CRD.api_version, CRD.kind): CRD}
    )

    async def of(self, manifest: Manifest) -> Kind:
        """Return the kind of an object. Raises NotServed."""
        api_version, name = m.get_text(manifest, "apiVersion"), m.get_text(manifest, "kind")
        if (api_version, name) not in self.known:
            self.known[api_version, name] = await self._find(api_version, name)
        return self.known[api_version, name]

    async def _find(self, api_version: str, name: str) -> Kind:
        group, _, version = api_version.rpartition("/")
        for plural in (*_plurals(name), *await self._plurals_in(group)):
            with contextlib.suppress(errors.NotServed):
                kind = await self.cluster.kind(group, version, plural)
                if kind.kind == name:
                    return kind
        absent = Kind(group, version, name, "")
        message = f"{self.cluster.name} does not serve {name} in {api_version}"
        raise errors.NotServed(message, ref=Ref(self.cluster.name, absent, "", ""), verb="get")

    async def _plurals_in(self, group: str) -> list[str]:
        """Return the plurals of custom kinds, which may be anything."""
        names = (m.name_of(crd) for crd in (await self.cluster.list(CRD, metadata_only=True)).items)
        parts = (name.partition(".") for name in names)
        return [plural for plural, _, of in parts if of == group]


async def install_everywhere(clusters: Iterable[tuple[Connection, Role]]) -> None:
    """Install on each cluster the CRDs of its role. Raises the errors of all that failed."""
    async with asyncio.TaskGroup() as group:
        for connection, role in clusters:
            group.create_task(_connect_and_install(connection, role))


async def _connect_and_install(connection: Connection, role: Role) -> None:
    async with KubeCluster(connection) as cluster:
        await install(cluster, role)


async def install(cluster: Cluster, role: Role) -> None:
    """Apply the CRDs of `role`, and wait until all are served. Raises HostError."""
    await install_all(cluster, crds.load(*_CRDS[role]))


async def install_all(cluster: Cluster, manifests: Iterable[Manifest]) -> None:
    await apply(cluster, [Written(one, errors.Origin("klutchctl")) for one in manifests])


async def apply(cluster: Cluster, objects: Sequence[Written], *, manager: str = _MANAGER) -> None:
    """Apply all, and wait until the definitions among them are served.

    What a fleet may own as well needs a `manager` of its own, beside that of klutchctl.

    Raises HostError with what does not stick: file, object and reason of each.
    """
    kinds = _Kinds(cluster)
    start = changed = time.monotonic()
    pending = [_Pending(one) for one in objects]
    while True:
        count, reasons = len(pending), [one.reason for one in pending]
        pending = [one for one in pending if not await _sticks(cluster, kinds, one, manager)]
        if not pending:
            return
        now = time.monotonic()
        if len(pending) < count or reasons != [one.reason for one in pending]:
            changed = now
        hopeless = all(one.refused for one in pending) and now - changed > _REFUSED_DEADLINE
        if hopeless or now - start > _DEADLINE:
            raise _failed(cluster, pending, now - start)
        await asyncio.sleep(_POLL)


async def _sticks(cluster: Cluster, kinds: _Kinds, pending: _Pending, manager: str) -> bool:
    manifest = pending.written.manifest
    try:
        kind = await kinds.of(manifest)
        if kind.namespaced and not m.namespace_of(manifest):
            manifest = m.put(manifest, "default", "metadata", "namespace")
        live = await cluster.apply(manifest, kind, manager=manager, force=True)
    except errors.ClusterError as error:
        pending.reason = error.message
        pending.refused = isinstance(error, errors.Rejected)
        return False
    missing = _missing_conditions(kind, live)
    pending.reason = f"is not {' and '.join(missing)}"
    pending.refused = False
    return not missing


def _missing_conditions(kind: Kind, live: Manifest) -> list[str]:
    """Return the conditions that a definition needs, and does not have yet."""
    wanted: list[str] = []
    if kind == CRD or (kind.group, kind.kind) == _XRD:
        wanted.append("Established")
    if (kind.group, kind.kind) == _XRD and m.get_text(live, "spec", "claimNames", "kind"):
        wanted.append("Offered")
    return [one for one in wanted if conditions.get(live, one, conditions.TRUE) is None]


def _plurals(kind: str) -> tuple[str, ...]:
    """Return the plurals of a kind in paths: by the rule of Kubernetes for kinds of its own."""
    word = kind.lower()
    if word.endswith("s"):
        return (f"{word}es", word)
    return (f"{word[:-1]}ies",) if word.endswith("y") else (f"{word}s",)


def _failed(cluster: Cluster, pending: Sequence[_Pending], seconds: float) -> errors.HostError:
    lines = [
        f"\n  {one.written.origin}: {m.get_text(one.written.manifest, 'kind')}"
        f" {m.name_of(one.written.manifest)}: {one.reason}"
        for one in pending
    ]
    return errors.HostError(
        f"{cluster.name} has not taken {len(pending)} objects after {seconds:.0f} s:"
        + "".join(lines),
        hint="Mend the files and run the command again; read the logs of the services",
    )
