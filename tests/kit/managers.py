"""Who wrote which field of an object: `metadata.managedFields`, kept as kube-apiserver does."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tests.kit import typed
from tests.kit.served_kinds import Served
from tests.kit.typed import ABSENT, Comparison, FieldSet, Path

_NOBODYS: FieldSet = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(
            ("f:metadata", f"f:{key}")
            for key in (
                "name",
                "namespace",
                "creationTimestamp",
                "uid",
                "generation",
                "managedFields",
                "resourceVersion",
            )
        ),
    }
)


class Manager(NamedTuple):
    """Who writes, and how."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""


Managers: TypeAlias = dict[Manager, FieldSet]


class FieldsTaken(Exception):
    """Others own what is applied without force."""

    def __init__(self, conflicts: Mapping[Manager, FieldSet]) -> None:
        self.conflicts = conflicts
        super().__init__(str(conflicts))


@dataclass(frozen=True)
class Fields:
    """The fields of one object of a kind, as one manager writes it."""

    served: Served
    manager: Manager

    def updated(self, live: Any, new: dict[str, Any], managed: Managers) -> Managers:
        """Return the managers after a create, an update or a patch."""
        managed = dict(managed)
        comparison = self._compared(live, new)
        managed = _taken(managed, comparison, None, force=True)
        mine = frozenset(comparison.added | comparison.modified) - _NOBODYS
        if mine:
            managed[self.manager] = managed.get(self.manager, typed.NOTHING) | mine
        return managed

    def applied(
        self, live: Any, stated: dict[str, Any], managed: Managers, *, force: bool
    ) -> tuple[dict[str, Any], Managers]:
        """Return the object and its managers after an apply. Raises FieldsTaken."""
        managed = dict(managed)
        if live is not ABSENT and not managed:
            before = Manager("before-first-apply", "Update", self.manager.api_version)
            managed = Fields(self.served, before).updated(ABSENT, live, {})
        of = self.served.type
        merged = typed.merge(of, {} if live is ABSENT else live, stated)
        last = managed.get(self.manager, typed.NOTHING)
        managed[self.manager] = self._kept(typed.field_set(of, stated))
        made = self._pruned(merged, managed, last) if last else merged
        managed = _taken(managed, self._compared(live, made), self.manager, force=force)
        mine = managed.get(self.manager, typed.NOTHING) - _NOBODYS
        if mine:
            managed[self.manager] = mine
        else:
            managed.pop(self.manager, None)
        return made, managed

    def _pruned(self, merged: Any, managed: Managers, last: FieldSet) -> Any:
        """Remove what this manager applied last time and not now, unless others own it."""
        of = self.served.type
        last = typed.with_structs(of, last)
        pruned = typed.remove(of, merged, last)
        everything = self._set(merged)
        owned = typed.with_structs(of, {path for some in managed.values() for path in some})
        pruned = typed.remove(of, merged, everything - (self._set(pruned) | owned))
        return typed.remove(of, merged, (everything - self._set(pruned)) & last)

    def _set(self, value: Any) -> FieldSet:
        return typed.with_structs(self.served.type, typed.field_set(self.served.type, value))

    def _compared(self, live: Any, new: Any) -> Comparison:
        found = typed.compare(self.served.type, {} if live is ABSENT else live, new)
        return Comparison(
            *(set(self._kept(x)) for x in (found.removed, found.modified, found.added))
        )

    def _kept(self, paths: set[Path]) -> FieldSet:
        """Leave out what this endpoint does not write."""
        if not self.served.has_status:
            return frozenset(paths)
        if self.manager.subresource != "status":
            return frozenset(path for path in paths if path[:1] != ("f:status",))
        away = {("f:spec",), ("f:metadata",)}
        return frozenset(path for path in paths if path[:1] not in away)


def _taken(
    managed: Managers, comparison: Comparison, applying: Manager | None, *, force: bool
) -> Managers:
    changed = frozenset(comparison.modified | comparison.added)
    others = {one: paths for one, paths in managed.items() if one != applying}
    conflicts = {one: paths & changed for one, paths in others.items() if paths & changed}
    if conflicts and not force:
        raise FieldsTaken(conflicts)
    left = {one: paths - changed - comparison.removed for one, paths in others.items()}
    mine = {applying: managed[applying]} if applying in managed else {}
    return {one: paths for one, paths in (left | mine).items() if paths}


def read(manifest: Mapping[str, Any]) -> tuple[Managers, dict[Manager, str]]:
    """Return the managers of an object, and when each wrote last."""
    entries = manifest.get("metadata", {}).get("managedFields") or []
    named = [
        (
            Manager(
                one.get("manager", ""),
                one["operation"],
                one.get("apiVersion", ""),
                one.get("subresource", ""),
            ),
            one,
        )
        for one in entries
        if one.get("operation")
    ]
    managed = {who: frozenset(typed.parse(one.get("fieldsV1") or {})) for who, one in named}
    return managed, {who: one["time"] for who, one in named if "time" in one}


def entries(managed: Managers, times: Mapping[Manager, str]) -> list[dict[str, Any]]:
    """Return the managedFields of managers, in the order of servers."""

    def order(one: Manager) -> tuple[str, ...]:
        return (one.operation, times.get(one, ""), one.name, one.api_version, one.subresource)

    return [
        {
            "manager": one.name,
            "operation": one.operation,
            "apiVersion": one.api_version,
            **({"time": times[one]} if one in times else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": typed.written(managed[one]),
            **({"subresource": one.subresource} if one.subresource else {}),
        }
        for one in sorted(managed, key=order)
    ]
