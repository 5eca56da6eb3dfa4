"""Start klutch-bind and konnectors beside the clusters of a sandbox, each with its own account."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import yaml

from klutchctl import files
from klutchctl.sandbox import credentials, lifecycle, manifests, processes, startup
from klutchctl.sandbox.agents import server
from klutchctl.sandbox.agents.server import Offered, Right
from klutchctl.sandbox.report import Progress
from klutchctl.sandbox.state import Layout, Member, Role, State
from klutchctl.sandbox.suite import Written
from reconciler import api
from reconciler.core import names, refs
from reconciler.core.errors import HostError, Origin
from reconciler.core.manifest import Manifest, get_maps, get_text
from reconciler.core.refs import Kind
from reconciler.core.secret import Secret
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import ClientCertificate, Connection

_MANAGER: Final = "klutchctl-sandbox"
_REVIEW: Final = Kind(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectRulesReview",
    "selfsubjectrulesreviews",
    namespaced=False,
)
_POLL: Final = 0.1
_DEADLINE: Final = 60.0  # an API server hears of new rights within moments


def up(layout: Layout, *, progress: Progress) -> None:
    """Start what is missing, and anew what has another command; return when all are ready.

    The clusters run, and `lifecycle.up` was asked for agents. What is offered by now is what they
    get rights on. Raises HostError for one that does not start.
    """
    with lifecycle.locked(layout, progress):
        state = lifecycle.load(layout)
        if state is None or state.agents is None:
            raise HostError(
                "the sandbox was changed meanwhile", hint="Run the command again for its programs"
            )
        moved = {one.id for one in state.members if _write_files(layout, one)}
        with progress.step("giving klutch-bind and konnectors their rights"):
            asyncio.run(_give_rights(layout, state))
        wanted = server.servers(layout, state)
        marks = {one.identity: one.cluster_id for one in wanted}
        running = [one for one in processes.observe(layout) if one.identity in marks]
        ended = set(processes.decide(wanted, running).stop)
        ended |= {one for one in running if marks[one.identity] in moved}
        processes.stop(ended, grace=startup.STOP_GRACE)
        startup.ensure_running(layout, wanted, {}, progress=progress)


def _write_files(layout: Layout, member: Member) -> bool:
    """Return whether the kubeconfig of a cluster's program was another one before."""
    folder = _client(layout, member)
    user = server.of(member).user
    credentials.ensure_client(folder, layout.pki(member.id), user=user, removal=layout.removal)
    entry = replace(
        lifecycle.entry(layout, member, user="admin"),
        certificate=(folder / "client.crt").read_bytes(),
        key=(folder / "client.key").read_bytes(),
    )
    return files.replaced(server.kubeconfig(layout, member), credentials.kubeconfig([entry]))


def _client(layout: Layout, member: Member) -> Path:
    return layout.cluster(member.id) / server.of(member).name


async def _give_rights(layout: Layout, state: State) -> None:
    """Give each program the rights that are shipped for it, and wait until they hold."""
    planes = [one for one in state.members if one.role is Role.CONTROL_PLANE]
    templates = [one for plane in planes for one in await _templates(layout, plane)]
    offers = server.offered(templates)
    async with asyncio.TaskGroup() as group:
        for member in state.members:
            group.create_task(_give(layout, member, offers))


async def _templates(layout: Layout, plane: Member) -> Sequence[Manifest]:
    async with KubeCluster(lifecycle.connection(layout, plane)) as cluster:
        return (await cluster.list(api.API_SERVICE_EXPORT_TEMPLATE)).items


async def _give(layout: Layout, member: Member, offers: Offered) -> None:
    made = list(server.rights(server.of(member), _shipped(member), offers))
    async with KubeCluster(lifecycle.connection(layout, member)) as cluster:
        written = [Written(one, Origin("klutchctl")) for one in made]
        await manifests.apply(cluster, written, manager=_MANAGER)
    roles = (refs.ROLE.kind, refs.CLUSTER_ROLE.kind)
    rules = [
        rule for one in made if get_text(one, "kind") in roles for rule in get_maps(one, "rules")
    ]
    await _held(_connection(layout, member), server.granted(rules))


def _shipped(member: Member) -> Iterator[Manifest]:
    for path in server.of(member).manifests():
        yield from yaml.load_all(path.read_bytes(), yaml.CSafeLoader)


def _connection(layout: Layout, member: Member) -> Connection:
    """Return how the program of a cluster reaches it."""
    folder = _client(layout, member)
    return replace(
        lifecycle.connection(layout, member),
        credential=ClientCertificate(
            certificate=(folder / "client.crt").read_text(),
            key=Secret((folder / "client.key").read_text()),
        ),
    )


async def _held(way: Connection, wanted: frozenset[Right]) -> None:
    """Wait until an account has these rights: a program ends that starts without."""
    review: Manifest = {
        "apiVersion": _REVIEW.api_version,
        "kind": _REVIEW.kind,
        "spec": {"namespace": names.KLUTCH_NAMESPACE},
    }
    deadline = time.monotonic() + _DEADLINE
    async with KubeCluster(way) as cluster:
        while time.monotonic() < deadline:
            answer = await cluster.create(review, _REVIEW, manager=_MANAGER)
            if wanted <= server.granted(get_maps(answer, "status", "resourceRules")):
                return
            await asyncio.sleep(_POLL)
    raise HostError(
        f"the program of {way.name} has not got its rights after {_DEADLINE:.0f} s",
        hint="Run the command again; the log of its kube-apiserver may tell more",
    )
