"""Starts, stops and examines a sandbox, in the right order."""

import asyncio
import itertools
import json
import operator
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from klutchctl import files
from klutchctl.sandbox import addons, credentials, manifests, processes, servers, startup, state
from klutchctl.sandbox.addons import postgresql
from klutchctl.sandbox.addons.addon import Addon, Kit, Run
from klutchctl.sandbox.report import Health, Progress, Status
from klutchctl.sandbox.servers import NORMAL, Program, Server, Tuning
from klutchctl.sandbox.state import Component, Layout, NewPorts, State, Wanted
from reconciler.core.errors import ConfigError, HostError

# With what runs beside the clusters it is another one: a klutchctl that does not know that would
# leave it running.
_VERSION: Final = 1
_VERSION_WITH: Final = {"services": 2, "keycloak": 3, "monitoring": 4, "agents": 5}
_NEWEST: Final = max(_VERSION_WITH.values())


@dataclass(frozen=True, slots=True)
class _Head:
    version: int


_HEAD: Final = TypeAdapter(_Head)
_STATE: Final = TypeAdapter(State)


def dump(state: State) -> bytes:
    """Return the bytes of the state file."""
    content = asdict(state)
    version = _VERSION
    for name, needed in _VERSION_WITH.items():
        if content[name] is None:
            del content[name]
        else:
            version = needed
    return json.dumps({"version": version, **content}, indent=2).encode() + b"\n"


def parse(content: bytes, *, source: str, removal: str) -> State:
    """Return the state in `content`.

    Raises HostError for anything else, naming `source` and telling of its `removal`.
    """
    try:
        version = _HEAD.validate_json(content).version
        if _VERSION <= version <= _NEWEST:
            return _STATE.validate_json(content, strict=True)  # JSON's true is no port
    except ValidationError as error:
        raise HostError(f"{source} is not a sandbox's state", hint=removal) from error
    raise HostError(
        f"{source} has the format {version!r}, this klutchctl knows {_VERSION} to {_NEWEST}",
        hint="Use the klutchctl that made it, or another --name",
    )


_VARIABLE: Final = "XDG_STATE_HOME"  # moves every sandbox elsewhere
_PORT_GRACE: Final = 5.0
_WAY: Final = operator.itemgetter(0)


@dataclass(frozen=True, slots=True)
class Plan:
    """The request to `up`. `wanted` None keeps the clusters that are there.

    New ports are of `ports`, None: of the usual ones. `addons` has kits by names of add-ons: those
    without a kit end and are forgotten, and those that it does not name are left as they are.
    `crds`: clusters get the CRDs of their roles.
    """

    programs: Mapping[Program, Path]
    wanted: Sequence[Wanted] | None = None
    reassign_ports: bool = False
    tuning: Tuning = NORMAL
    ports: range | None = None
    addons: Mapping[str, Kit | None] = field(default_factory=dict)
    crds: bool = False

    @property
    def running(self) -> Iterator[tuple[Addon, Kit]]:
        """The add-ons to run, with their kits."""
        for addon in addons.ADDONS:
            if (kit := self.addons.get(addon.name)) is not None:
                yield addon, kit


def check(layout: Layout, wanted: Sequence[Wanted] | None) -> None:
    """Raise the ConfigError of `up` early, before anything that takes long."""
    _refuse_to_lose(layout, load(layout), wanted)


def up(layout: Layout, plan: Plan, *, progress: Progress) -> State:
    """Start missing servers, restart ill ones, and return when all are ready.

    Raises ConfigError if `plan` lacks a cluster that is there, HostError for a taken port and
    for a server that does not start.
    """
    with (
        files.full_disk_explained(layout.root, variable=_VARIABLE),
        locked(layout, progress),
    ):
        known = load(layout)
        _refuse_to_lose(layout, known, plan.wanted)
        new_ports = _port_source(layout, plan.ports)
        wanted = plan.wanted
        if wanted is None:
            wanted = state.app_clusters(2) if known is None else ()
        target = state.extend(known, wanted, new_ports=new_ports)
        gone: dict[str, Any] = {name: None for name, kit in plan.addons.items() if kit is None}
        target = replace(target, **gone)
        for addon, kit in plan.running:
            target = addon.extend(target, kit, new_ports)
        target = _settle(layout, target, plan, new_ports)
        executables = {str(program): path for program, path in plan.programs.items()}
        expected = servers.of_clusters(layout, target, plan.tuning)
        # Each program needs the one before it to be ready.
        for program in (Program.ETCD, Program.API_SERVER, Program.CONTROLLER_MANAGER):
            stage = [server for server in expected if server.program is program]
            startup.ensure_running(layout, stage, executables, progress=progress)
        if plan.crds:
            ways = [(credentials.connection(layout, one), one.role) for one in target.members]
            with progress.step("installing the CRDs"):
                asyncio.run(manifests.install_everywhere(ways))
        start_addons(plan, Run(layout, target, progress))
        return target


def start_addons(plan: Plan, run: Run) -> None:
    """Start all add-ons, in order. Raises an ExceptionGroup of the HostErrors.

    What runs by another command ends at its turn: a klutch-bind, once Keycloak answers.
    """
    failed: list[HostError] = []
    for addon, kit in plan.running:
        try:
            wanted = {one.identity: one for one in addon.servers(run.layout, run.state, kit)}
            found = [one for one in processes.observe(run.layout) if one.identity in wanted]
            _stop_all(run.layout, processes.decide([*wanted.values()], found).stop)
            addon.start(run, kit)
        except HostError as error:
            failed.append(error)
    if failed:
        raise ExceptionGroup("add-ons did not start", failed)


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
        if delete:
            postgresql.remove(layout)
            files.remove_folder(layout.root)
        return stopped


def farewell(layout: Layout, process: processes.Observed) -> tuple[int, signal.Signals]:
    """Return when a process is asked to end, lower numbers first, and by which signal."""
    if process.identity == processes.identity(layout, Component.POSTGRESQL):
        return 2, signal.SIGINT  # SIGTERM waits until every client has gone
    if process.identity:
        return 1, signal.SIGTERM
    # API servers write their goodbye to etcd, so it goes last.
    last = f"--data-dir={layout.etcd_data}" in process.arguments
    return 4 if last else 3, signal.SIGTERM


def _stop_all(layout: Layout, observed: Sequence[processes.Observed]) -> None:
    """Stop the processes, each after those that need it."""
    ways = sorted(((farewell(layout, one), one) for one in observed), key=_WAY)
    for (_, goodbye), group in itertools.groupby(ways, key=_WAY):
        processes.stop([one for _, one in group], grace=startup.STOP_GRACE, goodbye=goodbye)


def status(layout: Layout, *, tuning: Tuning = NORMAL) -> Status | None:
    """Return how the servers are, or None where there is no such sandbox."""
    known = load(layout)
    if known is None:
        return None
    expected = (*servers.of_clusters(layout, known, tuning), *addons.servers(layout, known))
    observed = processes.observe(layout)
    with ThreadPoolExecutor(max_workers=16) as pool:
        healths = tuple(pool.map(lambda server: _health(server, observed), expected))
    own = [*addons.of(known)]
    details = [line for one in own for line in one.details(layout, known)]
    facts = {name: fact for one in own for name, fact in one.facts(layout, known).items()}
    return Status(known, healths, details, facts)


def load(layout: Layout) -> State | None:
    """Return the content of the state file, None where there is none."""
    with files.refusals_explained(layout.root.parent, variable=_VARIABLE):
        try:
            content = layout.state_file.read_bytes()
        except FileNotFoundError:
            return None
    return parse(content, source=str(layout.state_file), removal=layout.removal)


@contextmanager
def locked(layout: Layout, progress: Progress) -> Iterator[None]:
    """Hold off other runs that work on this sandbox."""
    with ExitStack() as stack:
        with files.refusals_explained(layout.root.parent, variable=_VARIABLE):
            files.private_folder(layout.root.parent)
            stack.enter_context(files.exclusive(layout.lock_file, "this sandbox", progress))
        yield


def _refuse_to_lose(layout: Layout, known: State | None, wanted: Sequence[Wanted] | None) -> None:
    lost = () if known is None or wanted is None else state.lacking(known, wanted)
    if lost:
        names = ", ".join(member.context for member in lost)
        raise ConfigError(
            f"the sandbox has clusters that would be left out: {names}",
            where=layout.root.name,
            hint="Leave the option out to keep them, use another --name, or remove the sandbox"
            f" and its data with {layout.command('down --delete')}",
        )


def _all_known(layout: Layout) -> Iterator[State]:
    """Yield the states of all sandboxes, also of sleeping ones."""
    for file in layout.root.parent.glob("*/state.json"):
        try:
            yield parse(file.read_bytes(), source=str(file), removal="")
        except (OSError, HostError):
            continue  # another sandbox's trouble


def _port_source(layout: Layout, within: range | None = None) -> NewPorts:
    """Return a source of free ports, each once, that leaves those of sleeping sandboxes alone."""
    given: set[int] = set()

    def new_ports(count: int) -> Sequence[int]:
        remembered = given.union(*(one.ports for one in _all_known(layout)))
        found = processes.free_ports(count, avoid=remembered, within=within)
        given.update(found)
        return found

    return new_ports


def _settle(layout: Layout, target: State, plan: Plan, new_ports: NewPorts) -> State:
    """Stop servers that should not run, unless replaced; check ports, write every file."""
    while True:
        decision = processes.decide(_expected(layout, target, plan), _ours(layout, target, plan))
        beside = {server.identity for server in decision.start if server.launch}
        _stop_all(layout, [one for one in decision.stop if one.identity not in beside])
        left = {one.identity for one in decision.stop} & beside
        ports = [port for one in decision.start if one.identity not in left for port in one.ports]
        taken = processes.taken_ports(ports, grace=_PORT_GRACE)
        if not taken:
            _write_files(layout, target, plan.tuning)
            return target
        if not plan.reassign_ports:
            port, holder = next(iter(taken.items()))
            raise HostError(
                f"port {port} of this sandbox is in use by {holder}",
                hint="Stop that program, or let the sandbox take other ports with"
                " --reassign-ports (its kubeconfig changes)",
            )
        target = state.with_new_ports(target, taken, new_ports=new_ports)


def _expected(layout: Layout, target: State, plan: Plan) -> Sequence[Server]:
    beside = (addon.servers(layout, target, kit) for addon, kit in plan.running)
    return (*servers.of_clusters(layout, target, plan.tuning), *itertools.chain(*beside))


def _ours(layout: Layout, target: State, plan: Plan) -> Sequence[processes.Observed]:
    """Return the processes to decide on: not those of add-ons that the plan leaves as they are."""
    left = {
        server.identity
        for addon in addons.of(target)
        if addon.name not in plan.addons
        for server in addon.servers(layout, target, None)
    }
    return [one for one in processes.observe(layout) if one.identity not in left]


def _write_files(layout: Layout, target: State, tuning: Tuning) -> None:
    files.private_folder(layout.logs)
    # First, so that a run that is killed later leaves ports that the next one uses again.
    files.write(layout.state_file, dump(target))
    credentials.ensure_etcd(layout.etcd_pki)
    layout.etcd_data.mkdir(mode=0o700, exist_ok=True)
    for member in target.members:
        credentials.ensure_cluster(layout.pki(member.id), context=member.context)
        client = layout.pki(member.id) / "controller-manager"
        own = credentials.kubeconfig(layout, [member], client)
        files.write(servers.controller_manager_kubeconfig(layout, member.id), own)
        if tuning.audit:
            files.write(servers.audit_policy_file(layout, member.id), servers.AUDIT_POLICY.encode())
    files.write(layout.kubeconfig, credentials.kubeconfig(layout, target.members))


def _health(server: Server, observed: Sequence[processes.Observed]) -> Health:
    process = processes.running(server, observed)
    if process is None:
        return Health(server, None, None, ready=False)
    ready = startup.is_ready(server, process)
    return Health(server, process.pid, process.started, ready)
