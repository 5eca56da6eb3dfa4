"""Writes a bind as fleet files: a Binding, and a Template with the accepted claims only."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from klutchctl import files, repository
from klutchctl.binding.response import Wanted
from klutchctl.render import manifests
from klutchctl.settings import Settings
from reconciler.core import manifest
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import JSON, Manifest
from reconciler.fleet.files import ENTRY_NAMES, Snapshot
from reconciler.fleet.load import Loaded
from reconciler.fleet.service_models import Selector
from reconciler.reports import imports

_HEAD: Final = "# Written by `klutchctl bind --write`: what a provider offers, and who gets it.\n"


@dataclass(frozen=True, slots=True)
class FleetFile:
    """A file that is to be written in the fleet repository at `folder`."""

    folder: Path
    path: str
    snapshot: Snapshot
    loaded: Loaded
    force: bool

    def write(
        self, agreed: Sequence[tuple[Wanted, Sequence[Manifest]]], settings: Settings
    ) -> Path:
        """Write the file, and return its path.

        Raises ConfigError, InvalidRepository where the fleet would not be valid with it.
        """
        chosen = repository.chosen(self.loaded.fleet, settings) or frozenset()
        found = [_import(wanted, claims, sorted(chosen)) for wanted, claims in agreed]
        written = [
            _selecting(one, settings.selector) for one in imports.documents(self.loaded, found)
        ]
        lines = ["\n".join(manifests.yaml_lines(one)) for one in written]
        content = (_HEAD + "\n---\n".join(lines) + "\n").encode()
        together = {**self.snapshot.files, self.path: content}
        repository.documents(replace(self.snapshot, files=together))
        target = self.folder / self.path
        if self.force:
            target.parent.mkdir(parents=True, exist_ok=True)
            files.write(target, content)
        else:
            files.write_new(target, content)
        return target


def opened(file: Path, settings: Settings, *, force: bool) -> FleetFile:
    """Return the file in its fleet repository. Raises ConfigError, InvalidRepository, HostError."""
    if not settings.clusters and settings.selector is None:
        raise ConfigError("for which clusters? Name them with --cluster or -l", where="--write")
    folder = _fleet_of(file)
    snapshot = repository.snapshot_in(folder, check_owner=settings.git_owner_check)
    path = Path(os.path.relpath(file.absolute(), folder)).as_posix()
    if file.exists() and not force:
        raise ConfigError("is there already", where=str(file), hint="--force replaces it")
    others = {name: body for name, body in snapshot.files.items() if name != path}
    snapshot = replace(snapshot, files=others)
    loaded = repository.documents(snapshot)
    if not imports.belongs(loaded, path):
        where = str(loaded.fleet.origin)
        hint = "Choose a path of spec.include, such as bindings/NAME.yaml"
        raise ConfigError(f"no include matches {path}", where=where, hint=hint)
    repository.chosen(loaded.fleet, settings)
    return FleetFile(folder, path, snapshot, loaded, force)


def _fleet_of(file: Path) -> Path:
    for folder in file.absolute().parents:
        if any((folder / name).is_file() for name in ENTRY_NAMES):
            return folder
    raise ConfigError("is in no fleet repository", where=str(file))


def _import(wanted: Wanted, claims: Sequence[Manifest], clusters: Sequence[str]) -> imports.Import:
    try:
        stated = [imports.file_claim(claim) for claim in claims]
    except imports.Unsayable as reason:
        raise ConfigError(f"{wanted.resource.name}: {reason}", where="--write") from None
    return imports.Import(
        group=wanted.resource.group,
        resource=wanted.resource.plural,
        clusters=tuple(clusters),
        claims=tuple(sorted(stated, key=manifest.canonical)),
        parameters={},
    )


def _selecting(document: imports.Document, selector: Selector | None) -> Manifest:
    """Return a document whose Binding selects by labels, where those were given."""
    if selector is None or document["kind"] != "Binding":
        return dict(document)
    chosen: dict[str, JSON] = selector.model_dump(by_alias=True, exclude_defaults=True)
    return manifest.put(dict(document), chosen, "spec", "clusters")
