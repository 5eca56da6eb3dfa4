"""Bring a sandbox up, take it down, look at it. The order of things lives here."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from klutchctl import files
from klutchctl.sandbox import (
    components,
    credentials,
    postgresql,
    processes,
    servers,
    startup,
    state,
    state_file,
)
from klutchctl.sandbox.agents import server as agents
from klutchctl.sandbox.components import Kit
from klutchctl.sandbox.keycloak import server as keycloak
from klutchctl.sandbox.keycloak.server import KeycloakKit
from klutchctl.sandbox.monitoring import server as monitoring
from klutchctl.sandbox.monitoring.server import MonitoringKit
from klutchctl.sandbox.nodes import cgroups, machine, network
from klutchctl.sandbox.nodes import server as nodes
from klutchctl.sandbox.nodes.server import NodesKit
from klutchctl.sandbox.processes import Observed
from klutchctl.sandbox.report import Health, Progress, Status
from klutchctl.sandbox.servers import NORMAL, Program, Server, Tuning
from klutchctl.sandbox.startup import STOP_GRACE
from klutchctl.sandbox.state import Layout, Member, Services, State, Wanted
from reconciler.core.errors import ConfigError, HostError
from reconciler.core.secret import Secret
from reconciler.kube.connection import ClientCertificate, Connection

_VARIABLE: Final = "XDG_STATE_HOME"  # moves every sandbox elsewhere
_PORT_GRACE: Final = 5.0
_APART: Final = (keycloak.NAME, monitoring.NAME)  # beside the clusters, and no services


@dataclass(frozen=True, slots=True)
class Plan:
    """What `up` is asked for. `wanted` None keeps the clusters that are there.

    New ports are of `ports`, None: of the usual ones.
    `kit` makes ready for its services, which `services.up` starts; without one, those that run are
    left alone, or stopped and forgotten with `without_services`. So it is with `keycloak` and
    `monitoring`. `agents` says whether programs of ours run, which `agents.starting.up` starts;
    None: as it is.
    """

    programs: Mapping[Program, Path]
    wanted: Sequence[Wanted] | None = None
    reassign_ports: bool = False
    tuning: Tuning = NORMAL
    kit: Kit | None = None
    without_services: bool = False
    ports: range | None = None
    keycloak: KeycloakKit | None = None
    without_keycloak: bool = False
    monitoring: MonitoringKit | None = None
    without_monitoring: bool = False
    agents: bool | None = None
    nodes: NodesKit | None = None


def check(
    layout: Layout, wanted: Sequence[Wanted] | None, *, nodes: bool = False, agents: bool = False
) -> None:
    """Raise the ConfigError of `up` early, before anything that takes long."""
    known = load(layout)
    if wanted is not None:
        _refuse_to_lose(layout, known, wanted)
    if nodes or (known is not None and known.nodes is not None):
        machine.check_plan(layout, known, len(wanted or ()), agents=agents)


def up(layout: Layout, plan: Plan, *, progress: Progress) -> State:
    """Start what is missing, restart what is ill, and return when all servers are ready.

    Raises ConfigError if `plan` lacks a cluster that is there, HostError for a taken port and
    for a server that does not start.
    """
    with (
        files.full_disk_explained(layout.root, variable=_VARIABLE),
        locked(layout, progress),
    ):
        known = load(layout)
        wanted = plan.wanted
        if wanted is None:
            wanted = state.app_clusters(2) if known is None else ()
        else:
            _refuse_to_lose(layout, known, wanted)
        new_ports = _port_source(layout, plan.ports)
        target = _with_clusters(layout, known, wanted, plan, new_ports)
        target = _with_services(target, plan, new_ports)
        target = _with_keycloak(target, plan, new_ports)
        target = _with_monitoring(target, plan, new_ports)
        target = _with_agents(target, plan, new_ports)
        target = _settle(layout, target, plan, new_ports)
        executables = {str(program): path for program, path in plan.programs.items()}
        for stage in _stages(servers.of_clusters(layout, target, plan.tuning)):
            startup.ensure_running(layout, stage, executables, progress=progress)
        return target


def down(layout: Layout, *, delete: bool, progress: Progress) -> int:
    """Stop every process of the sandbox and return how many there were.

    With `delete`, the folder goes too, with all data.
    """
    if not layout.root.parent.is_dir():
        return 0
    with locked(layout, progress):
        stopped = 0
        while observed := processes.observe(layout):  # also what a killed program has left
            with progress.step(f"stopping {len(observed)} processes"):
                _stop_all(layout, observed)
            stopped += len(observed)
        cgroups.remove(nodes.cgroup(layout))
        network.remove(layout)
        if delete:
            postgresql.remove(layout)
            with progress.step("removing the data"):  # nodes have a gigabyte each
                files.remove_folder(layout.root)
        return stopped


def stop_services(layout: Layout, known: State) -> None:
    """Stop what runs beside the clusters, but our own programs and what reads nothing of theirs."""
    apart = {processes.identity(layout, name) for name in _APART}
    others = {"", *apart, *agents.identities(layout, known.members)}
    observed = processes.observe(layout)
    _stop_all(layout, [one for one in observed if one.identity not in others])


def _stop_all(layout: Layout, observed: Sequence[Observed]) -> None:
    """Stop the processes, each after those that need it."""
    processes.resume(observed)
    identities = [one.identity for one in observed if one.identity]
    for identity in components.stopping_order(identities, layout):
        marked = [one for one in observed if one.identity == identity]
        farewell = components.goodbye(identity, layout)
        processes.stop(marked, grace=STOP_GRACE, goodbye=farewell)
    # API servers write their goodbye to etcd, so it goes last.
    etcd = f"--data-dir={layout.etcd_data}"
    clusters = [one for one in observed if not one.identity]
    processes.stop([p for p in clusters if etcd not in p.arguments], grace=STOP_GRACE)
    processes.stop([p for p in clusters if etcd in p.arguments], grace=STOP_GRACE)


def status(layout: Layout, *, tuning: Tuning = NORMAL) -> Status | None:
    """Return how the servers are, or None where there is no such sandbox."""
    known = load(layout)
    if known is None:
        return None
    outlines = components.outlines(layout, known.services) if known.services else ()
    if known.keycloak:
        outlines = (*outlines, keycloak.outline(layout, known.keycloak))
    if known.monitoring:
        outlines = (*outlines, monitoring.outline(layout, known.monitoring))
    beside = (*outlines, *agents.servers(layout, known), *nodes.outlines(layout, known))
    expected = (*servers.of_clusters(layout, known, tuning), *beside)
    observed = processes.observe(layout)
    with ThreadPoolExecutor(max_workers=16) as pool:
        return Status(known, tuple(pool.map(lambda server: _health(server, observed), expected)))


def load(layout: Layout) -> State | None:
    """Return what the state file says, None where there is none."""
    with files.refusals_explained(layout.root.parent, variable=_VARIABLE):
        try:
            content = layout.state_file.read_bytes()
        except FileNotFoundError:
            return None
    return state_file.parse(content, source=str(layout.state_file), removal=layout.removal)


def connection(layout: Layout, member: Member) -> Connection:
    """Return how an administrator reaches the API server of `member`."""
    folder = layout.pki(member.id)
    return Connection(
        name=member.context,
        server=member.server,
        credential=ClientCertificate(
            certificate=(folder / "admin.crt").read_text(),
            key=Secret((folder / "admin.key").read_text()),
        ),
        ca=(folder / "ca.crt").read_text(),
    )


@contextmanager
def locked(layout: Layout, progress: Progress) -> Iterator[None]:
    """Hold off other runs that work on this sandbox."""
    with ExitStack() as held:
        with files.refusals_explained(layout.root.parent, variable=_VARIABLE):
            files.private_folder(layout.root.parent)
            held.enter_context(files.exclusive(layout.lock_file, "this sandbox", progress))
        yield


def _refuse_to_lose(layout: Layout, known: State | None, wanted: Sequence[Wanted]) -> None:
    lost = state.lacking(known, wanted) if known else ()
    if lost:
        names = ", ".join(member.context for member in lost)
        raise ConfigError(
            f"the sandbox has clusters that would be left out: {names}",
            hint="Leave the option out to keep them, use another --name, or remove the sandbox"
            f" and its data with {layout.command('down --delete')}",
        )


def _all_known(layout: Layout) -> Iterator[State]:
    """Yield what all sandboxes have, also those that sleep."""
    for file in layout.root.parent.glob("*/state.json"):
        try:
            yield state_file.parse(file.read_bytes(), source=str(file), removal="")
        except (OSError, HostError):
            continue  # another sandbox's trouble


def _port_source(layout: Layout, within: range | None = None) -> Callable[[int], Sequence[int]]:
    """Return a source of free ports, each once, that leaves those of sleeping sandboxes alone."""
    given: set[int] = set()

    def new_ports(count: int) -> Sequence[int]:
        remembered = given.union(*(one.ports for one in _all_known(layout)))
        found = processes.free_ports(count, avoid=remembered, within=within)
        given.update(found)
        return found

    return new_ports


def _settle(
    layout: Layout, target: State, plan: Plan, new_ports: Callable[[int], Sequence[int]]
) -> State:
    """Stop what should not run, make sure of the ports, and write every file."""
    while True:
        decision = processes.decide(_expected(layout, target, plan), _ours(layout, target, plan))
        _stop_all(layout, decision.stop)
        ports = [port for server in decision.start for port in server.ports]
        taken = processes.taken_ports(ports, grace=_PORT_GRACE)
        if not taken:
            _write_files(layout, target, plan.tuning)
            return target
        if not plan.reassign_ports:
            port, holder = next(iter(taken.items()))
            raise HostError(
                f"port {port} of this sandbox is held by {holder}",
                hint="Stop that program, or let the sandbox take other ports with"
                " --reassign-ports (its kubeconfig changes)",
            )
        target = state.with_new_ports(target, taken, new_ports=new_ports)


def _expected(layout: Layout, target: State, plan: Plan) -> Sequence[Server]:
    expected = servers.of_clusters(layout, target, plan.tuning)
    if plan.kit and target.services:
        expected = (*expected, *components.servers(layout, target.services, plan.kit))
    if plan.keycloak and target.keycloak:
        expected = (*expected, keycloak.server(layout, target.keycloak, plan.keycloak))
    if plan.monitoring and target.monitoring:
        expected = (*expected, monitoring.server(layout, target.monitoring, plan.monitoring))
    if plan.nodes:
        expected = (*expected, *nodes.whole(layout, target, plan.nodes))
    # One that runs by another command is left to the start of the new one, which comes late.
    observed = processes.observe(layout)
    starting = [
        one for one in agents.servers(layout, target) if not processes.running(one, observed)
    ]
    return (*expected, *starting)


def _ours(layout: Layout, target: State, plan: Plan) -> Sequence[Observed]:
    """Return the processes to decide on: not those that are remembered and not planned for."""
    left = {
        keycloak.NAME: target.keycloak is not None and plan.keycloak is None,
        monitoring.NAME: target.monitoring is not None and plan.monitoring is None,
    }
    leaves = {processes.identity(layout, name): is_left for name, is_left in left.items()}
    leaves |= dict.fromkeys(agents.identities(layout, target.members), target.agents is not None)
    if plan.nodes is None:
        leaves |= {one.identity: True for one in nodes.outlines(layout, target)}
    leaves_services = target.services is not None and plan.kit is None
    return [
        one
        for one in processes.observe(layout)
        if not leaves.get(one.identity, leaves_services and one.identity)
    ]


def _write_files(layout: Layout, target: State, tuning: Tuning) -> None:
    files.private_folder(layout.logs)
    # First, so that a run that is killed later leaves ports that the next one uses again.
    files.write(layout.state_file, state_file.dump(target))
    credentials.ensure_etcd(layout.etcd_pki, removal=layout.removal)
    layout.etcd_data.mkdir(mode=0o700, exist_ok=True)
    for member in target.members:
        credentials.ensure_cluster(
            layout.pki(member.id),
            context=member.context,
            address=member.address,
            removal=layout.removal,
        )
        own = credentials.kubeconfig([entry(layout, member, user="controller-manager")])
        files.write(servers.controller_manager_kubeconfig(layout, member.id), own)
        if tuning.audit:
            policy = servers.AUDIT_POLICY.encode()
            files.write(servers.audit_policy_file(layout, member.id), policy)
    entries = [entry(layout, member, user="admin") for member in target.members]
    files.write(layout.kubeconfig, credentials.kubeconfig(entries))


def entry(layout: Layout, member: Member, *, user: str) -> credentials.Entry:
    """Return the context of a cluster for one of its users: admin, controller-manager."""
    folder = layout.pki(member.id)
    return credentials.Entry(
        context=member.context,
        server=member.server,
        authority=(folder / "ca.crt").read_bytes(),
        certificate=(folder / f"{user}.crt").read_bytes(),
        key=(folder / f"{user}.key").read_bytes(),
    )


def _with_clusters(
    layout: Layout,
    known: State | None,
    wanted: Sequence[Wanted],
    plan: Plan,
    new_ports: Callable[[int], Sequence[int]],
) -> State:
    """Return the state with all clusters; the network of their nodes is there then."""
    if (known.nodes if known else plan.nodes) is None:
        return state.extend(known, wanted, new_ports=new_ports)
    with network.alone():
        own = None
        if known is None:
            own = network.choose(layout, (one.nodes for one in _all_known(layout) if one.nodes))
        target = state.extend(known, wanted, new_ports=new_ports, nodes=own)
        network.ensure(layout, target)
        return target


def _with_services(target: State, plan: Plan, new_ports: Callable[[int], Sequence[int]]) -> State:
    if plan.without_services:
        return replace(target, services=None)
    if plan.kit is None:
        return target
    suite = plan.kit.suite
    wanted = Services(
        folder=str(suite.folder),
        components=suite.components,
        programs=tuple(program.name for program in suite.programs),
        ports={},
    )
    purposes = components.purposes(suite.components)
    return state.with_services(target, wanted, purposes, new_ports=new_ports)


def _with_keycloak(target: State, plan: Plan, new_ports: Callable[[int], Sequence[int]]) -> State:
    if plan.without_keycloak:
        return replace(target, keycloak=None)
    return state.with_keycloak(target, new_ports=new_ports) if plan.keycloak else target


def _with_monitoring(target: State, plan: Plan, new_ports: Callable[[int], Sequence[int]]) -> State:
    if plan.without_monitoring:
        return replace(target, monitoring=None)
    if plan.monitoring is None:
        return target
    programs = monitoring.programs(target.members)
    return state.with_monitoring(target, programs, new_ports=new_ports)


def _with_agents(target: State, plan: Plan, new_ports: Callable[[int], Sequence[int]]) -> State:
    wanted = target.agents is not None if plan.agents is None else plan.agents
    if not wanted:
        return replace(target, agents=None)
    return state.with_agents(target, new_ports=new_ports)


def _stages(expected: Sequence[Server]) -> Iterator[Sequence[Server]]:
    """Each program needs the one before it to be ready."""
    for program in (Program.ETCD, Program.API_SERVER, Program.CONTROLLER_MANAGER):
        yield [server for server in expected if server.program is program]


def _health(server: Server, observed: Sequence[Observed]) -> Health:
    process = processes.running(server, observed)
    if process is None:
        return Health(server, None, None, ready=False)
    ready = startup.is_ready(server, process)
    return Health(server, process.pid, process.started, ready)
