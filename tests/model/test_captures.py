"""What our backend and konnectors make of installations of the original, as captures have them.

All that they write is in `expected`, object by object: what ours adds, protects or says otherwise.
Unit tests compare what ours makes anew with what the original made, object by object, and show that
nothing else is written: `test_captures` of bind, `test_binding_captures` of the konnector.
"""

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import pytest
import yaml

from klutchctl.render import plan_formats
from reconciler import api
from reconciler.core import keys, manifest, names
from reconciler.core.decision import merge_diff
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import CLUSTER_ROLE, NAMESPACE, SECRET, Kind, Ref
from tests.support import captures, removal
from tests.support.apply_runs import Runs
from tests.support.applying import TIME, UID
from tests.support.backend import USUAL, backend
from tests.support.capture_files import REGION
from tests.support.captures import APP_CLUSTER, CONTROL_PLANE, SECOND_APP_CLUSTER, Installation
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.konnector import beside_control_plane, konnector
from tests.support.konnector_scenes import CLUSTER_WIDE
from tests.support.settled import Program, settled

CAPTURES: Final = (
    "default-mode",
    "control-plane-mode",
    "cluster-scoped",
    "two-app-clusters",
    "broken-kubeconfig",
)
_REPORTED: Final = ("status", "severity", "reason", "message")
_MASKED: Final = {
    UID: "<uid>",
    TIME: "<time>",
    re.compile(r"(?<=an invalid kubeconfig: )[^'\n]*"): "<why>",  # it is made up anew
    re.compile(r"(?<= plan )[0-9a-f]{7}$", re.MULTILINE): "<id>",
    re.compile(r"(?<=konnectorVersion: )\S+"): "<version>",
    re.compile(r"(?<=KonnectorActive: True test )\S+"): "<process>",
}
_NOT_SHOWN: Final = ("resourceVersion", "managedFields", "uid", "creationTimestamp")


@pytest.fixture
async def installation(
    request: pytest.FixtureRequest,
    control_plane: LiveCluster,
    app_cluster: LiveCluster,
    second_app_cluster: LiveCluster,
) -> AsyncIterator[Installation]:
    places = {
        CONTROL_PLANE: control_plane,
        APP_CLUSTER: app_cluster,
        SECOND_APP_CLUSTER: second_app_cluster,
    }
    async with captures.provided(control_plane), captures.installed(places, request.param) as made:
        yield made


class Account:
    """What has changed in an installation since `begin`, and what has come beside it."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation

    async def begin(self) -> None:
        places = self._installation.places.values()
        self._marks = {live.name: live.audit.mark() for live in places}
        self._before = await self._objects()

    async def text(self) -> str:
        after = await self._objects()
        changes = {
            ref.object if ref.cluster == "control-plane" else f"{ref.cluster} {ref.object}": (
                merge_diff(before, after[ref]) if ref in after else "gone"
            )
            for ref, before in self._before.items()
        }
        reported = {
            "made": sorted(self._made()),
            "changed": {str(name): change for name, change in changes.items() if change},
        }
        return masked(yaml.safe_dump(reported, width=10_000, allow_unicode=True))

    def _made(self) -> list[str]:
        return [
            f"{event['userAgent']} in {live.name}: {about['resource']} "
            f"{about['namespace']}/{about['name']}"
            for live in self._installation.places.values()
            for event in live.audit.answers_since(self._marks[live.name])
            for about in [event["objectRef"]]
            if event["verb"] == "create" and about["resource"] != "events"
        ]

    async def _objects(self) -> dict[Ref, Any]:
        found = {}
        of_all = Ref(self._installation.places[CONTROL_PLANE].name, CLUSTER_ROLE, "", names.BINDER)
        for ref in (of_all, *self._installation.refs):
            live = await self._installation.live(ref).cluster.get(ref)
            if live is not None:
                found[ref] = _plain(ref, live)
        return found


def masked(text: str) -> str:
    for pattern, stands_for in _MASKED.items():
        text = pattern.sub(stands_for, text)
    return text


def _plain(ref: Ref, live: Any) -> Any:
    """Return an object with its conditions by type, and of a Secret its keys alone."""
    metadata = {key: value for key, value in live["metadata"].items() if key not in _NOT_SHOWN}
    made = {**live, "metadata": metadata}
    if ref.kind == api.CLUSTER_BINDING:
        made = manifest.drop(made, "status", "lastHeartbeatTime")  # of the same second, or not
    if ref.kind == SECRET:
        made = {**made, "data": sorted(live.get("data", {}))}
    if manifest.get_maps(live, "status", "conditions"):
        conditions: dict[str, JSON] = {
            manifest.get_text(one, "type"): " ".join(
                manifest.get_text(one, key) for key in _REPORTED if key in one
            )
            for one in manifest.get_maps(live, "status", "conditions")
        }
        made = manifest.put(made, conditions, "status", "conditions")
    return made


@contextlib.asynccontextmanager
async def working(installation: Installation) -> AsyncIterator[list[Program]]:
    """Let a backend work, and a konnector for each app cluster, wherever it runs."""
    plane, app = installation.places[CONTROL_PLANE], installation.places[APP_CLUSTER]
    recorded = installation.recorded.items()
    whole = [one for ref, one in recorded if ref.kind == api.APP_CLUSTER_BINDING]
    is_wide = any(ref.kind == REGION for ref, _ in recorded)
    serving = backend(plane.connection, CLUSTER_WIDE if is_wide else USUAL)
    async with contextlib.AsyncExitStack() as stack:
        running: list[Program] = [await stack.enter_async_context(serving)]
        for one in whole:
            space = names.app_cluster_binding_space(
                manifest.namespace_of(one), manifest.name_of(one)
            )
            secret = manifest.get_text(one, "spec", "kubeconfigSecretRef", "name")
            beside = beside_control_plane(plane.connection, space, secret)
            made = await stack.enter_async_context(beside)
            await eventually(lambda made=made: made)  # type: ignore[misc]
            running += made
        if not whole:
            running.append(await stack.enter_async_context(konnector(app.connection)))
        await settled(*running)
        yield running


@pytest.mark.parametrize("installation", CAPTURES, indirect=True)
async def test_all_that_ours_write(
    request: pytest.FixtureRequest, installation: Installation, golden: Any
) -> None:
    account = Account(installation)
    await account.begin()
    async with working(installation):
        golden(await account.text(), f"{request.node.callspec.params['installation']}.yaml")


@pytest.mark.parametrize("installation", ["default-mode"], indirect=True)
async def test_what_is_unbound_and_bound_again(installation: Installation, golden: Any) -> None:
    """Steps 03/80 and 03/81: the CRD stays, exports say so as the original did; then it is ours."""
    binding = installation.ref(
        APP_CLUSTER, api.API_SERVICE_BINDING, "klutch-bind/databases.shop.example"
    )
    app, account = installation.live(binding).cluster, Account(installation)
    async with working(installation) as running:
        before = await app.get(binding)
        assert before is not None
        await account.begin()
        await removal.remove(app, binding)
        await settled(*running)
        golden(await account.text(), "default-mode.unbound.yaml")
        again = {**before, "metadata": {"name": binding.name, "namespace": binding.namespace}}
        await app.create(again, api.API_SERVICE_BINDING, manager="kubectl-bind")
        await settled(*running)
        golden(await account.text(), "default-mode.again.yaml")


# What a plan says of them


DATABASES, QUEUES = "databases.shop.example", "queues.shop.example"
BOUND: Final = ("app-cluster", api.API_SERVICE_BINDING, f"klutch-bind/{DATABASES}")
REQUEST: Final = ("control-plane", api.API_SERVICE_EXPORT_REQUEST, f"cluster-q7x2d/{QUEUES}")
EXPORT: Final = ("control-plane", api.API_SERVICE_EXPORT, f"cluster-q7x2d/{QUEUES}")
IN_USE: Final = tuple(
    (place, kind, path.replace(QUEUES, DATABASES)) for place, kind, path in (REQUEST, EXPORT)
)
BROKEN: Final = ("app-cluster", SECRET, "klutch-bind/kubeconfig-a")
NARROW: Final[JSON] = [{"group": "", "resource": "secrets", "version": "v1", "state": "Accepted",
                  "selector": {"owner": "Provider", "names": ["a"]}}]  # fmt: skip


class Changed(NamedTuple):
    """What somebody does to an object; without `patch` it is deleted."""

    where: tuple[str, Kind, str]
    patch: Manifest | None = None
    subresource: str = ""


class Case(NamedTuple):
    """A plan of a capture: with its fleet or a text made of that, and after changes by hand."""

    capture: str = "default-mode"
    taken_over: bool = True
    text: Callable[[str], str] = str
    changes: tuple[Changed, ...] = ()
    elsewhere: int = 0  # how many of the last documents stand in another file


def without_jobs(text: str) -> str:
    documents = text.split("---\n")
    return "---\n".join(one for one in documents if "metadata: {name: jobs}" not in one)


def renamed(text: str) -> str:
    return text.replace("metadata: {name: shop}", "metadata: {name: store}").replace(
        "names: [shop]", "names: [store]"
    )


def ended(phase: str) -> Changed:
    return Changed(REQUEST, {"status": {"phase": phase, "terminalMessage": "no luck"}}, "status")


CASES: Final[Mapping[str, Case]] = {
    "what the files do not name": Case(taken_over=False, text=without_jobs),
    "a drift from before": Case(
        taken_over=False, changes=(Changed(BOUND, {"spec": {"permissionClaims": None}}),)
    ),
    "a unit that is not listed": Case(
        "control-plane-mode",
        taken_over=False,
        text=lambda text: (
            text.replace("resource: databases", "resource: queues").partition("  claims:")[0]
            + "  claims: []\n"
        ),
    ),
    "a binding that leads nobody knows where": Case("broken-kubeconfig", taken_over=False),
    "a binding without its Secret": Case(
        "broken-kubeconfig", taken_over=False, changes=(Changed(BROKEN),)
    ),
    "nothing": Case(),
    "a moved file": Case(elsewhere=2),
    "a renamed binding": Case(text=lambda text: text.replace("name: jobs", "name: tasks")),
    "a renamed cluster": Case(text=renamed),
    "a removed binding": Case(text=without_jobs),
    "a drift by hand": Case(changes=(Changed(BOUND, {"spec": {"permissionClaims": NARROW}}),)),
    "a claim narrowed in the files": Case(
        text=lambda text: text.replace('names: ["*"]', "names: [orders-creds]")
    ),
    "a claim wider than offered": Case(
        text=lambda text: text.replace("names: [backup-settings]", 'names: ["*"]')
    ),
    "a request that was pruned away": Case(changes=(Changed(REQUEST),)),
    "a request and an export that are away": Case(changes=(Changed(REQUEST), Changed(EXPORT))),
    "a failed request with its export": Case(changes=(ended("Failed"),)),
    **{
        f"a request that is {phase} without an export": Case(
            changes=(ended(phase), Changed(EXPORT))
        )
        for phase in ("Failed", "Succeeded", "Pending")
    },
    "a request of what is in use": Case(
        changes=(Changed(IN_USE[0], {"status": {"phase": "Failed"}}, "status"), Changed(IN_USE[1]))
    ),
    "a space of another app cluster": Case(
        changes=(
            Changed(
                ("control-plane", NAMESPACE, "cluster-q7x2d"),
                {"metadata": {"annotations": {keys.APP_CLUSTER_UID: "another"}}},
            ),
        )
    ),
}


@dataclass
class Files:
    """The files of a fleet, in place of those that a scene writes."""

    folder: Path
    text: str
    elsewhere: int = 0

    def write(self) -> None:
        documents, here = self.text.split("---\n"), None
        if self.elsewhere:
            here = -self.elsewhere
            head = documents[0].replace("spec: {}", "spec: {include: [elsewhere.yaml]}")
            documents = [head, *documents[1:]]
            (self.folder / "elsewhere.yaml").write_text("---\n".join(documents[here:]))
        (self.folder / "fleet.yaml").write_text("---\n".join(documents[:here]))


@pytest.mark.parametrize(
    ("installation", "case"),
    [(case.capture, case) for case in CASES.values()],
    ids=CASES.keys(),
    indirect=["installation"],
)
async def test_what_a_plan_says(
    request: pytest.FixtureRequest,
    installation: Installation,
    case: Case,
    golden: Any,
    tmp_path: Path,
) -> None:
    text = captures.fleet(case.capture, installation.places)
    files = Files(tmp_path, text)
    kubeconfig = installation.places[CONTROL_PLANE].kubeconfig
    scene: Any = SimpleNamespace(fleet=files, kubeconfig=kubeconfig)
    runs = Runs(scene)
    if case.taken_over:
        report = await runs.run()
        assert {one.status.value for one in report.outcomes} == {"done"}
    files.text, files.elsewhere = case.text(text), case.elsewhere
    for where, patch, subresource in case.changes:
        ref = installation.ref(*where)
        cluster = installation.live(ref).cluster
        if patch is None:
            await removal.remove(cluster, ref)
        else:
            await cluster.merge_patch(ref, patch, manager="operator", subresource=subresource)
    reported = masked(plan_formats.text(await runs.plan(), steps=True))
    golden(reported, f"take-over/{request.node.callspec.id}.txt")
