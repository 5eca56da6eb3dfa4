"""Writes a plan as a JSON document, for programs and a later apply, and parses it.

The document is versioned: a new minor version adds fields, which older programs ignore; a new
major version breaks. Its id is a digest of the plan's content, so the same files and the same live
state give the same id. Decides nothing about the changes.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Final

from reconciler.core import manifest, typed_json
from reconciler.core.errors import ConfigError, Origin
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import SECRET, Ref
from reconciler.core.secret import LAST_APPLIED
from reconciler.fleet.values import UnitKey
from reconciler.planning.changes import Action, Change, Plan

FORMAT: Final = "klutchctl.dev/plan"
VERSION: Final = "1.1"
HINT: Final = "`klutchctl plan --out FILE` makes one"
_FORMAT: Final = typed_json.Format(FORMAT, VERSION, "a saved plan", HINT, Plan)
ID_LENGTH: Final = 32

# What is in the document and not in its id. Where the files are is: an apply reads them there.
_NOT_IDENTITY: Final = frozenset({"format", "version", "id", "summary"})
# Digests of values, and of the tokens and CAs in kubeconfigs.
_DIGEST: Final = re.compile(r"[0-9a-f]{16}|[0-9a-f]{32}")
# What may stand in the place of a Secret's value: these words, digests, and kubeconfig facts.
_WORDS: Final = frozenset({"", manifest.KNOWN_AFTER_APPLY, "unusable", "a kubeconfig"})
_PUBLIC_FACTS: Final = frozenset({"server", "tls-server-name", "namespace"})
_SECRET_FACTS: Final = frozenset({"ca", "token"})


def identified(plan: Plan) -> Plan:
    return replace(plan, id=plan_id(plan))


def plan_id(plan: Plan) -> str:
    """Return the digest of a plan's content, in hex.

    It leaves out why a cluster could not be read: the error may be worded otherwise next time.
    Raises ValueError for a plan that holds the value of a Secret.
    """
    return _identity(_content(plan))


def document(plan: Plan) -> dict[str, JSON]:
    """Return the plan as one JSON object. Raises ValueError as `plan_id` does."""
    content = _content(plan)
    head: dict[str, JSON] = {
        "format": FORMAT,
        "version": VERSION,
        "id": plan.id or _identity(content),
    }
    return {**head, **content}


def dump(plan: Plan) -> bytes:
    """Return the content of a plan file: canonical JSON and a newline, equal for equal plans."""
    return manifest.canonical(document(plan)) + b"\n"


def parse(content: bytes, path: str) -> Plan:
    """Parse the output of `dump`. `path` names the file in errors.

    Raises ConfigError with the place for anything else, for another major version, and for a
    file that was changed since.
    """
    found, plan = _FORMAT.read(content, path)
    if manifest.get_maps(found, "summary", "against", "denied"):
        raise ConfigError(
            "the plan of a pull request that a Policy denies",
            where=path,
            hint="It is for reading only: mend the pull request, and plan again",
        )
    if plan.id != _identity(found):
        raise ConfigError(
            "the plan was changed after it was written, or it is cut",
            where=path,
            hint="Make a new one with `klutchctl plan --out`",
        )
    return plan


def _identity(found: Manifest) -> str:
    """Digest a document, also one of a later minor version with new fields."""
    identity = {key: value for key, value in found.items() if key not in _NOT_IDENTITY}
    identity["unseen"] = [cluster.get("name") for cluster in manifest.get_maps(found, "unseen")]
    identity["changes"] = [
        {**change, "reason": ""} if change.get("action") == Action.UNKNOWN else change
        for change in manifest.get_maps(found, "changes")
    ]
    return manifest.digest(identity)[:ID_LENGTH]


def _content(plan: Plan) -> dict[str, JSON]:
    repository: dict[str, JSON] = {"repository": plan.repository} if plan.repository else {}
    return {
        **repository,
        "revision": plan.revision,
        "fleet": plan.fleet,
        "files": plan.digest,
        "clusters": plan.clusters_total,
        "sections": dict(plan.sections),
        "changes": [whole_line(change) for change in plan.changes],
        "widened": list(map(asdict, plan.widened)),
        "held": list(map(asdict, plan.held)),
        "unseen": list(map(asdict, plan.unseen)),
        "warnings": list(plan.warnings),
    }


def line(change: Change) -> dict[str, JSON]:
    """Return a change without its manifest. Raises ValueError as `plan_id` does."""
    return whole_line(replace(change, after=None, fields=()))


def whole_line(change: Change) -> dict[str, JSON]:
    """Return a change without its empty fields. Raises ValueError as `plan_id` does."""
    _refuse_secret_values(change)
    stated: dict[str, JSON] = {
        "action": change.action.value,
        "cluster": change.cluster,
        "subject": change.subject,
        "ref": _ref(change.ref),
        "reason": change.reason,
        "origin": origin_json(change.origin),
        "unit": None if change.unit is None else unit_json(change.unit),
        "before": change.before or None,
        "uid": change.uid or None,
        "after": change.after,
        "fields": [
            {"path": one.path, "before": one.before, "after": one.after} for one in change.fields
        ]
        or None,
        "steps": [
            {"verb": one.verb, "ref": _ref(one.ref), "note": one.note} for one in change.steps
        ]
        or None,
        "instances": change.instances,
        "keepsData": change.keeps_data or None,
        "waitsFor": list(change.waits_for) or None,
        "held": list(change.held) or None,
    }
    return {key: value for key, value in stated.items() if value is not None}


def _ref(ref: Ref) -> dict[str, JSON]:
    return {
        "cluster": ref.cluster,
        "group": ref.kind.group,
        "version": ref.kind.version,
        "kind": ref.kind.kind,
        "plural": ref.kind.plural,
        "namespaced": ref.kind.namespaced,
        "namespace": ref.namespace,
        "name": ref.name,
    }


def unit_json(unit: UnitKey) -> dict[str, JSON]:
    return {"cluster": unit.cluster, "group": unit.group, "resource": unit.resource}


def origin_json(origin: Origin | None) -> dict[str, JSON] | None:
    if origin is None:
        return None
    return {"path": origin.path, "line": origin.line, "column": origin.column}


def _refuse_secret_values(change: Change) -> None:
    """Planning has redacted Secrets; whatever slips through must still never reach a file."""
    if change.after is None and not change.fields:
        return
    shown = _secret_values(change.after)
    for field in change.fields:
        for value in (field.before, field.after):
            shown += _secret_values(value)
            if change.ref.kind == SECRET:
                shown += _values_at(field.path, value)
    if not all(map(_is_redacted, shown)):
        raise ValueError(f"{change.ref} is not redacted in the plan")


def _values_at(path: str, value: JSON) -> list[JSON]:
    """Return the values of a Secret that a difference at `path` shows."""
    match path.split("/")[1:]:
        case ["data" | "stringData"]:
            return list(manifest.get_map(value).values())
        case ["data" | "stringData", _]:
            return [value]
        case ["data" | "stringData", _, fact]:
            return [{fact: value}]
        case _:
            return []


def _secret_values(value: JSON) -> list[JSON]:
    """Return the values of the Secret that `value` is, or of those in the list that it is."""
    if value is None or not isinstance(value, Mapping):
        return []
    if value.get("kind") in ("List", "SecretList"):
        return [
            found for item in manifest.get_maps(value, "items") for found in _secret_values(item)
        ]
    if value.get("kind") != SECRET.kind or value.get("apiVersion") != SECRET.api_version:
        return []
    applied = manifest.get_map(value, "metadata", "annotations").get(LAST_APPLIED)
    return [
        *manifest.get_map(value, "data").values(),
        *manifest.get_map(value, "stringData").values(),
        applied,
    ]


def _is_redacted(value: JSON) -> bool:
    if isinstance(value, Mapping):
        return value.keys() <= _PUBLIC_FACTS | _SECRET_FACTS and all(
            _is_redacted(value.get(fact)) for fact in _SECRET_FACTS
        )
    if value is None:
        return True
    return isinstance(value, str) and (value in _WORDS or _DIGEST.fullmatch(value) is not None)
