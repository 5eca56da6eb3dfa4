"""Parses services/services.yaml of a fleet repository: the services of a sandbox."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from klutchctl import files
from klutchctl.sandbox.state import Component
from reconciler.core import yaml_text
from reconciler.core.errors import ConfigError, InvalidRepository, Origin, Problem
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.yaml_text import Fields, Node, UnreadableText, locate
from reconciler.fleet import base_model, wording
from reconciler.fleet.files import ENTRY_NAMES, Patterns

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
    origin: Origin


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
    """Return what the folder says. Raises InvalidRepository with all problems, and ConfigError."""
    folder = folder.resolve()
    document, node = parse(_bytes(folder / FILE), str(folder / FILE))
    problems: list[Problem] = []
    paths: dict[Path, None] = {}
    names = sorted(_names(folder))
    for index, pattern in enumerate(document.spec.manifests):
        wanted = Patterns([pattern])
        matched = [name for name in names if wanted.matches(name)]
        paths.update(dict.fromkeys(folder / name for name in matched))
        if not matched:
            origin = locate(node, ("spec", "manifests", index))[0]
            problems.append(Problem(origin, "no-match", f"no file is like {pattern}"))
    manifests = [one for path in paths for one in _objects(path, problems)]
    if problems:
        raise InvalidRepository(problems)
    spec = document.spec
    return Suite(folder, tuple(spec.components), tuple(spec.programs), tuple(manifests))


def parse(content: bytes, path: str) -> tuple[Services, Node]:
    """Return the document in `content`, and its node. Raises InvalidRepository."""
    try:
        nodes = yaml_text.read_all(content, path)
    except UnreadableText as error:
        raise InvalidRepository([_unreadable(error)]) from None
    if len(nodes) != 1:
        message = f"there must be one document in here, and there are {len(nodes)}"
        raise InvalidRepository([Problem(Origin(path, 1, 1), "wrong-type", message)])
    [node] = nodes
    try:
        document = Services.model_validate(node.plain(), by_alias=True, by_name=False)
    except UnreadableText as error:
        raise InvalidRepository([_unreadable(error)]) from None
    except ValidationError as error:
        raise InvalidRepository(base_model.problems_of(error, node, Services)) from None
    problems = list(_misfits(document, node))
    if problems:
        raise InvalidRepository(problems)
    return document, node


def _misfits(document: Services, node: Node) -> Iterator[Problem]:
    """Return the problems between parts that are each right."""
    seen: set[str] = set()
    for index, program in enumerate(document.spec.programs):
        steps: tuple[str | int, ...] = ("spec", "programs", index)
        if program.name in seen:
            origin = locate(node, (*steps, "name"))[0]
            yield Problem(origin, "duplicate-program", f"program {program.name} is there twice")
        seen.add(program.name)
        if Component.POSTGRESQL in document.spec.components:
            continue
        for word, text in enumerate(program.command):
            if _OF_POSTGRESQL.intersection(_REFERENCE.findall(text)):
                message = f"{text} needs the component {Component.POSTGRESQL}"
                origin = locate(node, (*steps, "command", word))[0]
                yield Problem(origin, "missing-component", message, "Add it to spec.components")


def _objects(path: Path, problems: list[Problem]) -> Iterator[Written]:
    try:
        nodes = yaml_text.read_all(_bytes(path), str(path))
        for node in nodes:
            if not isinstance(node, Fields) or not _is_object(node.plain()):
                message = "an object has apiVersion, kind and metadata.name"
                problems.append(Problem(node.origin, "no-object", message))
            else:
                yield Written(node.plain(), node.origin)
    except UnreadableText as error:
        problems.append(_unreadable(error))


def _is_object(manifest: Manifest) -> bool:
    needed = (("apiVersion",), ("kind",), ("metadata", "name"))
    return all(get_text(manifest, *place) for place in needed)


def _bytes(path: Path) -> bytes:
    """Return what a file holds. A link could lead out of the repository, and is not followed."""
    if path.is_symlink():
        raise ConfigError("is a symbolic link", where=str(path))
    hint = f"Services come from a file {FILE}; --no-services continues without"
    return files.read(path, hint=hint if path.name == FILE else "")


def _names(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.relative_to(folder).as_posix()


def _unreadable(error: UnreadableText) -> Problem:
    return Problem(error.origin, error.code, error.message, error.hint)
