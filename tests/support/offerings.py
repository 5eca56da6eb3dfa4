"""Catalogues for tests, in short."""

import json
from typing import Any, Final

from reconciler.api.osb import BrokerSpec, OfferingChoice
from reconciler.blueprints.offering.catalogue import catalogue_of
from reconciler.blueprints.offering.files import Output, files_of
from reconciler.core.manifest import JSON, Manifest, get_map, get_maps

GROUP: Final = "services.acme.example"


def plan(name: str, create: Any = None, update: Any = None, bind: Any = None, **more: Any) -> Any:
    """Return a plan of a catalogue; its id follows from its name."""
    schemas = {
        "service_instance": {
            key: {"parameters": one}
            for key, one in (("create", create), ("update", update))
            if one is not None
        },
        "service_binding": {"create": {"parameters": bind}} if bind is not None else {},
    }
    return {"id": f"plan-{name}", "name": name, "description": "", "schemas": schemas, **more}


def service(*plans: Any, name: str = "db", **more: Any) -> Any:
    """Return an offering of a catalogue; its id follows from its name."""
    return {
        "id": f"service-{name}", "name": name, "description": "A database.", "bindable": True,
        "plans": list(plans), **more,
    }  # fmt: skip


def made(
    *services: Any, before: Output | None = None, choices: tuple[OfferingChoice, ...] = (),
    allow: bool = False,
) -> Output:  # fmt: skip
    """Return the files of a catalogue; `before` are those that were there."""
    held = {} if before is None else before.files
    broker = BrokerSpec("acme", "klutch-osb", group=GROUP, offerings=choices)
    found = catalogue_of(json.dumps({"services": services}).encode())
    return files_of(broker, found, held, allow_narrowing=allow)


def crd(output: Output, plural: str = "dbinstances") -> Manifest:
    return output.files[f"crds/{plural}.{GROUP}.yaml"][0]


def spec_of(output: Output, plural: str = "dbinstances") -> Manifest:
    (version,) = get_maps(crd(output, plural), "spec", "versions")
    return get_map(version, "schema", "openAPIV3Schema", "properties", "spec")


def rules_of(output: Output, plural: str = "dbinstances") -> list[JSON]:
    return [one["rule"] for one in get_maps(spec_of(output, plural), "x-kubernetes-validations")]
