"""What the controllers of a cluster do, at once: CRDs, the end of namespaces, garbage."""

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from reconciler.core.refs import NAMESPACE, ObjectKey
from tests.kit import managers, typed
from tests.kit.api_store import CRDS, Change, Object, Resource, Store
from tests.kit.api_writes import CRD_FINALIZER, Write
from tests.kit.managers import Manager
from tests.kit.served_kinds import Served, of_crd

_NAMESPACES: Final = ("", NAMESPACE.plural)
_SECRETS: Final = ("", "secrets")
_ACCOUNT: Final = "kubernetes.io/service-account.name"
_TOKEN: Final = "kubernetes.io/service-account-token"
CA: Final = Path(__file__).with_name("ca.pem").read_text()
_ABOUT: Final = {
    "NamesAccepted": ("NoConflicts", "no conflicts found"),
    "Established": ("InitialNamesAccepted", "the initial names have been accepted"),
}


@dataclass
class Controllers:
    """All controllers of one cluster, which never sleep and never lag."""

    store: Store
    served: Callable[[Resource], Served | None]
    kinds: Callable[[], Iterable[Served]]
    now: Callable[[], datetime]

    def settle(self, since: int) -> None:
        """Do what follows from the changes since a version, and what follows from that."""
        while changes := self.store.since(since):
            since = self.store.version
            if any(_may_end_others(change) for change in changes):
                self._crds()
                self._namespaces()
                self._garbage()
            for change in changes:
                if change.resource == _SECRETS and change.new is not None:
                    self._fill_token(change.key, change.new)

    def _crds(self) -> bool:
        worked = False
        for key, live in self.store.all(CRDS):
            if "deletionTimestamp" in live["metadata"]:
                worked |= self._end_crd(key, live)
            elif _status_of(live) != live.get("status"):
                self._put(CRDS, key, live, typed.copied({**live, "status": _status_of(live)}))
                worked = True
        return worked

    def _end_crd(self, key: ObjectKey, live: Object) -> bool:
        names = live["spec"]["names"]
        resource = (live["spec"]["group"], names["plural"])
        left = self.store.all(resource)
        if left:
            return self._delete_all(resource, [one for one, _ in left])
        finalizers = live["metadata"].get("finalizers", [])
        if CRD_FINALIZER not in finalizers:
            return False
        rest = [one for one in finalizers if one != CRD_FINALIZER]
        if not rest:
            self.store.put(CRDS, key, None)
            return True
        metadata = {**live["metadata"], "finalizers": rest}
        self.store.put(CRDS, key, {**live, "metadata": metadata})
        return True

    def _namespaces(self) -> bool:
        worked = False
        every = self.store.all(_NAMESPACES)
        going = [(key, live) for key, live in every if "deletionTimestamp" in live["metadata"]]
        inside: dict[str, list[Any]] = {key.name: [] for key, _ in going}
        for resource, each, _ in self.store.everything() if going else ():
            inside.get(each.namespace, []).append((resource, each))
        for key, live in going:
            if inside[key.name]:
                for resource, each in inside[key.name]:
                    worked |= self._delete_all(resource, [each])
            elif live["metadata"].get("finalizers"):
                continue
            else:
                self.store.put(_NAMESPACES, key, {**live, "spec": {}})
                self.store.put(_NAMESPACES, key, None)
                worked = True
        return worked

    def _garbage(self) -> bool:
        uids = {live["metadata"]["uid"]: key for _, key, live in self.store.everything()}
        worked = False
        for resource, key, live in self.store.everything():
            owners = live["metadata"].get("ownerReferences") or []
            left = [one for one in owners if self._is_there(one, key, uids)]
            if owners and not left:
                worked |= self._delete_all(resource, [key])
            elif left != owners:
                made = typed.copied(live)
                made["metadata"]["ownerReferences"] = left
                self._put(resource, key, live, made)
                worked = True
        return worked

    def _is_there(
        self, owner: Mapping[str, Any], of: ObjectKey, uids: Mapping[str, ObjectKey]
    ) -> bool:
        """Return whether an owner is, or cannot be looked for: in a namespace, from outside it."""
        place = uids.get(owner["uid"])
        if place is not None and place.namespace in ("", of.namespace):
            return True
        known = (one.kind for one in self.kinds())
        group, _, _ = owner["apiVersion"].rpartition("/")
        namespaced = {
            one.namespaced for one in known if (one.group, one.kind) == (group, owner["kind"])
        }
        return not of.namespace and True in namespaced

    def _fill_token(self, key: ObjectKey, live: Object) -> None:
        account = (live["metadata"].get("annotations") or {}).get(_ACCOUNT, "")
        is_filled = "token" in live.get("data", {})
        if live.get("type") != _TOKEN or is_filled or not self._has_account(key, account):
            return
        data = {
            "token": _encoded(token(key.namespace, account, self.now())),
            "ca.crt": _encoded(CA),
            "namespace": _encoded(key.namespace),
        }
        made = typed.copied({**live, "data": {**live.get("data", {}), **data}})
        self._put(_SECRETS, key, live, made)

    def _has_account(self, secret: ObjectKey, account: str) -> bool:
        key = ObjectKey(secret.namespace, account)
        return self.store.get(("", "serviceaccounts"), key) is not None

    def _delete_all(self, resource: Resource, keys: list[ObjectKey]) -> bool:
        worked = False
        for key in keys:
            live, served = self.store.get(resource, key), self.served(resource)
            if live is None or "deletionTimestamp" in live["metadata"]:
                continue
            if served is None:
                self.store.put(resource, key, None)
            else:
                Write(self.store, served, key, "", self.now()).delete({})
            worked = True
        return worked

    def _put(self, resource: Resource, key: ObjectKey, live: Object, made: Object) -> None:
        """Store what a controller has changed."""
        served = self.served(resource)
        assert served is not None
        managed, times = managers.read(live)
        subresource = "status" if resource == CRDS else ""
        program = "kube-apiserver" if resource == CRDS else "kube-controller-manager"
        who = Manager(program, "Update", served.kind.api_version, subresource)
        managed = managers.Fields(served, who).updated(live, made, managed)
        times[who] = self.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        made["metadata"]["managedFields"] = managers.entries(managed, times)
        self.store.put(resource, key, made)


def token(namespace: str, account: str, now: datetime) -> str:
    """Return a token that says whose it is, and when it was issued."""
    said = {"sub": f"system:serviceaccount:{namespace}:{account}", "iat": now.timestamp()}
    payload = base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")
    return f"e30.{payload}.sig"


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _may_end_others(change: Change) -> bool:
    """Return whether a change concerns other objects: by its kind, its end, or its owners."""
    is_parent = change.resource in (CRDS, _NAMESPACES)
    return is_parent or change.new is None or "ownerReferences" in change.new["metadata"]


def _status_of(crd: Mapping[str, Any]) -> Object:
    spec, status = crd["spec"], crd.get("status", {})
    since = {one["type"]: one["lastTransitionTime"] for one in status.get("conditions", ())}
    created = crd["metadata"]["creationTimestamp"]
    conditions = [
        {
            "lastTransitionTime": since.get(kind, created),
            "message": message,
            "reason": reason,
            "status": "True",
            "type": kind,
        }
        for kind, (reason, message) in _ABOUT.items()
    ]
    stored = [one["name"] for one in spec["versions"] if one.get("storage")]
    versions = [*dict.fromkeys([*status.get("storedVersions", ()), *stored])]
    return {"acceptedNames": spec["names"], "conditions": conditions, "storedVersions": versions}


def kinds_of(store: Store) -> dict[tuple[str, str, str], Served]:
    """Return what the CRDs in a store have served: by group, version and plural."""
    found: dict[tuple[str, str, str], Served] = {}
    for _, crd in store.all(CRDS):
        if crd.get("status", {}).get("conditions"):
            for one in of_crd(crd):
                found[(one.kind.group, one.kind.version, one.kind.plural)] = one
    return found
