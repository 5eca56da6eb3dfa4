"""The state of a sandbox as values: files, clusters and ports. Pure."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field

from reconciler.core.errors import ConfigError, InvalidRepository, Problem
from reconciler.fleet.values import AppCluster, ControlPlane, Fleet

# What returns so many ports that are free.
NewPorts: TypeAlias = Callable[[int], Sequence[int]]
_Port: TypeAlias = Annotated[int, Field(ge=1, le=65535)]
LOOPBACK: Final = "127.0.0.1"
CONTROLLER_MANAGER_USER: Final = "system:kube-controller-manager"
_PLAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Layout:
    """The folder of one sandbox. `root` is absolute and free of symbolic links.

    The servers' arguments name files below `root`: this is how they are recognised later.
    """

    root: Path

    def command(self, words: str) -> str:
        """Return `klutchctl sandbox WORDS` as a person types it for this sandbox and no other."""
        name = "" if self.root.name == "default" else f" --name {self.root.name}"
        return f"`klutchctl sandbox {words}{name}`"

    @property
    def removal(self) -> str:
        """Return the command that starts from scratch, for hopeless cases."""
        return f"{self.command('down --delete')} removes the sandbox with its data"

    @property
    def state_file(self) -> Path:
        return self.root / "state.json"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig for people, with a context for each cluster."""
        return self.root / "kubeconfig"

    @property
    def etcd_data(self) -> Path:
        """The data of every cluster. Losing it is losing the sandbox."""
        return self.root / "etcd" / "data"

    @property
    def etcd_pki(self) -> Path:
        """Certificates that only etcd and the API servers use."""
        return self.root / "etcd" / "pki"

    @property
    def logs(self) -> Path:
        """The logs, a file for each server; `.previous` has the run before."""
        return self.root / "logs"

    @property
    def services(self) -> Path:
        """The folder of all programs beside the clusters, but their logs."""
        return self.root / "services"

    @property
    def services_kubeconfig(self) -> Path:
        """For services: the control plane alone, as an administrator."""
        return self.services / "kubeconfig"

    @property
    def postgresql_address(self) -> Path:
        """For services: one line, the address of PostgreSQL with its superuser's password."""
        return self.services / "postgresql.address"

    @property
    def postgresql_password(self) -> Path:
        """The password of PostgreSQL's superuser, made with its data."""
        return self.services / "postgresql.password"

    def program_data(self, name: str) -> Path:
        return self.services / "data" / name

    @property
    def keycloak(self) -> Path:
        """The home of Keycloak, and beside its data the secrets of its realm."""
        return self.root / "keycloak"

    @property
    def monitoring(self) -> Path:
        """The files of Prometheus, and flags of the programs that it asks."""
        return self.root / "monitoring"

    @property
    def lock_file(self) -> Path:
        """Beside the folder, so that it outlives `down --delete`."""
        return self.root.parent / f".{self.root.name}.lock"

    def cluster(self, cluster_id: str) -> Path:
        """Everything of one cluster but its data and logs."""
        return self.root / "clusters" / cluster_id

    def pki(self, cluster_id: str) -> Path:
        return self.cluster(cluster_id) / "pki"


def check_name(name: str) -> None:
    """Raise ConfigError if no sandbox can have this name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot name a sandbox",
            where="--name",
            hint="Use up to 40 lower case letters, digits and dashes",
        )


def layout_of(name: str, *, state_home: Path) -> Layout:
    """Return the layout of the sandbox `name`. Raises ConfigError for an unusable name."""
    check_name(name)
    return Layout((state_home / "klutchctl" / "sandbox").resolve() / name)


class Role(StrEnum):
    """The role of a cluster; it decides about its CRDs."""

    CONTROL_PLANE = "control-plane"
    APP_CLUSTER = "app-cluster"


class Component(StrEnum):
    """A program beside the control plane that the sandbox knows how to run."""

    CROSSPLANE = "crossplane"
    FUNCTION = "function-patch-and-transform"
    PROVIDER_KUBERNETES = "provider-kubernetes"
    POSTGRESQL = "postgresql"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A cluster that should exist. `context` is its name in the kubeconfig."""

    context: str
    role: Role


@dataclass(frozen=True, slots=True)
class Member:
    """A cluster of the sandbox; its API server listens on `port` of loopback."""

    context: str
    role: Role
    port: _Port

    @property
    def id(self) -> str:
        """A name for files and for the prefix in etcd: the context where it is a plain word."""
        if _PLAIN.fullmatch(self.context):
            return self.context
        digest = hashlib.sha256(self.context.encode()).hexdigest()[:10]
        return f"{re.sub('[^a-z0-9]+', '-', self.context.lower()).strip('-')[:40]}.{digest}"

    @property
    def server(self) -> str:
        return f"https://{LOOPBACK}:{self.port}"


@dataclass(frozen=True, slots=True)
class Services:
    """The services beside the control plane. `folder` has their services.yaml;
    `ports` are by purpose, and stay when what they are for goes.
    """

    folder: str
    components: tuple[Component, ...]
    programs: tuple[str, ...]
    ports: Mapping[str, _Port]
    crossplane: str = "1.20"  # that of sandboxes before there was a choice


@dataclass(frozen=True, slots=True)
class KeycloakPorts:
    """The ports of Keycloak, and of a klutch-bind that trusts it."""

    http: _Port
    health: _Port
    door: _Port


@dataclass(frozen=True, slots=True)
class MonitoringPorts:
    """The port of Prometheus, and the metrics ports of programs, by their names."""

    http: _Port
    programs: Mapping[str, _Port]


@dataclass(frozen=True, slots=True)
class State:
    """A sandbox: an etcd and its clusters, control planes first. Ports never change by
    themselves: kubeconfigs out there point to them.
    """

    etcd_port: _Port
    etcd_peer_port: _Port
    members: tuple[Member, ...]
    services: Services | None = None
    keycloak: KeycloakPorts | None = None
    monitoring: MonitoringPorts | None = None
    # By the ids of clusters: where klutch-bind or the konnector of each answers probes.
    agents: Mapping[str, _Port] | None = None

    @property
    def ports(self) -> tuple[int, ...]:
        """Every port that the sandbox calls its own."""
        return tuple(_ports(self))


def _ports(part: object) -> Iterator[int]:
    """Yield the numbers in a part of a state: all of them are ports."""
    match part:
        case int():
            yield part
        case Mapping() | tuple():
            for one in part.values() if isinstance(part, Mapping) else part:
                yield from _ports(one)
        case State() | Member() | Services() | KeycloakPorts() | MonitoringPorts():
            for one in fields(part):
                yield from _ports(getattr(part, one.name))


def app_clusters(count: int) -> tuple[Wanted, ...]:
    """Return a control plane and `count` app clusters."""
    return (
        Wanted("control-plane", Role.CONTROL_PLANE),
        *(Wanted(f"app-{number}", Role.APP_CLUSTER) for number in range(1, count + 1)),
    )


def of_fleet(fleet: Fleet) -> tuple[Wanted, ...]:
    """Return a cluster per kubeconfig context that a fleet names, control planes first.

    Raises InvalidRepository, with all such places, where a sandbox cannot stand in.
    """
    problems = list(_problems(fleet))
    if problems:
        raise InvalidRepository(problems)
    return tuple(Wanted(one.access.context, role) for one, role in _members(fleet))


def _members(fleet: Fleet) -> Iterator[tuple[ControlPlane | AppCluster, Role]]:
    for plane in fleet.control_planes.values():
        yield plane, Role.CONTROL_PLANE
    for cluster in fleet.clusters.values():
        yield cluster, Role.APP_CLUSTER


def _problems(fleet: Fleet) -> Iterator[Problem]:
    holders: dict[str, str] = {}
    for one, _ in _members(fleet):
        context = one.access.context
        if not context:
            message = f"{one.name} is not reached by a kubeconfig context"
            hint = "A sandbox stands in only for clusters with spec.access.kubeconfigContext"
            yield Problem(one.origin, "no-context", message, hint)
        elif context in holders:
            message = f"the context {context!r} is that of {holders[context]} already"
            yield Problem(one.origin, "duplicate-context", message)
        holders[context] = one.name
    if not fleet.control_planes:
        yield Problem(fleet.origin, "no-control-plane", "the fleet has no ControlPlane document")


def lacking(state: State, wanted: Sequence[Wanted]) -> tuple[Member, ...]:
    """Return the clusters of `state` that `wanted` does not name in the same role."""
    return tuple(m for m in state.members if Wanted(m.context, m.role) not in wanted)


def extend(state: State | None, wanted: Sequence[Wanted], *, new_ports: NewPorts) -> State:
    """Return `state` with the clusters of `wanted` added; present ones keep their ports."""
    if state is None:
        client, peer = new_ports(2)
        state = State(etcd_port=client, etcd_peer_port=peer, members=())
    known = {member.context for member in state.members}
    added = [want for want in wanted if want.context not in known]
    ports = new_ports(len(added)) if added else ()
    made = (Member(one.context, one.role, port) for one, port in zip(added, ports, strict=True))
    members = [*state.members, *made]
    members.sort(key=lambda member: member.role is not Role.CONTROL_PLANE)
    return replace(state, members=tuple(members))


def assigned(
    known: Mapping[str, int], purposes: Iterable[str], new_ports: NewPorts
) -> dict[str, int]:
    """Return the ports that are known, and a new one for each purpose that has none yet."""
    added = [purpose for purpose in purposes if purpose not in known]
    ports = zip(added, new_ports(len(added)) if added else (), strict=True)
    return {**known, **dict(ports)}


def with_new_ports(state: State, taken: Iterable[int], *, new_ports: NewPorts) -> State:
    """Return `state` with another port in place of each one of `taken`."""
    old = sorted(set(taken))
    moved = _moved(state, dict(zip(old, new_ports(len(old)), strict=True)))
    assert isinstance(moved, State)
    return moved


def _moved(part: object, instead: Mapping[int, int]) -> object:
    match part:
        case int():
            return instead.get(part, part)
        case tuple():
            return tuple(_moved(one, instead) for one in part)
        case Mapping():
            return {name: _moved(one, instead) for name, one in part.items()}
        case State() | Member() | Services() | KeycloakPorts() | MonitoringPorts():
            named: dict[str, Any] = {
                one.name: _moved(getattr(part, one.name), instead) for one in fields(part)
            }
            return replace(part, **named)
    return part
