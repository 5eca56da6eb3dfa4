"""A control plane in memory, in which decisions about one AppClusterBinding come true.

As strict as a server about what a decision relies on: names that are free, uids and
resourceVersions that are live. It does no more than fold decisions into what is seen next.
"""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

from bind.app_cluster_binding.decide import decide
from bind.app_cluster_binding.facts import Seen, Space, Terms
from reconciler import api
from reconciler.core import keys, names, refs
from reconciler.core.decision import Apply, Create, Decision, Delete, Patch, Step, status_patch
from reconciler.core.refs import Kind, Ref
from reconciler.core.times import format_time
from tests.kit.json_patch import merged
from tests.support import kubeconfigs

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
IMAGE = "public.ecr.aws/w5n9a2g2/klutch/konnector:v1.4.0"
IMAGES = "registry.example/klutch"
TERMS = Terms(control_plane="cp", konnector_image=IMAGE, konnector_image_prefixes=(IMAGES,))
SPACE = "klutch-bind-team-a-shop"
LABELS = keys.app_cluster_binding_labels("team-a", "shop")
DATABASES = {"group": "shop.example", "resource": "databases"}
QUEUES = {"group": "shop.example", "resource": "queues"}
SECRETS_CLAIM = {
    "group": "",
    "resource": "secrets",
    "version": "v1",
    "required": True,
    "selector": {"names": ["*"], "namespaces": ["*"], "owner": "Provider"},
    "read": {},
    "onConflict": {"recreateWhenConsumerSideDeleted": True},
}
SETTINGS_CLAIM = {
    **SECRETS_CLAIM,
    "resource": "configmaps",
    "required": False,
    "selector": {"names": ["backup-settings"], "namespaces": ["*"], "owner": "Consumer"},
}
KUBECONFIG = kubeconfigs.document(user={"token": "t"})


def ago(**span: float) -> str:
    return format_time(NOW - timedelta(**span))


def b64(value: Any) -> str:
    return base64.b64encode(kubeconfigs.text(value)).decode()


def secret(namespace="team-a", name="shop-kubeconfig", **more: Any) -> dict[str, Any]:
    data = {"kubeconfig": b64(KUBECONFIG)}
    return {
        "metadata": {"namespace": namespace, "name": name},
        "type": "Opaque",
        "data": data,
        **more,
    }


def template(resource: Any, *claims: Any, namespace="platform", name="") -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "name": name or resource["resource"]},
        "spec": {"APIServiceSelector": resource, "permissionClaims": list(claims)},
    }


def inside(name: str, **more: Any) -> dict[str, Any]:
    """An object in the space, with the labels of the AppClusterBinding."""
    labels = more.pop("labels", LABELS)
    metadata = {"namespace": SPACE, "name": name, "labels": labels, **more.pop("metadata", {})}
    return {"metadata": metadata, **more}


def export(name="databases.shop.example", **connected: str) -> dict[str, Any]:
    condition = {"type": "Connected", "status": "True", **connected}
    return inside(name, labels={}, status={"conditions": [condition]} if connected else {})


class World:
    """`app_cluster_binding` is team-a/shop with databases, its Secret and a template."""

    def __init__(self, *, spec: Any = None, name="shop", **metadata: Any) -> None:
        self.objects: dict[tuple[Kind, str, str], Any] = {}
        self._count = 0
        self.now = NOW
        self.terms = TERMS
        self.written: list[Step] = []
        self.notes: list[str] = []
        self.again: timedelta | None = None
        self.left = ""
        ref = {"namespace": "team-a", "name": "shop-kubeconfig", "key": "kubeconfig"}
        metadata = {"finalizers": [keys.APP_CLUSTER_BINDING_CLEANUP], **metadata}
        self.key = (api.APP_CLUSTER_BINDING, "team-a", name)
        made = {
            "metadata": {"namespace": "team-a", "name": name, **metadata},
            "spec": {"kubeconfigSecretRef": ref, "apiExports": [DATABASES], **(spec or {})},
        }
        self.put(api.APP_CLUSTER_BINDING, made)
        self.put(refs.SECRET, secret())
        self.put(
            api.API_SERVICE_EXPORT_TEMPLATE, template(DATABASES, SECRETS_CLAIM, SETTINGS_CLAIM)
        )

    @property
    def app_cluster_binding(self) -> Any:
        return self.objects.get(self.key)

    def put(self, kind: Kind, manifest: Any) -> Any:
        metadata = {**manifest["metadata"]}
        self._count += 1
        metadata.setdefault("uid", f"uid-{self._count}")
        metadata["resourceVersion"] = str(self._count)
        typed = {"apiVersion": kind.api_version, "kind": kind.kind}
        stored = {**typed, **manifest, "metadata": metadata}
        self.objects[kind, metadata.get("namespace", ""), metadata["name"]] = stored
        return stored

    def get(self, kind: Kind, name: str, namespace: str = SPACE) -> Any:
        return self.objects.get((kind, namespace if kind.namespaced else "", name))

    def change(self, kind: Kind, name: str, body: Any, namespace: str = SPACE) -> None:
        """Merge a patch into an object as somebody else would."""
        self.put(kind, merged(self.get(kind, name, namespace), body))

    def remove(self, kind: Kind, name: str, namespace: str = SPACE) -> None:
        del self.objects[kind, namespace if kind.namespaced else "", name]

    def seen(self) -> Seen:
        live = self.app_cluster_binding
        ref = live["spec"]["kubeconfigSecretRef"]
        space = names.app_cluster_binding_space(
            live["metadata"]["namespace"], live["metadata"]["name"]
        )
        name = live["metadata"]["name"]
        legacy = names.legacy_konnector_cluster_role("team-a", name)
        namespace = self.get(refs.NAMESPACE, space)
        return Seen(
            app_cluster_binding=live,
            source=self.get(refs.SECRET, ref["name"], ref["namespace"]),
            templates=self._all(api.API_SERVICE_EXPORT_TEMPLATE),
            space=None if namespace is None else self._space(namespace, name),
            legacy=[
                (kind, found)
                for kind in (refs.CLUSTER_ROLE_BINDING, refs.CLUSTER_ROLE)
                if (found := self.get(kind, legacy)) is not None
            ],
            left=self.left,
        )

    def _space(self, namespace: Any, name: str) -> Space:
        place = namespace["metadata"]["name"]
        return Space(
            namespace=namespace,
            account=self.get(refs.SERVICE_ACCOUNT, names.BINDER, place),
            cluster_binding=self.get(api.CLUSTER_BINDING, names.CLUSTER_BINDING, place),
            role=self.get(refs.ROLE, names.CONTROL_PLANE_CONNECTOR, place),
            role_binding=self.get(refs.ROLE_BINDING, names.CONTROL_PLANE_CONNECTOR, place),
            network_policy=self.get(refs.NETWORK_POLICY, names.KONNECTOR, place),
            limit_range=self.get(refs.LIMIT_RANGE, names.KONNECTOR, place),
            deployment=self.get(refs.DEPLOYMENT, names.konnector_deployment(name), place),
            secrets=self._all(refs.SECRET, place),
            bindings=self._all(api.API_SERVICE_BINDING, place),
            exports=self._all(api.API_SERVICE_EXPORT, place),
            requests=self._all(api.API_SERVICE_EXPORT_REQUEST, place),
            service_namespaces=self._all(api.API_SERVICE_NAMESPACE, place),
        )

    def _all(self, kind: Kind, namespace: str = "") -> list[Any]:
        return [
            one
            for (found, place, _), one in self.objects.items()
            if found == kind and namespace in ("", place)
        ]

    def look(self) -> Decision:
        """Decide once, without doing anything."""
        return decide(self.seen(), terms=self.terms, now=self.now)

    def serve(self) -> int:
        """Decide and do, until nothing is left to do at this time; return the number of writes."""
        before = len(self.written)
        for _ in range(20):
            if self.app_cluster_binding is None or not self.serve_once():
                return len(self.written) - before
        raise AssertionError(f"it never ends: {self.written[-2:]}")

    def serve_once(self) -> list[Step]:
        """Decide and do once, and return the writes."""
        live, decision = self.app_cluster_binding, self.look()
        self.again = decision.again
        self.notes.extend(note.reason for note in decision.notes)
        steps = [step for task in decision.tasks for step in task.steps]
        patch = status_patch(live, Ref("cp", *self.key), decision, failed=(), now=self.now)
        if patch is not None:
            steps.append(patch)
        for step in steps:
            self._do(step)
        self.written.extend(steps)
        return steps

    def conditions(self) -> dict[str, str]:
        """Each condition as `True`, or its severity and reason, without Ready."""
        held = self.app_cluster_binding.get("status", {}).get("conditions", [])
        return {
            one["type"]: one["status"]
            if one["status"] != "False"
            else f"{one['severity']} {one['reason']}"
            for one in held
            if one["type"] != "Ready"
        }

    def message(self, condition: str) -> str:
        held = self.app_cluster_binding["status"]["conditions"]
        return next(str(one.get("message", "")) for one in held if one["type"] == condition)

    def delete(self) -> None:
        """Ask for the deletion of the AppClusterBinding, now."""
        gone = {"metadata": {"deletionTimestamp": format_time(self.now)}}
        self.change(api.APP_CLUSTER_BINDING, self.key[2], gone, "team-a")

    def pass_time(self, **span: float) -> None:
        self.now += timedelta(**span)

    def _do(self, step: Step) -> None:
        match step:
            case Create(kind, manifest):
                self._create(kind, manifest)
            case Apply(kind, manifest):
                self._apply(kind, manifest)
            case Patch(ref, body, _):
                key = (ref.kind, ref.namespace, ref.name)
                self._expect(self.objects[key], body["metadata"])
                self._settle(key, self.put(ref.kind, merged(self.objects[key], body)))
            case Delete(ref, uid, version):
                key = (ref.kind, ref.namespace, ref.name)
                live = self.objects[key]
                self._expect(live, {"uid": uid, "resourceVersion": version})
                gone = {"metadata": {"deletionTimestamp": format_time(self.now)}}
                self._settle(key, self.put(ref.kind, merged(live, gone)))

    def _create(self, kind: Kind, manifest: Any) -> None:
        metadata = manifest["metadata"]
        place = metadata.get("namespace", "")
        assert not place or self.get(refs.NAMESPACE, place), "into no namespace"
        assert (kind, place, metadata["name"]) not in self.objects, "it exists"
        assert manifest["apiVersion"] == kind.api_version
        body = {**manifest, "metadata": {**metadata, "creationTimestamp": format_time(self.now)}}
        if kind == api.API_SERVICE_EXPORT_REQUEST:
            body["status"] = {"phase": "Pending"}
        self.put(kind, body)

    def _apply(self, kind: Kind, manifest: Any) -> None:
        metadata = manifest["metadata"]
        live = self.get(kind, metadata["name"], metadata["namespace"])
        if live is not None:
            self._expect(live, metadata)
        kept = {key: live["metadata"][key] for key in ("uid",)} if live else {}
        # A server leaves out what identifies the object.
        owned = {"metadata": {"labels": metadata["labels"]}, "spec": manifest["spec"]}
        entry = {"manager": keys.MANAGER_BACKEND, "operation": "Apply", "fieldsV1": fields(owned)}
        known = {**metadata, **kept, "managedFields": [entry]}
        self.put(kind, {**(live or {}), **manifest, "metadata": known})

    def _expect(self, live: Any, stated: Any) -> None:
        for key in ("uid", "resourceVersion"):
            if key in stated:
                assert stated[key] == live["metadata"][key], f"{key} of {live['metadata']['name']}"

    def _settle(self, key: tuple[Kind, str, str], live: Any) -> None:
        """Let go of what is deleted and held by nothing; a Namespace takes everything along."""
        metadata = live["metadata"]
        if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
            return
        if key[0] == refs.NAMESPACE and (held := [k for k in self.objects if k[1] == key[2]]):
            for one in held:
                gone = {"metadata": {"deletionTimestamp": format_time(self.now)}}
                self._settle(one, self.put(one[0], merged(self.objects[one], gone)))
            if any(k[1] == key[2] for k in self.objects):
                return
        self.objects.pop(key, None)


def fields(value: Any) -> Any:
    """FieldsV1 of what is stated; containers and variables are keyed by name."""
    if isinstance(value, dict):
        return {f"f:{key}": fields(item) for key, item in value.items()}
    if (
        isinstance(value, list)
        and value
        and all(isinstance(i, dict) and "name" in i for i in value)
    ):
        return {f'k:{{"name":"{item["name"]}"}}': {".": {}, **fields(item)} for item in value}
    return {}
