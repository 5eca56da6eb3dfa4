"""klutch-bind and konnectors as servers of a sandbox: their commands and their rights. Pure."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klutchctl.sandbox.keycloak import server as keycloak
from klutchctl.sandbox.monitoring import server as monitoring
from klutchctl.sandbox.processes import identity
from klutchctl.sandbox.servers import HttpProbe, Launch, Server
from klutchctl.sandbox.state import Layout, Member, Role, State
from reconciler import api
from reconciler.blueprints import rbac
from reconciler.core import names, refs
from reconciler.core.manifest import Manifest, get_list, get_map, get_text, name_of, put

_ROOT: Final = Path(__file__).parents[3]  # of the packages, in a checkout as in a wheel
_LOOPBACK: Final = "127.0.0.1"


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


def identities(layout: Layout, members: Iterable[Member]) -> list[str]:
    """Return the marks of the programs of these clusters, which no service can have."""
    return [identity(layout, f"{of(one).name}:{one.id}") for one in members]


def kubeconfig(layout: Layout, member: Member) -> Path:
    """Return the kubeconfig of a cluster for its program, with that account alone."""
    return layout.cluster(member.id) / f"{of(member).name}.kubeconfig"


def servers(layout: Layout, state: State) -> tuple[Server, ...]:
    """Return a klutch-bind for each control plane and a konnector for each app cluster."""
    ports = state.agents or {}
    served = (one for one in state.members if one.id in ports)
    return tuple(_server(layout, state, one, ports[one.id]) for one in served)


def _server(layout: Layout, state: State, member: Member, port: int) -> Server:
    agent = of(member)
    (mark,) = identities(layout, [member])
    arguments = (
        *("-P", "-m", agent.package),
        f"--kubeconfig={kubeconfig(layout, member)}",
        f"--lease-namespace={names.KLUTCH_NAMESPACE}",
        *_mode(layout, state, member),
        _metrics(state, member),
        f"--probe-address={_LOOPBACK}:{port}",
    )
    return Server(
        name=f"{agent.name} of {member.context}",
        program=agent.name,
        cluster_id=member.id,
        arguments=arguments,
        identity=mark,
        log=layout.logs / f"{agent.name}-{member.id}.log",
        ports=(port,),
        probe=HttpProbe(port, "/readyz"),
        launch=Launch(Path(sys.executable), layout.root),
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
    """What control planes offer: the kinds, and those that permission claims name."""

    services: frozenset[refs.GroupResource]
    claimed: frozenset[rbac.Claimed]


def offered(templates: Iterable[Manifest]) -> Offered:
    """Return what APIServiceExportTemplates offer."""
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
    """Yield what is shipped, with rights on what is offered in place of those on an example.

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
    """Return what RBAC rules allow, one by one; names of objects do not count."""
    return frozenset(
        (str(group), str(resource), str(verb))
        for rule in rules
        for group in get_list(rule, "apiGroups")
        for resource in get_list(rule, "resources")
        for verb in get_list(rule, "verbs")
    )
