"""Instances between real clusters: both ends of one, and what a konnector wrote of them."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bind.settings import Settings
from reconciler.blueprints.objects import build
from reconciler.controller.program import Term
from reconciler.core import keys, manifest
from reconciler.core.conditions import INSTANCES_REFUSED
from reconciler.core.errors import Unreachable
from reconciler.core.refs import CRD, EVENT, Kind, Ref
from reconciler.kube.cluster import Cluster
from tests.support.backend import USUAL
from tests.support.bound_scenes import Scene, conditions, new, read, remove, until
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.konnector import AGENT, konnector
from tests.support.settled import settled

CLUSTER_WIDE: Final = replace(USUAL, consumer_scope="Cluster")
_ADMISSION: Final = ("admissionregistration.k8s.io", "v1")
_POLICY: Final = Kind(
    *_ADMISSION, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", namespaced=False
)
_USE_OF_POLICY: Final = Kind(
    *_ADMISSION,
    "MutatingAdmissionPolicyBinding",
    "mutatingadmissionpolicybindings",
    namespaced=False,
)
READY: Final[manifest.Manifest] = {"status": {"phase": "Ready"}}


@dataclass
class Side:
    """Objects of one kind and name in one cluster, written to by one who is at home there."""

    live: LiveCluster
    scene: Scene
    namespace: str
    prefix: str
    who: str

    def ref(self, name: str) -> Ref:
        kind = self.scene.offer.kind
        namespace = self.namespace if kind.namespaced else ""
        return Ref(self.live.name, kind, namespace, f"{self.prefix}{name}")

    async def make(
        self, name: str = "orders", *, manager: str = "", **more: Any
    ) -> manifest.Manifest:
        """Apply an object; with `manager` create it, as that program does."""
        ref = self.ref(name)
        place = {"name": ref.name, **({"namespace": ref.namespace} if ref.namespace else {})}
        made = {
            "apiVersion": ref.kind.api_version,
            "kind": ref.kind.kind,
            "spec": {"size": "1Gi"},
            **more,
            "metadata": {**more.get("metadata", {}), **place},
        }
        if manager:
            return await self.live.cluster.create(made, ref.kind, manager=manager)
        return await new(self.live, made, ref.kind, manager=self.who)

    async def patch(
        self, body: manifest.Manifest, name: str = "orders", *, subresource: str = ""
    ) -> None:
        cluster: Cluster = self.live.cluster
        await cluster.merge_patch(self.ref(name), body, manager=self.who, subresource=subresource)

    async def keeps(self, field: str, name: str = "orders") -> bool:
        """Return whether the server would keep a text in a field by now."""
        cluster: Cluster = self.live.cluster
        tried = await cluster.merge_patch(
            self.ref(name), {field: "x"}, manager=self.who, dry_run=True
        )
        return field in tried

    async def hold(self, *finalizers: str, name: str = "orders") -> None:
        """Let others hold an object with these finalizers and no more."""
        live = await self.read(name)
        ours = [one for one in live["metadata"].get("finalizers", ()) if "klutch" in one]
        await self.patch({"metadata": {"finalizers": [*ours, *finalizers]}}, name)

    async def delete(self, name: str = "orders") -> None:
        ref = self.ref(name)
        await remove(self.live, ref.kind, ref.namespace, ref.name)

    async def read(self, name: str = "orders") -> Any:
        ref = self.ref(name)
        return await read(self.live, ref.kind, ref.namespace, ref.name)

    async def gone(self, name: str = "orders") -> bool:
        return await self.read(name) is None

    async def goes(self, name: str = "orders") -> bool:
        live = await self.read(name)
        return live is None or manifest.is_deleting(live)

    async def spec(self, name: str = "orders") -> Any:
        return (await self.read(name) or {}).get("spec")

    async def status(self, name: str = "orders") -> Any:
        return (await self.read(name) or {}).get("status")

    async def has_spec(self, spec: Any, name: str = "orders") -> bool:
        return await equals(self.spec(name), spec)

    async def has_status(self, status: Any, name: str = "orders") -> bool:
        return await equals(self.status(name), status)

    async def labels(self, name: str = "orders") -> dict[str, str]:
        return manifest.labels_of(await self.read(name) or {})

    async def annotations(self, name: str = "orders") -> dict[str, str]:
        """Return all but the uids of claim and space, which are others each time."""
        found = manifest.annotations_of(await self.read(name) or {})
        uids = {keys.CLAIM_UID, keys.SPACE_UID}
        return {key: value for key, value in found.items() if key not in uids}


@dataclass
class Story:
    """A konnector at work on instances, and the account of its writes to them."""

    scene: Scene
    made: Term
    here: Side
    there: Side
    _marks: dict[str, int] = field(default_factory=dict)

    async def begin(self) -> None:
        """Count writes from now on, once the konnector rests: it marks an instance at the end."""
        await settled(self.made)
        self._marks = _marks(self.here, self.there)

    async def writes(self) -> list[str]:
        """Return what the konnector wrote of instances since `begin`, once it rests.

        As `verb[/subresource] here|there name`.
        """
        await settled(self.made)
        written = await eventually(self._written)
        return [line for lines in written for line in lines]

    def _written(self) -> list[list[str]]:
        return [
            _written(side, self._marks[side.live.name], word)
            for word, side in (("here", self.here), ("there", self.there))
        ]

    async def is_ready(self, name: str = "orders") -> bool:
        return bool(await self.here.status(name) == READY["status"])

    async def subresource(self) -> str:
        crd = await read(self.scene.plane, CRD, "", self.scene.offer.name)
        return "status" if "subresources" in crd["spec"]["versions"][0] else ""

    async def settle(self, name: str = "orders", **more: Any) -> None:
        """Make an instance, and let the provider say that it is ready."""
        await self.here.make(name, **more)
        await until(lambda: self.there.read(name))
        await self.there.patch(READY, name, subresource=await self.subresource())
        await until(lambda: self.is_ready(name))


def sides(scene: Scene) -> tuple[Side, Side]:
    """Return the app cluster's side and the control plane's."""
    prefix = "" if scene.offer.kind.namespaced else f"{scene.space}-"
    return (
        Side(scene.app, scene, scene.app_namespace, "", "developer"),
        Side(scene.plane, scene, scene.service_namespace, prefix, "provider"),
    )


@contextlib.asynccontextmanager
async def story(scene: Scene, settings: Settings = USUAL) -> AsyncIterator[Story]:
    """Bind, with a backend and a konnector at work."""
    async with scene.backend(settings=settings), working(scene) as account:
        await scene.bound()
        yield account


@contextlib.asynccontextmanager
async def working(scene: Scene) -> AsyncIterator[Story]:
    before = _marks(*sides(scene))  # it may write as soon as it starts
    async with konnector(scene.app.connection) as made:
        yield Story(scene, made, *sides(scene), before)


def _marks(*both: Side) -> dict[str, int]:
    return {one.live.name: one.live.audit.mark() for one in both}


async def redefine(
    live: LiveCluster, scene: Scene, change: Callable[[dict[str, Any]], None]
) -> None:
    """Change the one version of a service's CRD."""
    ref = Ref(live.name, CRD, "", scene.offer.name)
    crd: Any = await live.cluster.get(ref)
    version = crd["spec"]["versions"][0]
    change(version)
    body: manifest.Manifest = {"spec": {"versions": [version]}}
    await live.cluster.merge_patch(ref, body, manager="provider")


@contextlib.asynccontextmanager
async def mutated(scene: Scene, path: str, value: str) -> AsyncIterator[None]:
    """Let an admission policy of the control plane set a field of all instances."""
    operation = f'[JSONPatch{{op: "add", path: "{path}", value: "{value}"}}]'
    side = replace(sides(scene)[1], namespace=scene.space)
    async with _policed(scene.plane, scene, operation):
        await until(lambda: _is_mutated(side, value))
        yield


@contextlib.asynccontextmanager
async def stripped(scene: Scene, part: str) -> AsyncIterator[None]:
    """Let an admission policy of the app cluster take a part of metadata from all instances."""
    remove = f'[JSONPatch{{op: "remove", path: "/metadata/{part}"}}]'
    marks = ["probe.example/x"] if part == "finalizers" else {"probe.example/x": "x"}
    async with _policed(scene.app, scene, f"has(object.metadata.{part}) ? {remove} : []"):
        await until(lambda: _is_stripped(sides(scene)[0], part, marks))
        yield


@contextlib.asynccontextmanager
async def _policed(live: LiveCluster, scene: Scene, operation: str) -> AsyncIterator[None]:
    name, cluster = scene.offer.group, live.cluster
    rule = {
        "apiGroups": [scene.offer.group],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [scene.offer.resource.plural],
    }
    policy: manifest.Manifest = {
        "matchConstraints": {"resourceRules": [rule]},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": operation}}],
        "reinvocationPolicy": "Never",
    }
    await cluster.create(build(_POLICY, name, spec=policy), _POLICY, manager="provider")
    use = build(_USE_OF_POLICY, name, spec={"policyName": name})
    await cluster.create(use, _USE_OF_POLICY, manager="provider")
    try:
        yield
    finally:
        await remove(live, _USE_OF_POLICY, "", name)
        await remove(live, _POLICY, "", name)


async def _is_stripped(side: Side, part: str, marks: Any) -> bool:
    body, ref = {"metadata": {part: marks}}, side.ref("orders")
    tried = await side.live.cluster.merge_patch(ref, body, manager="tests", dry_run=True)
    return "probe.example" not in str(manifest.get(tried, "metadata", part))


async def _is_mutated(side: Side, value: str) -> bool:
    try:
        made = await side.make("probe")
    except Unreachable:  # 500: the server does not know the kind yet where policies are evaluated
        return False
    await side.delete("probe")
    return value in str(made["spec"])


async def event(scene: Scene, name: str, reason: str) -> Any:
    """Return the Event about an instance, if there is one."""
    return next(iter(await events(scene, name, reason)), None)


async def events(scene: Scene, name: str, reason: str) -> list[Any]:
    """Return the Events about an instance, the oldest first."""
    namespace = scene.app_namespace if scene.offer.kind.namespaced else "default"
    found = (await scene.app.cluster.list(EVENT, namespace=namespace)).items
    mine = [
        one
        for one in found
        if manifest.get_text(one, "regarding", "name") == name
        and manifest.get_text(one, "regarding", "kind") == scene.offer.kind.kind
    ]
    reported = [one for one in mine if one["reason"] == reason]
    return sorted(reported, key=lambda one: manifest.get_text(one, "eventTime"))


async def warns(scene: Scene) -> bool:
    """Return whether the API server warns everyone who uses the kind."""
    (version,) = manifest.get_maps(await scene.in_app(CRD, scene.offer.name), "spec", "versions")
    warning = manifest.get_text(version, "deprecationWarning")
    return bool(version.get("deprecated")) and scene.offer.name in warning


async def refusal(scene: Scene) -> str:
    """Return what the binding says of instances that are refused, "" for nothing."""
    said = conditions(await scene.binding()).get(INSTANCES_REFUSED.type, {})
    return said.get("message", "") if said.get("status") == "False" else ""


async def equals(reading: Awaitable[Any], value: Any) -> bool:
    found = await reading
    assert found == value
    return True


def _verb(event: manifest.Manifest) -> str:
    code = manifest.get(event, "responseStatus", "code")
    verb = manifest.get_text(event, "verb")
    return verb if isinstance(code, int) and code < 300 else f"{code} for {verb}"


def _written(side: Side, mark: int, word: str) -> list[str]:
    """Return what konnectors wrote of instances on one side, but for other spaces'."""
    ours = (
        event["objectRef"] | {"verb": _verb(event)}
        for event in side.live.audit.answers_since(mark)
        if manifest.get_text(event, "objectRef", "apiGroup") == side.scene.offer.group
        and event.get("userAgent", "").startswith(AGENT)
    )
    return [
        f"{one['verb']}{'/' + one['subresource'] if 'subresource' in one else ''}"
        f" {word} {one.get('name', '').removeprefix(side.prefix)}"
        for one in ours
    ]
