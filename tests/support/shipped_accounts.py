"""Each account that is shipped, with all its rights and policies, and a ground to try them on."""

import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import konnector
from reconciler.blueprints import objects as spaces
from reconciler.blueprints import policies as shipped
from reconciler.blueprints import rbac
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys, names, refs
from reconciler.core.manifest import Manifest, get_text, name_of, put, uid_of
from reconciler.core.refs import Ref
from reconciler.doctor import policies, rights
from reconciler.doctor.rights import Side, Task, scope_of_fleet
from reconciler.fleet.values import DeletionPolicy, Konnector, Mode, Rbac
from reconciler.kube.client import KubeCluster
from tests.support import deployed, fleets, osb_rights, osb_scenes, removal
from tests.support.accounts import token_of, with_token
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.observing import BIND

ENFORCE: Final = "pod-security.kubernetes.io/enforce"
KONNECTOR: Final = Path(konnector.__file__).parent / "deploy"
_POLICIES: Final = (refs.ADMISSION_POLICY.kind, refs.ADMISSION_POLICY_BINDING.kind)
_WORKLOAD: Final = ("Deployment", "PodDisruptionBudget", "NetworkPolicy", "Service", "Ingress")
FLEET, FLEETS = "measured", fleets.app_cluster().app_cluster_binding[0]
# What the name of a space begins with, a fleet's or an AppClusterBinding's.
OF_FLEET, OF_BINDING = SPACES = "cluster", names.app_cluster_binding_space("klutch", "")[:-1]


@dataclass(frozen=True, slots=True)
class Ground:
    """Two spaces, their service namespaces and an app namespace, on one cluster."""

    live: LiveCluster
    space: str
    home: str
    other: str
    stranger: str

    @property
    def strangers_home(self) -> str:
        return f"{self.stranger}-team-a"

    async def belongs_to(self, account: str) -> None:
        """Have the service namespace say of which account it is, by its uid."""
        ref = Ref(self.live.name, refs.NAMESPACE, "", self.home)
        notes: Manifest = {"metadata": {"annotations": {keys.ACCOUNT_UID: account}}}
        await self.live.cluster.merge_patch(ref, notes, manager="klutch-bind")


@asynccontextmanager
async def ground(live: LiveCluster, spaces_of: str = OF_FLEET) -> AsyncIterator[Ground]:
    name = f"{spaces_of}-{uuid.uuid4().hex[:10]}"
    other = f"{spaces_of}-{uuid.uuid4().hex[:10]}"
    place = Ground(live, name, f"{name}-team-a", f"other-{name}", other)
    strict = {ENFORCE: "restricted"}
    of_space = Marks({keys.CLUSTER: "shop", **strict}, {keys.IDENTITY: "klutchctl:acme/shop"})
    made = [(BIND, Marks()), (FLEETS, Marks()), (place.other, Marks(strict))]
    for space, home in ((name, place.home), (place.stranger, place.strangers_home)):
        mark = {keys.API_SERVICE_NAMESPACE: f"{space}/team-a"}
        # A label of a space makes no space of what holds services.
        made += [(space, of_space), (home, Marks({keys.CLUSTER: "shop", **strict}, mark))]
    objects = [(refs.NAMESPACE, spaces.namespace(one, marks=marks)) for one, marks in made]
    objects.append(
        (refs.SERVICE_ACCOUNT, build(refs.SERVICE_ACCOUNT, names.BINDER, namespace=name))
    )
    objects += [
        (refs.SECRET, build(refs.SECRET, "own", namespace=one, stringData={"a": "b"}))
        for one in (place.other, place.home, place.strangers_home, BIND)
    ]
    objects += [
        (refs.SECRET, build(refs.SECRET, names.BINDER, namespace=one))
        for one in (name, place.stranger)
    ]
    for kind, one in objects:
        await live.cluster.apply(one, kind, manager="tests", force=True)
    account = await live.cluster.get(Ref(live.name, refs.SERVICE_ACCOUNT, name, names.BINDER))
    await place.belongs_to(uid_of(account or {}))
    yield place
    for kind, one in objects:
        if name_of(one) not in (BIND, FLEETS):
            await removal.remove_manifest(live.cluster, kind, one)


def pods(account: str, **more: Any) -> Any:
    container = {"name": "konnector", "image": "x", **more.pop("container", {})}
    labels = {"app": "konnector"}
    return {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"serviceAccountName": account, "containers": [container], **more},
        },
    }


@dataclass(frozen=True, slots=True)
class Account:
    """An account with all that is shipped for it. `rights` and `policies` are manifests.

    `service` is the group and the plural of a service that it has to do with.
    """

    namespace: str
    name: str
    rights: Sequence[Manifest]
    policies: Sequence[Manifest]
    service: tuple[str, str]


Made = Callable[[Ground], Account]
_A9S: Final = ("anynines.com", "postgresqlinstances")


def _deployed(name: str, folder: Path) -> Account:
    made = [one for one in deployed.built(folder) if _is_kept(one)]
    held = [one for one in made if one["kind"] in _POLICIES]
    given = [one for one in made if one["kind"] not in _POLICIES]
    return Account(BIND, name, given, held, _A9S)


def a_fleet(mode: Mode, rbac: Rbac = Rbac.MINIMAL, **of_unit: Any) -> Any:
    """Return a fleet whose apply has all rights that any has: it deploys, and may delete."""
    cluster = fleets.app_cluster(konnector=Konnector(deploy=True, image="x", rbac=rbac))
    unit = fleets.unit(deletion_policy=DeletionPolicy.DELETE, **of_unit)
    made = fleets.fleet(
        control_planes=[fleets.control_plane(mode=mode)], clusters=[cluster], units=[unit]
    )
    return replace(made, name=FLEET)


def klutchctl(task: Task, side: Side, mode: Mode = Mode.DIRECT, **of_unit: Any) -> Account:
    scope = scope_of_fleet(a_fleet(mode, **of_unit))
    return Account(
        BIND,
        rights.account(FLEET, task),
        rights.manifests(task, side, scope),
        policies.manifests(task, side, scope),
        fleets.DATABASES,
    )


def of_brokers(_: Ground) -> Account:
    """Return klutch-osb with the kinds of a broker, and with those of compositions."""
    made = [one for one in osb_rights.shipped(deployed.DATASERVICES) if _is_kept(one)]
    held = [one for one in made if one["kind"] in _POLICIES]
    given = [one for one in made if one["kind"] not in _POLICIES]
    service = (osb_scenes.GROUP, osb_scenes.INSTANCE.plural)
    return Account(names.OSB_NAMESPACE, keys.MANAGER_OSB, given, held, service)


def _is_kept(one: Manifest) -> bool:
    return get_text(one, "kind") not in _WORKLOAD


def _with_rights(place: Ground, given: Sequence[Manifest]) -> Account:
    return Account(place.space, names.BINDER, given, shipped.binder().manifests(), _A9S)


def a_binder(place: Ground) -> Account:
    """Return the account of a space with one export, with a permission claim on Secrets."""
    export: Manifest = {
        "spec": {
            "group": _A9S[0],
            "names": {"plural": _A9S[1]},
            "permissionClaims": [{"group": "", "resource": "secrets"}],
        }
    }
    role = build(
        refs.CLUSTER_ROLE,
        names.space_cluster_role(place.space),
        rules=[*rbac.space_rules([export])],
    )
    given = [
        rbac.binder_role(),
        role,
        rbac.binding_in_space(place.space),
        rbac.binding_in_service_namespace(place.space, place.home),
    ]
    return _with_rights(place, given)


def a_binder_everywhere(place: Ground) -> Account:
    """Return the account of a space in consumer scope `Cluster`."""
    secrets = {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["*"]}
    role = build(refs.CLUSTER_ROLE, names.space_cluster_role(place.space), rules=[secrets])
    uid = put(build(refs.NAMESPACE, place.space), "x", "metadata", "uid")
    everywhere = put(rbac.binding_everywhere(uid), [], "metadata", "ownerReferences")
    return _with_rights(place, [role, everywhere])


ON_PLANE: Final[Mapping[str, Made]] = {
    "plan": lambda _: klutchctl(Task.PLAN, Side.CONTROL_PLANE),
    "apply": lambda _: klutchctl(Task.APPLY, Side.CONTROL_PLANE),
    "apply with AppClusterBindings": lambda _: klutchctl(
        Task.APPLY, Side.CONTROL_PLANE, Mode.APP_CLUSTER_BINDING
    ),
    "klutch-bind": lambda _: _deployed("klutch-bind", deployed.FOLDER),
    "klutch-bind in control-plane mode": lambda _: _deployed(
        "klutch-bind", deployed.CONTROL_PLANE_MODE
    ),
    "klutch-bind in consumer scope Cluster": lambda _: _deployed(
        "klutch-bind", deployed.CLUSTER_SCOPE
    ),
    "klutch-bind with its front door": lambda _: _deployed("klutch-bind", deployed.FRONT_DOOR),
    "klutch-osb": of_brokers,
    "klutch-binder": a_binder,
    "klutch-binder in consumer scope Cluster": a_binder_everywhere,
}
IN_APP: Final[Mapping[str, Made]] = {
    "plan": lambda _: klutchctl(Task.PLAN, Side.APP_CLUSTER),
    "apply": lambda _: klutchctl(Task.APPLY, Side.APP_CLUSTER),
    "apply with AppClusterBindings": lambda _: klutchctl(
        Task.APPLY, Side.APP_CLUSTER, Mode.APP_CLUSTER_BINDING
    ),
    "konnector": lambda _: _deployed(names.KONNECTOR, KONNECTOR / "minimal"),
}


def full_konnector(_: Ground) -> Account:
    """Return the konnector with all rights: an administrator, whom no policy can hold."""
    return _deployed(names.KONNECTOR, KONNECTOR / "full")


@asynccontextmanager
async def held(live: LiveCluster, account: Account) -> AsyncIterator[str]:
    """Give an account its rights, and yield a token of it once the API server knows them."""
    cluster = live.cluster
    own = build(refs.SERVICE_ACCOUNT, account.name, namespace=account.namespace)
    namespaces = [one for one in account.rights if one.get("kind") == refs.NAMESPACE.kind]
    try:
        for one in (*namespaces, own, *account.rights):
            kind = deployed.KINDS[get_text(one, "kind")]
            await cluster.apply(one, kind, manager="operator", force=True)
        token = await token_of(live.cluster, account.namespace, account.name)
        await _known(live, account, token)
        yield token
    finally:
        for one in account.rights:
            kind = deployed.KINDS[get_text(one, "kind")]
            if kind != refs.NAMESPACE:
                await removal.remove_manifest(cluster, kind, one)


async def _known(live: LiveCluster, account: Account, token: str) -> None:
    wanted = deployed.granted(account.rights)
    places = {BIND, *(get_text(one, "metadata", "namespace") for one in account.rights)} - {""}
    async with KubeCluster(with_token(live.connection, token)) as cluster:

        async def known() -> bool:
            found = [await deployed.rights_in(cluster, one) for one in sorted(places)]
            return wanted <= frozenset().union(*found)

        await eventually(known)
