"""What files were made from, so that what a catalogue no longer has can stay in them.

A file of its own beside the others: `catalog.lock`, JSON. Schemas that several plans share stand
there once.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from reconciler.blueprints.offering.catalogue import Offering, Plan, Schemas
from reconciler.core import manifest
from reconciler.core.errors import ConfigError

FILE: Final = "catalog.lock"
_PARTS: Final = ("create", "update", "bind")
_DIGEST_LENGTH: Final = 16
_OURS: Final = re.compile(r"(templates|rights|(crds|fleet)/[a-z0-9][-.a-z0-9]*)\.yaml")


@dataclass(frozen=True, slots=True)
class Known:
    """An offering that files were made from, and the stem of its kinds."""

    stem: str
    offering: Offering


@dataclass(frozen=True, slots=True)
class Lock:
    """What all files were made from; `files` are their names. The empty one is of no files."""

    broker: str = ""
    group: str = ""
    known: Mapping[str, Known] = field(default_factory=dict)  # by the offering's id
    files: tuple[str, ...] = ()

    def by_name(self, offering: str) -> Known | None:
        """Return the offering of a name."""
        return next((one for one in self.known.values() if one.offering.name == offering), None)


def read(content: bytes | None) -> Lock:
    """Return what the file holds; None is no file. Raises ConfigError."""
    if content is None:
        return Lock()
    try:
        held = json.loads(content)
    except (ValueError, RecursionError):
        hint = "Take it from Git; without it, nothing is known of plans that files were made for"
        raise ConfigError("it is no JSON", where=FILE, hint=hint) from None
    schemas = manifest.get_map(held, "schemas")
    found = [_known(one, schemas) for one in manifest.get_maps(held, "offerings")]
    return Lock(
        manifest.get_text(held, "broker"),
        manifest.get_text(held, "group"),
        {one.offering.id: one for one in found},
        # No other file is ever deleted, even if it is named there.
        tuple(path for path in manifest.get_texts(held, "files") if _OURS.fullmatch(path)),
    )


def _known(held: manifest.Manifest, schemas: manifest.Manifest) -> Known:
    offering = Offering(
        id=manifest.get_text(held, "id"),
        name=manifest.get_text(held, "name"),
        description=manifest.get_text(held, "description"),
        metadata=manifest.get_map(held, "metadata"),
        plans=tuple(_plan(one, schemas) for one in manifest.get_maps(held, "plans")),
    )
    return Known(manifest.get_text(held, "stem"), offering)


def _plan(held: manifest.Manifest, schemas: manifest.Manifest) -> Plan:
    said = manifest.get_text_map(held, "schemas")
    parts = {key: manifest.get_map(schemas, said[key]) for key in _PARTS if key in said}
    return Plan(
        id=manifest.get_text(held, "id"),
        name=manifest.get_text(held, "name"),
        description=manifest.get_text(held, "description"),
        bindable=manifest.get_bool(held, "bindable"),
        plan_updateable=manifest.get_bool(held, "planUpdateable"),
        schemas=Schemas(**parts),
    )


def written(lock: Lock) -> dict[str, manifest.JSON]:
    """Return the document of the file."""
    schemas: dict[str, manifest.JSON] = {}
    offerings: list[manifest.JSON] = [
        {
            "id": one.offering.id,
            "name": one.offering.name,
            "stem": one.stem,
            "description": one.offering.description,
            "metadata": one.offering.metadata,
            "plans": [_written_plan(plan, schemas) for plan in one.offering.plans],
        }
        for _, one in sorted(lock.known.items())
    ]
    return {
        "broker": lock.broker,
        "group": lock.group,
        "files": sorted(lock.files),
        "offerings": offerings,
        "schemas": dict(sorted(schemas.items())),
    }


def _written_plan(plan: Plan, schemas: dict[str, manifest.JSON]) -> dict[str, manifest.JSON]:
    said: dict[str, str] = {}
    for key in _PARTS:
        schema = getattr(plan.schemas, key)
        if schema is not None:
            said[key] = manifest.digest(schema)[:_DIGEST_LENGTH]
            schemas[said[key]] = _sorted(schema)
    return {
        "id": plan.id,
        "name": plan.name,
        "description": plan.description,
        "bindable": plan.bindable,
        "planUpdateable": plan.plan_updateable,
        "schemas": said,
    }


def _sorted(value: manifest.JSON) -> manifest.JSON:
    """Return a value with its keys in order, in which brokers need not answer twice."""
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list | tuple) else value


def shown_metadata(metadata: manifest.Manifest) -> dict[str, manifest.JSON]:
    """Return what of an offering's metadata files show."""
    keys = ("displayName", "longDescription", "documentationUrl")
    return {
        key: manifest.get_text(metadata, key) for key in keys if manifest.get_text(metadata, key)
    }
