"""How the model of an API server writes: creates, updates, applies and deletes of one object."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NoReturn

from reconciler.core import conditions
from reconciler.core.manifest import get
from reconciler.core.refs import CRD, NAMESPACE, SECRET, ObjectKey
from tests.kit import answers, managers, typed
from tests.kit.api_store import Object, Store
from tests.kit.managers import Fields, FieldsTaken, Manager, Managers
from tests.kit.served_kinds import Served
from tests.kit.typed import ABSENT, same

CRD_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
_EMPTIES: Final = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields")
_KEPT: Final = (
    "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "generation",
)  # fmt: skip


@dataclass(frozen=True)
class Write:
    """One write to one object. What it returns is what the server answers with."""

    store: Store
    served: Served
    key: ObjectKey
    manager: str
    now: datetime
    subresource: str = ""
    dry_run: bool = False

    @property
    def live(self) -> Object | None:
        return self.store.get(self.served.resource, self.key)

    def create(self, stated: Mapping[str, Any]) -> Object:
        self._check_namespace()
        return self._created(stated, lambda made: self._fields("Update").updated(ABSENT, made, {}))

    def apply(self, stated: Mapping[str, Any], *, force: bool) -> Object:
        live, fields = self.live, self._fields("Apply")
        if stated.get("metadata", {}).get("managedFields") is not None:
            raise answers.bad_request("metadata.managedFields must be nil")
        for unknown in typed.undeclared(self.served.type, stated):
            raise answers.not_typed(self.served.kind, self.key.name, unknown)
        if live is None:
            return self._apply_new(stated)
        managed, times = managers.read(live)
        body = self._head(stated)
        without = _without_managers(self._shown(live))
        try:
            made, managed = fields.applied(without, body, managed, force=force)
        except FieldsTaken as error:
            self._taken(error)
        self._expect(stated)
        made = self._tidy(self.served.completed(made))
        changed = not same(_identityless(made), _identityless(without))
        return self._updated(live, made, managed, times, fields.manager if changed else None)

    def _apply_new(self, stated: Mapping[str, Any]) -> Object:
        if self.subresource:
            raise answers.not_found(self.served.kind, self.key.name)
        metadata = stated.get("metadata", {})
        self._check_namespace()
        if metadata.get("uid"):
            why = f"uid mismatch: the provided object specified uid {metadata['uid']}"
            no = "and no existing object was found"
            raise answers.conflict(self.served.kind, self.key.name, f"{why}, {no}")
        body = self._head(stated)
        fields = self._fields("Apply")
        _, managed = fields.applied(ABSENT, body, {}, force=True)
        return self._created(body, lambda _: managed)

    def patch(self, change: Callable[[Object], Any]) -> Object:
        """Patch with a function of the whole object, which may refuse."""
        live = self.live
        if live is None:
            raise answers.not_found(self.served.kind, self.key.name)
        shown = self._shown(live)
        made = change(typed.copied(shown))
        self._expect(made)
        given = made.get("metadata", {}).pop("managedFields", None)
        made = self._tidy(self.served.completed(made))
        managed, times = managers.read(live)
        if given is not None and not self.subresource:
            if given == [{}]:
                managed, times = {}, {}
            elif (stated := managers.read({"metadata": {"managedFields": given}}))[0]:
                managed, times = stated
        fields = self._fields("Update")
        before = managed
        if managed:
            managed = fields.updated(_without_managers(shown), made, managed)
        changed = before.get(fields.manager) != managed.get(fields.manager)
        return self._updated(live, made, managed, times, fields.manager if changed else None)

    def delete(self, conditions: Mapping[str, Any]) -> Object:
        """Delete or begin to; return the object where it stays for now, else a Status."""
        kind, live = self.served.kind, self.live
        if live is None:
            raise answers.not_found(kind, self.key.name)
        metadata = live["metadata"]
        wanted, version = conditions.get("uid"), conditions.get("resourceVersion")
        if wanted not in (None, metadata["uid"]):
            raise answers.other_uid(kind, self.key.name, wanted, metadata["uid"])
        if version not in (None, metadata["resourceVersion"]):
            why = (
                f"Precondition failed: ResourceVersion in precondition: {version}, "
                f"ResourceVersion in object meta: {metadata['resourceVersion']}"
            )
            raise answers.conflict(kind, self.key.name, why)
        if not self._held(live):
            if not self.dry_run:
                self.store.put(self.served.resource, self.key, None)
            return {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": answers.about(kind, self.key.name) | {"uid": metadata["uid"]},
            }
        if "deletionTimestamp" in metadata:
            return live
        made = typed.copied(live)
        made["metadata"] |= {
            "deletionTimestamp": _time(self.now),
            **({} if kind in (NAMESPACE, CRD) else {"deletionGracePeriodSeconds": 0}),
        }
        if "generation" in metadata and kind != CRD:
            made["metadata"]["generation"] += 1
        if kind == NAMESPACE:
            made["status"] = {**made.get("status", {}), "phase": "Terminating"}
        if kind == CRD:
            finalizers = made["metadata"].setdefault("finalizers", [])
            made["metadata"]["finalizers"] = [*dict.fromkeys([*finalizers, CRD_FINALIZER])]
        return made if self.dry_run else self.store.put(self.served.resource, self.key, made)

    def _held(self, live: Object) -> bool:
        if self.served.kind == NAMESPACE:
            return bool(
                live.get("spec", {}).get("finalizers") or live["metadata"].get("finalizers")
            )
        return self.served.kind == CRD or bool(live["metadata"].get("finalizers"))

    def _created(self, stated: Mapping[str, Any], owned: Callable[[Object], Managers]) -> Object:
        made = self._head(stated)
        made = self._tidy(self.served.completed(made))
        managed = owned(made)
        if self.served.has_status:
            made.pop("status", None)
        if self.served.kind == NAMESPACE:
            made["spec"] = {"finalizers": ["kubernetes"]}
            made["status"] = {"phase": "Active"}
        self._validate(made)
        if self.live is not None:
            raise answers.exists(self.served.kind, self.key.name)
        self._check_quotas()
        metadata = made["metadata"]
        for key in ("resourceVersion", "deletionTimestamp", "managedFields"):
            metadata.pop(key, None)
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": _time(self.now)}
        if self.served.has_generation:
            metadata["generation"] = 1
        times = dict.fromkeys(managed, _time(self.now))
        metadata["managedFields"] = managers.entries(managed, times)
        made = self._tidy(made)
        return made if self.dry_run else self.store.put(self.served.resource, self.key, made)

    def _updated(
        self,
        live: Object,
        made: Object,
        managed: Managers,
        times: dict[Manager, str],
        toucher: Manager | None,
    ) -> Object:
        if toucher is not None:
            times = {**times, toucher: _time(self.now)}
        made = self._merged_halves(live, made)
        old = live["metadata"]
        metadata = made["metadata"]
        for key in _KEPT:
            metadata.pop(key, None)
        metadata |= {key: old[key] for key in _KEPT if key in old}
        metadata["resourceVersion"] = old["resourceVersion"]
        self._check_finalizers(old, metadata)
        self._check_immutable(live, made)
        self._validate(made)
        if (
            self.served.has_generation
            and not self.subresource
            and _has_moved(self.served, live, made)
        ):
            metadata["generation"] = old.get("generation", 0) + 1
        metadata["managedFields"] = managers.entries(managed, times)
        made = self._tidy(made)
        if "deletionTimestamp" in metadata and not self._held(made):
            if not self.dry_run:
                self.store.put(self.served.resource, self.key, None)
            return made
        if same(_timeless(made), _timeless(self._tidy(self._shown(live)))) or self.dry_run:
            return live if not self.dry_run else made
        return self.store.put(self.served.resource, self.key, made)

    def _merged_halves(self, live: Object, made: Object) -> Object:
        """Take the status from a write to the status, and all else from any other."""
        if not self.served.has_status:
            return made
        base, other = (live, made) if self.subresource == "status" else (made, live)
        merged = {**typed.copied(base)}
        merged.pop("status", None)
        if "status" in other:
            merged["status"] = typed.copied(other["status"])
        return merged

    def _check_namespace(self) -> None:
        kind = self.served.kind
        if not kind.namespaced:
            return
        namespace = self.store.get(("", "namespaces"), ObjectKey("", self.key.namespace))
        if namespace is None:
            raise answers.not_found(NAMESPACE, self.key.namespace)
        if "deletionTimestamp" in namespace["metadata"]:
            raise answers.terminating(kind, self.key.name, self.key.namespace)

    def _check_quotas(self) -> None:
        """Refuse what a ResourceQuota has no room for, where it counts objects of this kind."""
        counted = f"count/{self.served.kind.resource}"
        used = len(self.store.all(self.served.resource, self.key.namespace))
        for key, quota in self.store.all(("", "resourcequotas"), self.key.namespace):
            limit = quota.get("status", {}).get("hard", {}).get(counted)
            if limit is not None and used >= int(limit):
                raise answers.exceeded(self.served.kind, self.key.name, key.name, counted)

    def _check_finalizers(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        more = set(new.get("finalizers") or ()) - set(old.get("finalizers") or ())
        if more and "deletionTimestamp" in old:
            why = "Forbidden: no new finalizers can be added if the object is being deleted"
            raise answers.invalid(self.served.kind, self.key.name, [("metadata.finalizers", why)])

    def _check_immutable(self, live: Object, made: Object) -> None:
        fixed = ["type"] if self.served.kind == SECRET else []
        if live.get("immutable") is True and self.served.schema is None:
            fixed += ["data", "binaryData", "immutable"]
        if self.served.kind == CRD:
            self._check_stored(made)
            is_established = conditions.get(live, "Established", "True") is not None
            fixed += ["spec.scope", "spec.names.kind"] * is_established
            fixed += ["spec.group", "spec.names.plural"]
        why = f"{'Invalid value' if self.served.kind == CRD else 'Forbidden'}: field is immutable"
        wrong = [
            (path, why)
            for path in fixed
            if not same(get(made, *path.split(".")), get(live, *path.split(".")))
        ]
        if wrong:
            raise answers.invalid(self.served.kind, self.key.name, wrong)

    def _check_stored(self, made: Object) -> None:
        """Refuse a CRD without a version in which objects may be stored."""
        versions = [one["name"] for one in made["spec"]["versions"]]
        stored = made.get("status", {}).get("storedVersions", ())
        wrong = [
            (
                f"status.storedVersions[{index}]",
                f'Invalid value: "{name}": missing from spec.versions; {name} was previously a '
                "storage version, and must remain in spec.versions until a storage migration "
                f"ensures no data remains persisted in {name} and removes {name} from "
                "status.storedVersions",
            )
            for index, name in enumerate(stored)
            if name not in versions
        ]
        if wrong:
            raise answers.invalid(self.served.kind, self.key.name, wrong)

    def _validate(self, made: Object) -> None:
        mistakes = self.served.mistakes(made)
        if mistakes:
            raise answers.invalid(self.served.kind, self.key.name, mistakes)

    def _expect(self, made: Mapping[str, Any]) -> None:
        """Check what a body says of the object that it is about."""
        live, metadata = self.live, made.get("metadata", {})
        assert live is not None
        uid, version = metadata.get("uid"), metadata.get("resourceVersion")
        if version not in (None, "", live["metadata"]["resourceVersion"]):
            raise answers.stale(self.served.kind, self.key.name)
        if self.subresource == "status" and self.served.schema is not None:
            return  # nothing but the status of the body counts
        if uid not in (None, "", live["metadata"]["uid"]):
            problem = f"Invalid value: {uid}: field is immutable"
            raise answers.invalid(self.served.kind, self.key.name, [("metadata.uid", problem)])

    def _fields(self, operation: str) -> Fields:
        who = Manager(self.manager, operation, self.served.kind.api_version, self.subresource)
        return Fields(self.served, who)

    def _head(self, stated: Mapping[str, Any]) -> Object:
        kind = self.served.kind
        made = typed.copied(dict(stated))
        metadata = made.setdefault("metadata", {})
        metadata["name"] = self.key.name
        if kind.namespaced:
            metadata["namespace"] = self.key.namespace
        for key in ("managedFields", "creationTimestamp"):
            metadata.pop(key, None)
        return {"apiVersion": kind.api_version, "kind": kind.kind, **made}

    def _shown(self, live: Object) -> Object:
        kind = self.served.kind
        shown = self.served.completed(live)
        return {**shown, "apiVersion": kind.api_version, "kind": kind.kind}

    def _tidy(self, made: Object) -> Object:
        """Leave out what is empty, where servers do."""
        metadata = made["metadata"]
        kept = {k: v for k, v in metadata.items() if v or k not in _EMPTIES}
        made = {**made, "metadata": kept}
        if self.served.schema is None:
            made = {k: _without_nulls(v) for k, v in made.items() if v not in (None, {}, [])}
        return made

    def _taken(self, error: FieldsTaken) -> NoReturn:
        raise answers.taken(
            (who.name, "".join(f".{step.partition(':')[2]}" for step in path))
            for who, paths in error.conflicts.items()
            for path in paths
        )


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _time(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _without_managers(live: Object) -> Object:
    return {**live, "metadata": {k: v for k, v in live["metadata"].items() if k != "managedFields"}}


def _identityless(live: Object) -> Object:
    return {k: v for k, v in live.items() if k not in ("apiVersion", "kind")}


def _timeless(live: Object) -> Object:
    """Leave out when managers wrote: an update that changes nothing else is none."""
    entries = [
        {k: v for k, v in one.items() if k != "time"}
        for one in live["metadata"].get("managedFields", ())
    ]
    return {**live, "metadata": {**live["metadata"], "managedFields": entries}}


def _has_moved(served: Served, live: Object, made: Object) -> bool:
    """Return whether an update changes what makes a new generation."""
    away = {"metadata", "apiVersion", "kind"} | ({"status"} if served.has_status else set())

    def rest(one: Object) -> Object:
        return {k: v for k, v in one.items() if k not in away}

    return not same(rest(live), rest(made))
