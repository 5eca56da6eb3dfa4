"""Runs klutch-bind and konnectors, each with an account and its shipped rights."""

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml

from klutchctl import files
from klutchctl.sandbox import credentials, manifests
from klutchctl.sandbox.addons import keycloak, monitoring
from klutchctl.sandbox.addons.addon import Addon, Run
from klutchctl.sandbox.processes import identity
from klutchctl.sandbox.servers import HttpProbe, Launch, Server
from klutchctl.sandbox.state import LOOPBACK, Layout, Member, NewPorts, Role, State, assigned
from reconciler import api
from reconciler.blueprints import rbac
from reconciler.core import names, refs
from reconciler.core.errors import HostError, Origin
from reconciler.core.manifest import Manifest, get_list, get_map, get_maps, get_text, name_of, put
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection

_ROOT: Final = Path(__file__).parents[3]  # of the packages, in a checkout as in a wheel
_MANAGER: Final = "klutchctl-sandbox"
REVIEW: Final = refs.Kind(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectRulesReview",
    "selfsubjectrulesreviews",
    namespaced=False,
)
_POLL: Final = 0.1
_DEADLINE: Final = 60.0  # an API server hears of new rights within moments


@dataclass(frozen=True, slots=True)
class Agent:
    """A program of ours: its name, the package that runs it, and where its manifests are."""

    name: str
    package: str
    folders: tuple[str, ...]  # below `deploy` of the package; the first has the account
    services: str  # the ClusterRole with rights on what is offered

    @property
    def user(self) -> str:
        """The name that API servers know its account by."""
        return f"system:serviceaccount:{names.KLUTCH_NAMESPACE}:{self.name}"

    def manifests(self) -> Iterator[Path]:
        """Yield the files to apply, all that is shipped but for pods and their network."""
        deploy = _ROOT / self.package / "deploy"
        for folder in self.folders:
            for name in ("namespace", "rights", "services", "policies"):
                if (path := deploy / folder / f"{name}.yaml").is_file():
                    yield path


_BACKEND: Final = Agent(
    "klutch-bind",
    "bind",
    ("default-mode", "control-plane-mode", "front-door"),
    "klutch-bind-services",
)
_KONNECTOR: Final = Agent(
    names.KONNECTOR, "konnector", ("minimal",), "klutch-bind-konnector-services"
)


def of(member: Member) -> Agent:
    """Return the program that serves a cluster."""
    return _BACKEND if member.role is Role.CONTROL_PLANE else _KONNECTOR


def kubeconfig(layout: Layout, member: Member) -> Path:
    """Return the kubeconfig of a cluster for its program, with that account alone."""
    return layout.cluster(member.id) / f"{of(member).name}.kubeconfig"


def extend(state: State, _kit: object, new_ports: NewPorts) -> State:
    ids = (member.id for member in state.members)
    return replace(state, agents=assigned(state.agents or {}, ids, new_ports))


def servers(layout: Layout, state: State, _kit: object = None) -> tuple[Server, ...]:
    """Return a klutch-bind for each control plane and a konnector for each app cluster."""
    ports = state.agents or {}
    served = (one for one in state.members if one.id in ports)
    return tuple(_server(layout, state, one, ports[one.id]) for one in served)


def _server(layout: Layout, state: State, member: Member, port: int) -> Server:
    agent = of(member)
    arguments = (
        *("-P", "-m", agent.package),
        f"--kubeconfig={kubeconfig(layout, member)}",
        f"--lease-namespace={names.KLUTCH_NAMESPACE}",
        *_mode(layout, state, member),
        _metrics(state, member),
        f"--probe-address={LOOPBACK}:{port}",
    )
    return Server(
        name=f"{agent.name} of {member.context}",
        program=agent.name,
        cluster_id=member.id,
        arguments=arguments,
        identity=identity(layout, f"{agent.name}:{member.id}"),
        log=layout.logs / f"{agent.name}-{member.id}.log",
        ports=(port,),
        probe=HttpProbe(port, "/readyz"),
        launch=Launch(Path(sys.executable), layout.root, reads=(member.server,)),
    )


def _mode(layout: Layout, state: State, member: Member) -> Sequence[str]:
    if member.role is Role.APP_CLUSTER:
        return (f"--binding-namespace={names.KLUTCH_NAMESPACE}",)
    door = state.keycloak if member == state.members[0] else None
    return ("--control-plane-mode", *(keycloak.door_flags(layout, door) if door else ()))


def _metrics(state: State, member: Member) -> str:
    """Return the flag by which a Prometheus, where there is one, is shown metrics."""
    name = of(member).name if member == state.members[0] else f"{of(member).name}-{member.id}"
    if state.monitoring and name in state.monitoring.programs:
        return monitoring.flag(state.monitoring, name)
    return "--metrics-address="


@dataclass(frozen=True, slots=True)
class Offered:
    """The offer of the control planes: the kinds, and those that permission claims name."""

    services: frozenset[refs.GroupResource]
    claimed: frozenset[rbac.Claimed]


def offered(templates: Iterable[Manifest]) -> Offered:
    """Return the offers of APIServiceExportTemplates."""
    by_resource = api.by_resource(templates)
    claimed = (
        rbac.Claimed(
            get_text(claim, "group"),
            get_text(claim, "resource"),
            down=get_text(claim, "selector", "owner") != "Consumer",
        )
        for template in by_resource.values()
        for claim in api.permission_claims_of(template)
    )
    return Offered(frozenset(by_resource), frozenset(claimed))


def rights(agent: Agent, shipped: Iterable[Manifest], offers: Offered) -> Iterator[Manifest]:
    """Yield the shipped manifests, with rights on the offered kinds in place of an example's.

    ClusterRoles of a konnector get names of their own: a fleet with `konnector: {deploy: true}`
    makes one of the shipped name, which is its own to change.
    """
    for one in shipped:
        made = one
        if (get_text(one, "kind"), name_of(one)) == (refs.CLUSTER_ROLE.kind, agent.services):
            made = put(one, list(_services(agent, offers)), "rules")
        yield _renamed(made) if agent is _KONNECTOR else made


def _services(agent: Agent, offers: Offered) -> Sequence[Manifest]:
    if agent is _KONNECTOR:
        return rbac.minimal(offers.services, offers.claimed)
    claimed = {refs.GroupResource(one.group, one.plural) for one in offers.claimed}
    return rbac.everything_on(offers.services | claimed)


def _renamed(manifest: Manifest) -> Manifest:
    kind, role = get_text(manifest, "kind"), get_map(manifest, "roleRef")
    if kind in (refs.CLUSTER_ROLE.kind, refs.CLUSTER_ROLE_BINDING.kind):
        manifest = put(manifest, f"sandbox-{name_of(manifest)}", "metadata", "name")
    if get_text(role, "kind") == refs.CLUSTER_ROLE.kind:
        manifest = put(manifest, f"sandbox-{get_text(role, 'name')}", "roleRef", "name")
    return manifest


Right = tuple[str, str, str]  # group, resource with its subresource, verb


def granted(rules: Iterable[Manifest]) -> frozenset[Right]:
    """Return the rights of RBAC rules, one by one; names of objects do not count."""
    return frozenset(
        (str(group), str(resource), str(verb))
        for rule in rules
        for group in get_list(rule, "apiGroups")
        for resource in get_list(rule, "resources")
        for verb in get_list(rule, "verbs")
    )


def start(run: Run, _kit: object) -> None:
    """Start the missing agents, with rights on all kinds that are offered by now."""
    for member in run.state.members:
        _write_files(run.layout, member)
    with run.progress.step("giving klutch-bind and konnectors their rights"):
        asyncio.run(_give_rights(run.layout, run.state))
    run.start(servers(run.layout, run.state))


def _write_files(layout: Layout, member: Member) -> None:
    folder, user = _client(layout, member).parent, of(member).user
    credentials.ensure_client(folder, layout.pki(member.id), user=user)
    own = credentials.kubeconfig(layout, [member], _client(layout, member))
    files.write(kubeconfig(layout, member), own)


def _client(layout: Layout, member: Member) -> Path:
    return layout.cluster(member.id) / of(member).name / "client"


async def _give_rights(layout: Layout, state: State) -> None:
    """Give each program the rights that are shipped for it, and wait until they hold."""
    planes = [one for one in state.members if one.role is Role.CONTROL_PLANE]
    offers = offered([one for plane in planes for one in await _templates(layout, plane)])
    async with asyncio.TaskGroup() as group:
        for member in state.members:
            group.create_task(_give(layout, member, offers))


async def _templates(layout: Layout, plane: Member) -> Sequence[Manifest]:
    async with KubeCluster(credentials.connection(layout, plane)) as cluster:
        return (await cluster.list(api.API_SERVICE_EXPORT_TEMPLATE)).items


async def _give(layout: Layout, member: Member, offers: Offered) -> None:
    made = list(rights(of(member), _shipped(member), offers))
    async with KubeCluster(credentials.connection(layout, member)) as cluster:
        written = [manifests.Written(one, Origin("klutchctl")) for one in made]
        await manifests.apply(cluster, written, manager=_MANAGER)
    roles = (refs.ROLE.kind, refs.CLUSTER_ROLE.kind)
    rules = [
        rule for one in made if get_text(one, "kind") in roles for rule in get_maps(one, "rules")
    ]
    own = credentials.connection(layout, member, _client(layout, member))
    await _await_rights(own, granted(rules))


def _shipped(member: Member) -> Iterator[Manifest]:
    for path in of(member).manifests():
        yield from yaml.load_all(path.read_bytes(), yaml.CSafeLoader)


async def _await_rights(way: Connection, wanted: frozenset[Right]) -> None:
    """Wait until an account has these rights: a program ends that starts without."""
    review: Manifest = {
        "apiVersion": REVIEW.api_version,
        "kind": REVIEW.kind,
        "spec": {"namespace": names.KLUTCH_NAMESPACE},
    }
    deadline = time.monotonic() + _DEADLINE
    async with KubeCluster(way) as cluster:
        while time.monotonic() < deadline:
            answer = await cluster.create(review, REVIEW, manager=_MANAGER)
            if wanted <= granted(get_maps(answer, "status", "resourceRules")):
                return
            await asyncio.sleep(_POLL)
    raise HostError(
        f"the program of {way.name} has not got its rights after {_DEADLINE:.0f} s",
        hint="Run the command again; read the log of its kube-apiserver",
    )


ADDON: Final = Addon(
    name="agents",
    find=lambda _request: sys.executable,
    extend=extend,
    servers=servers,
    start=start,
    summary=lambda _state: (
        "Programs: klutch-bind on control planes, a konnector for each app cluster"
    ),
)
