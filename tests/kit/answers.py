"""What an API server answers when it refuses, word by word where the product reads the words."""

from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.core.refs import Kind


class Refused(Exception):
    """An answer of 400 and above. Without `reason`, it is no Status but a bare page."""

    def __init__(
        self, status: int, reason: str, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        self.status, self.reason, self.message = status, reason, message
        self.details = dict(details or {})
        super().__init__(f"{status} {reason}: {message}")

    def body(self) -> dict[str, Any] | str:
        if not self.reason:
            return self.message
        said = {"reason": self.reason, "details": self.details} if self.reason != "None" else {}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            **said,
            "code": self.status,
        }


def about(kind: Kind, name: str) -> dict[str, Any]:
    return {"name": name, "kind": kind.plural, **({"group": kind.group} if kind.group else {})}


def unserved() -> Refused:
    return Refused(404, "", "404 page not found\n")


def not_found(kind: Kind, name: str) -> Refused:
    return Refused(404, "NotFound", f'{kind.resource} "{name}" not found', about(kind, name))


def exists(kind: Kind, name: str) -> Refused:
    message = f'{kind.resource} "{name}" already exists'
    return Refused(409, "AlreadyExists", message, about(kind, name))


def conflict(kind: Kind, name: str, why: str) -> Refused:
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return Refused(409, "Conflict", message, about(kind, name))


def stale(kind: Kind, name: str) -> Refused:
    why = "the object has been modified; please apply your changes to the latest version and"
    return conflict(kind, name, f"{why} try again")


def other_uid(kind: Kind, name: str, wanted: object, live: object) -> Refused:
    why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {live}"
    return conflict(kind, name, why)


def taken(conflicts: Iterable[tuple[str, str]]) -> Refused:
    """Answer an apply without force of fields that others own: (manager, field)."""
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{who}"', "field": path}
        for who, path in sorted(conflicts)
    ]
    message = f"Apply failed with {len(causes)} conflict{'s' if len(causes) > 1 else ''}"
    return Refused(409, "Conflict", message, {"causes": causes})


def invalid(kind: Kind, name: str, mistakes: Iterable[tuple[str, str]]) -> Refused:
    causes = [
        {"reason": "FieldValueInvalid", "field": path, "message": why} for path, why in mistakes
    ]
    said = ", ".join(f"{one['field']}: {one['message']}" for one in causes)
    message = f'{kind.kind}.{kind.group} "{name}" is invalid: {said}'
    return Refused(422, "Invalid", message, {**about(kind, name), "causes": causes})


def unpatchable() -> Refused:
    message = "the server rejected our request due to an error in our request"
    return Refused(422, "Invalid", message, {})


def not_typed(kind: Kind, name: str, field: str) -> Refused:
    """Answer an apply of what is not in the schema, for which servers blame themselves."""
    message = f"failed to create typed patch object ({name}; {kind.api_version}, Kind={kind.kind})"
    return Refused(500, "None", f"{message}: {field}: field not declared in schema")


def bad_request(message: str) -> Refused:
    return Refused(400, "BadRequest", message)


def expired(message: str = "The resourceVersion for the provided list is too old.") -> Refused:
    return Refused(410, "Expired", message)


def terminating(kind: Kind, name: str, namespace: str) -> Refused:
    message = (
        f'{kind.resource} "{name}" is forbidden: unable to create new content in namespace '
        f"{namespace} because it is being terminated"
    )
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    return Refused(403, "Forbidden", message, {**about(kind, name), "causes": [cause]})


def exceeded(kind: Kind, name: str, quota: str, counted: str) -> Refused:
    message = (
        f'{kind.resource} "{name}" is forbidden: exceeded quota: {quota}, requested: {counted}=1'
    )
    return Refused(403, "Forbidden", message, about(kind, name))
