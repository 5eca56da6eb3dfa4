"""Which clusters a fleet repository names: the least that a sandbox has to know of it.

Reads the kubeconfig contexts of ControlPlane and Cluster documents and judges nothing else.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from klutchctl.sandbox.state import Role, Wanted
from reconciler.core.errors import ConfigError

_API_VERSION: Final = "fleet.klutchctl.dev/v1alpha1"
_ROOTS: Final = ("fleet.yaml", "klutch-fleet.yaml")
_ROLES: Final = {"ControlPlane": Role.CONTROL_PLANE, "Cluster": Role.APP_CLUSTER}


@dataclass(frozen=True, slots=True)
class _Document:
    path: Path
    content: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.content.get("kind"))

    @property
    def where(self) -> str:
        metadata = self.content.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        return f"{self.path}: {self.kind} {name or 'without a name'}"


def read(path: Path) -> tuple[Wanted, ...]:
    """Return the clusters of the fleet at `path`, a repository folder or its root file.

    Raises ConfigError for what cannot be read, and where a sandbox could not stand in.
    """
    root = _root_file(path)
    documents = list(_documents(root))
    for fleet in [document for document in documents if document.kind == "Fleet"]:
        for file in _included(root, fleet):
            documents.extend(_documents(file))
    wanted: dict[str, Wanted] = {}
    for document in documents:
        role = _ROLES.get(document.kind)
        if role is None:
            continue
        context = _context(document)
        if context in wanted:
            raise ConfigError(
                f"the kubeconfig context {context!r} belongs to another cluster already",
                where=document.where,
            )
        wanted[context] = Wanted(context, role)
    if Role.CONTROL_PLANE not in {want.role for want in wanted.values()}:
        raise ConfigError("the fleet has no ControlPlane document", where=str(root))
    return tuple(wanted.values())


def _root_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = [path / name for name in _ROOTS if (path / name).is_file()]
    if len(found) != 1:
        problem = "holds neither of" if not found else "holds both"
        raise ConfigError(f"the folder {problem} {' and '.join(_ROOTS)}", where=str(path))
    return found[0]


def _documents(file: Path) -> Iterator[_Document]:
    try:
        contents = list(yaml.load_all(file.read_bytes(), Loader=yaml.CSafeLoader))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(file)) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else str(file)
        raise ConfigError(f"not YAML: {error.problem}", where=place) from error
    except yaml.YAMLError as error:
        raise ConfigError("not YAML", where=str(file)) from error
    for content in contents:
        if content is None:
            continue
        if not isinstance(content, dict) or content.get("apiVersion") != _API_VERSION:
            raise ConfigError(f"a document is not of apiVersion {_API_VERSION}", where=str(file))
        yield _Document(file, content)


def _included(root: Path, fleet: _Document) -> list[Path]:
    spec = fleet.content.get("spec")
    patterns = spec.get("include", []) if isinstance(spec, Mapping) else []
    if not isinstance(patterns, list) or not all(isinstance(p, str) and p for p in patterns):
        raise ConfigError("spec.include is not a list of globs", where=fleet.where)
    folder = root.parent.resolve()
    files: set[Path] = set()
    for pattern in patterns:
        if pattern.startswith("/") or ".." in Path(pattern).parts:
            raise ConfigError(f"the include {pattern!r} leaves the repository", where=fleet.where)
        files.update(file.resolve() for file in folder.glob(pattern) if file.is_file())
    outside = [file for file in files if not file.is_relative_to(folder)]
    if outside:
        raise ConfigError(f"the include {outside[0]} leaves the repository", where=fleet.where)
    return sorted(files - {root.resolve()})


def _context(document: _Document) -> str:
    spec = document.content.get("spec")
    access = spec.get("access") if isinstance(spec, Mapping) else None
    context = access.get("kubeconfigContext") if isinstance(access, Mapping) else None
    if not isinstance(context, str) or not context:
        raise ConfigError(
            "spec.access.kubeconfigContext is missing",
            where=document.where,
            hint="A sandbox stands in for clusters that are reached through a kubeconfig",
        )
    return context
