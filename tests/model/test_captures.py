"""What our backend and konnectors make of installations of the original, as captures have them.

All that they write is in `expected`, object by object: what ours adds, protects or says otherwise.
What is not there is as ours would have made it, for both mend whatever differs.
"""

import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import yaml

from reconciler import api
from reconciler.core import names
from reconciler.core.decision import merge_diff
from reconciler.core.manifest import get_maps, get_text, name_of, namespace_of
from reconciler.core.refs import CLUSTER_ROLE, SECRET, Ref
from tests.support import captures, removal
from tests.support.backend import USUAL, backend
from tests.support.capture_files import REGION
from tests.support.captures import APP_CLUSTER, CONTROL_PLANE, SECOND_APP_CLUSTER, Installation
from tests.support.clusters import LiveCluster
from tests.support.end_states import TIME, UID
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
_TOLD: Final = ("status", "severity", "reason", "message")
_MASKED: Final = {
    UID: "<uid>",
    TIME: "<time>",
    re.compile(r":1:\d+(?=: not UTF-8 text)"): "",  # in what is made up anew
    re.compile(r"(?<=konnectorVersion: )\S+"): "<version>",
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
        told = {
            "made": sorted(self._made()),
            "changed": {str(name): change for name, change in changes.items() if change},
        }
        text = yaml.safe_dump(told, width=100, allow_unicode=True)
        for pattern, stands_for in _MASKED.items():
            text = pattern.sub(stands_for, text)
        return text

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
        plane = self._installation.places[CONTROL_PLANE]
        of_all = Ref(plane.name, CLUSTER_ROLE, "", names.BINDER)
        for ref in (of_all, *self._installation.refs):
            live = await self._installation.live(ref).cluster.get(ref)
            if live is not None:
                found[ref] = _plain(ref, live)
        return found


def _plain(ref: Ref, live: Any) -> Any:
    """Return an object with its conditions by type, and of a Secret its keys alone."""
    metadata = {key: value for key, value in live["metadata"].items() if key not in _NOT_SHOWN}
    made = {**live, "metadata": metadata}
    if ref.kind == SECRET:
        made["data"] = sorted(live.get("data", {}))
    if get_maps(live, "status", "conditions"):
        conditions = {
            one["type"]: " ".join(get_text(one, key) for key in _TOLD if key in one)
            for one in get_maps(live, "status", "conditions")
        }
        made["status"] = {**live["status"], "conditions": conditions}
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
            space = names.app_cluster_binding_space(namespace_of(one), name_of(one))
            secret = get_text(one, "spec", "kubeconfigSecretRef", "name")
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
