"""Spaces of those who sign in, made by any replica of the front door, whatever disturbs it."""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import pytest

from bind.door.catalogue import Offer
from bind.door.identity import Identity, Refused
from bind.door.provisioning import Wanted
from bind.door.spaces import Spaces
from bind.door.views import Views
from bind.informers import Informers
from reconciler import api
from reconciler.blueprints import objects
from reconciler.blueprints.objects import Marks
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys, manifest, names, refs
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.requests import Preconditions, Propagation
from tests.kit.stories import DISTURBANCES, dies_after_every_write, disturbed
from tests.support.backend import backend
from tests.support.clusters import LiveCluster
from tests.support.door_spaces import ALICE, BOB, CI, COMPLETE, ISSUER, TERMS, Door, inside, replica
from tests.support.eventually import eventually
from tests.support.faults import Faults, Meanwhile, faulty, forbidden, on, survives, writes

MANAGER: Final = "tests"


@pytest.fixture
async def leader(control_plane: LiveCluster) -> AsyncIterator[None]:
    async with backend(control_plane.connection):
        yield


@pytest.fixture
async def door(control_plane: LiveCluster, service: str, leader: None) -> AsyncIterator[Door]:
    async with replica(control_plane.cluster, service) as made:
        yield made


async def spaces_of(cluster: Cluster, identity: str = "") -> list[Manifest]:
    every = (await cluster.list(refs.NAMESPACE)).items
    said = ((one, manifest.annotations_of(one).get(keys.IDENTITY, "")) for one in every)
    return [one for one, annotation in said if annotation.startswith(identity) and annotation]


async def get(cluster: Cluster, kind: Kind, namespace: str, name: str) -> Any:
    return await cluster.get(Ref(cluster.name, kind, namespace, name))


async def remove(cluster: Cluster, ref: Ref) -> None:
    live = await cluster.get(ref)
    assert live is not None
    exactly = Preconditions(manifest.uid_of(live))
    await cluster.delete(ref, preconditions=exactly, propagation=Propagation.BACKGROUND)


async def make_namespace(cluster: Cluster, name: str, **notes: str) -> None:
    made = objects.namespace(name, marks=Marks(annotations=notes))
    await cluster.create(made, refs.NAMESPACE, manager=MANAGER)


def noted(identity: str, issuer: str = "") -> dict[str, str]:
    return {keys.IDENTITY: identity} | ({keys.ISSUER: issuer} if issuer else {})


async def refused(door: Door, identity: Identity = ALICE, cid: str = "4ceiSr") -> Refused:
    with pytest.raises(Refused) as raised:
        await door.bind(identity, cid)
    return raised.value


async def test_a_bind_makes_a_space_that_is_ready(door: Door) -> None:
    space = await door.spaces.provide(ALICE, "4ceiSr", door.offer)
    assert await inside(door.plane, space.name) == COMPLETE
    stored = await get(door.plane, refs.SECRET, space.name, "kubeconfig")
    assert base64.b64decode(stored["data"]["kubeconfig"]) == space.kubeconfig
    assert list(stored["data"]) == ["kubeconfig"]
    # The backend bounds it like any space.
    made = await get(door.plane, refs.NAMESPACE, "", space.name)
    assert manifest.labels_of(made)[keys.POD_SECURITY_ENFORCE] == "restricted"
    assert "token" not in repr(space)


async def test_a_space_keeps_the_name_that_was_given_last(door: Door) -> None:
    async def called(name: str) -> str:
        space = await door.spaces.provide(ALICE, "4ceiSr", door.offer, name=name)
        made = await get(door.plane, refs.NAMESPACE, "", space.name)
        return manifest.annotations_of(made).get(keys.CLUSTER_NAME, "")

    found = [await called(name) for name in ("", "prod-eu", "", "prod-us")]
    assert found == ["", "prod-eu", "prod-eu", "prod-us"]
    await eventually(lambda: [one.name for one in door.spaces.existing(ALICE)] == ["prod-us"])


async def test_twenty_binds_of_one_identity_at_two_replicas_make_one_space(
    control_plane: LiveCluster, service: str, leader: None
) -> None:
    plane = control_plane.cluster
    async with replica(plane, service) as one, replica(plane, service) as other:
        found = await asyncio.gather(*(each.bind() for each in (one, other) for _ in range(10)))
        kubeconfigs = {
            (await each.spaces.provide(ALICE, "4ceiSr", each.offer)).kubeconfig
            for each in (one, other)
        }
    assert len(set(found)) == 1
    assert len(kubeconfigs) == 1
    assert [manifest.name_of(space) for space in await spaces_of(plane)] == [found[0]]
    assert await inside(plane, found[0]) == COMPLETE


async def test_an_event_reports_a_bind_that_made_something_once(door: Door, leader: None) -> None:
    space = await door.bind(replace(ALICE, user="oidc:al\x1b[2Jice"))
    await door.bind()
    events = (await door.plane.list(refs.EVENT, namespace=space)).items
    bound = [one for one in events if manifest.get_text(one, "reason") == "Bound"]
    assert [manifest.get_text(one, "note") for one in bound] == [
        f"oidc:al?[2Jice bound {door.offer.resource.name} to app cluster 4ceiSr"
    ]
    live = await get(door.plane, api.CLUSTER_BINDING, space, "cluster")
    regarding = {"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "ClusterBinding"}
    regarding |= {"name": "cluster", "namespace": space, "uid": manifest.uid_of(live)}
    assert manifest.get_map(bound[0], "regarding") == regarding


async def test_a_bind_needs_no_event(
    control_plane: LiveCluster, service: str, leader: None
) -> None:
    faults = faulty(on("create", kind=refs.EVENT), forbidden())
    async with replica(control_plane.cluster, service, faults=faults) as door:
        assert await inside(door.plane, await door.bind()) == COMPLETE


async def test_a_second_bind_writes_nothing(door: Door, control_plane: LiveCluster) -> None:
    await door.bind()
    mark = control_plane.audit.mark()
    await door.bind()
    assert control_plane.audit.writes_since(mark) == []


async def test_replicas_may_die_after_every_write(
    control_plane: LiveCluster, service: str, leader: None
) -> None:
    plane, found = control_plane.cluster, list[str]()

    async def live(faults: Faults) -> None:
        async with replica(plane, service, faults=faults) as made:
            found.append(await made.bind())

    assert await dies_after_every_write(live, writes()) == 5
    assert len(await spaces_of(plane)) == 1
    assert await inside(plane, found[0]) == COMPLETE


@pytest.mark.parametrize("disturbance", [*DISTURBANCES])
async def test_disturbed_writes_come_to_the_same(
    control_plane: LiveCluster, service: str, leader: None, disturbance: str
) -> None:
    plane, faults = control_plane.cluster, disturbed(writes(), disturbance)
    async with replica(plane, service, faults=faults) as made:
        assert await inside(plane, await made.bind()) == COMPLETE
    assert len(await spaces_of(plane)) == 1


async def test_a_space_of_the_original_is_found_by_its_annotation_and_gets_its_issuer(
    control_plane: LiveCluster, service: str, leader: None
) -> None:
    plane = control_plane.cluster
    await make_namespace(plane, "cluster-7fk2q", **noted("alice#4ceiSr"))
    spec: Manifest = {"providerPrettyName": "Old"}
    binding = objects.cluster_binding(
        "cluster-7fk2q", kubeconfig_name="own", spec=spec, marks=objects.UNMARKED
    )
    await plane.create(binding, api.CLUSTER_BINDING, manager=MANAGER)
    async with replica(plane, service) as made:
        assert await made.bind() == "cluster-7fk2q"
    assert "Secret own" in await inside(plane, "cluster-7fk2q")
    live = await get(plane, refs.NAMESPACE, "", "cluster-7fk2q")
    assert manifest.annotations_of(live)[keys.ISSUER] == ISSUER


async def test_a_provider_that_was_exchanged_takes_nobodys_space(
    door: Door, control_plane: LiveCluster
) -> None:
    await door.bind()
    mark = control_plane.audit.mark()
    later = replace(ALICE, issuer="https://new.example.org")
    assert (await refused(door, later)).code == "conflict"
    assert control_plane.audit.writes_since(mark) == []
    assert door.spaces.existing(later) == []


async def test_the_same_subject_at_a_second_issuer_has_its_own_space(door: Door) -> None:
    assert await door.bind(ALICE) != await door.bind(CI)
    await eventually(lambda: len(door.spaces.all()) == 2)
    assert [one.issuer for one in door.spaces.existing(CI)] == [CI.issuer]


@pytest.mark.parametrize(
    ("identity", "taken"), [("bob#4ceiSr", "name"), ("", "name"), ("alice#4ceiSr", "twice")]
)
async def test_a_space_that_is_not_the_identitys_is_left_as_it_is(
    control_plane: LiveCluster, service: str, leader: None, identity: str, taken: str
) -> None:
    plane = control_plane.cluster
    async with replica(plane, service) as first:
        name = await first.bind() if taken == "twice" else _name_of_alice()
        other = "cluster-other" if taken == "twice" else name
        await make_namespace(plane, other, **(noted(identity) if identity else {}))
        await eventually(lambda: first.views.has_namespace(other))
        before = await inside(plane, other)
        assert (await refused(first)).code == "conflict"
    assert await inside(plane, other) == before == []


def _name_of_alice() -> str:
    return Wanted(ALICE, "4ceiSr", TERMS, frozenset()).name


async def test_more_spaces_than_allowed_are_refused_also_at_once(door: Door) -> None:
    found = await asyncio.gather(
        *(door.bind(cid=f"cluster{number}") for number in range(5)), return_exceptions=True
    )
    wrong = [one for one in found if isinstance(one, Refused)]
    assert [one.reason for one in wrong] == ["quota", "quota"]
    assert len(await spaces_of(door.plane)) == 3
    await door.bind(BOB)


async def test_spaces_that_no_view_shows_yet_count_too(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door.views, "namespaces_of", lambda _: [])
    for number in range(3):
        await door.bind(cid=f"cluster{number}")
    assert (await refused(door)).reason == "quota"


async def test_nothing_is_absent_before_all_was_read(
    control_plane: LiveCluster, service: str
) -> None:
    plane, made = control_plane.cluster, Informers(control_plane.cluster, control_plane_mode=False)
    views = Views(made, consumer_scope="Namespaced")
    plural, _, group = service.partition(".")
    for asked in (views.offers(), views.offer(group, plural)):
        with pytest.raises(Refused) as raised:
            await asked
        assert raised.value.code == "unavailable"
    assert await spaces_of(plane) == []


async def test_what_is_not_offered_any_more_is_not_bound(
    door: Door, control_plane: LiveCluster
) -> None:
    template = Ref(
        door.plane.name, api.API_SERVICE_EXPORT_TEMPLATE, door.offer.namespace, door.offer.name
    )
    await remove(door.plane, template)
    mark = control_plane.audit.mark()

    async def unoffered() -> bool:
        return await door.views.offers() == []

    await eventually(unoffered)
    assert (await refused(door)).code == "not_found"
    assert control_plane.audit.writes_since(mark) == []


class Nobody:
    async def may_bind(self, identity: Identity, offer: Offer) -> bool:
        del identity, offer
        return False

    async def may_see_all(self, identity: Identity) -> bool:
        del identity
        return False


async def test_without_the_right_nothing_is_made(door: Door, control_plane: LiveCluster) -> None:
    spaces = Spaces(door.plane, lambda: door.views, TERMS, clock=SystemClock(), authorizer=Nobody())
    mark = control_plane.audit.mark()
    with pytest.raises(Refused, match="may not bind") as raised:
        await spaces.provide(ALICE, "4ceiSr", door.offer)
    assert raised.value.code == "forbidden"
    assert control_plane.audit.writes_since(mark) == []


async def test_a_token_that_was_exchanged_is_in_the_next_answer(door: Door) -> None:
    before = await door.spaces.provide(ALICE, "4ceiSr", door.offer)
    await remove(door.plane, Ref(door.plane.name, refs.SECRET, before.name, names.BINDER))
    await asyncio.sleep(2)  # of the model's time, which its tokens hold
    after = await door.spaces.provide(ALICE, "4ceiSr", door.offer)
    assert (after.name, after.kubeconfig) != (before.name, before.kubeconfig)
    assert await inside(door.plane, after.name) == COMPLETE


async def test_without_a_leader_the_space_is_not_ready_and_the_next_call_completes_it(
    control_plane: LiveCluster, service: str
) -> None:
    plane = control_plane.cluster
    async with replica(plane, service) as made:
        late = await refused(made)
        assert (late.code, late.reason) == ("unavailable", "timeout")
        async with backend(control_plane.connection):
            assert await inside(plane, await made.bind()) == COMPLETE
    assert len(await spaces_of(plane)) == 1


async def test_a_control_plane_that_hangs_is_not_waited_for_longer_than_ten_seconds(
    control_plane: LiveCluster, service: str, leader: None
) -> None:
    faults, loop = Faults(), asyncio.get_running_loop()
    faults.add(on("create", kind=refs.NAMESPACE), Meanwhile(asyncio.Event().wait))
    async with replica(control_plane.cluster, service, faults=faults) as made:
        began = loop.time()
        assert (await refused(made)).code == "unavailable"
        assert loop.time() - began == pytest.approx(10, abs=0.5)


@pytest.mark.parametrize("kind", [api.CLUSTER_BINDING, refs.SERVICE_ACCOUNT, refs.SECRET], ids=str)
async def test_a_space_that_is_deleted_meanwhile_is_not_filled_for_somebody_else(
    control_plane: LiveCluster, service: str, leader: None, kind: Kind
) -> None:
    plane, faults = control_plane.cluster, Faults()

    async def exchanged() -> None:
        """Delete the space, and let somebody else have its name."""
        ref = Ref(plane.name, refs.NAMESPACE, "", _name_of_alice())
        await remove(plane, ref)

        async def gone() -> bool:
            return await plane.get(ref) is None

        await eventually(gone)
        await make_namespace(plane, ref.name)

    faults.add(on("create", kind=kind).nth(1), Meanwhile(exchanged))
    async with replica(plane, service, faults=faults) as made:
        assert (await refused(made)).code == "conflict"
    assert "Secret kubeconfig" not in await inside(plane, _name_of_alice())


async def test_a_replica_that_died_leaves_what_the_next_one_completes(
    control_plane: LiveCluster, service: str, leader: None
) -> None:
    plane, faults = control_plane.cluster, Faults()
    faults.add(on("create", kind=refs.SECRET).nth(1), Meanwhile(asyncio.Event().wait))
    async with replica(plane, service, faults=faults) as made:
        call = asyncio.create_task(made.bind())
        await eventually(lambda: len(faults.calls) > 0 and faults.count_writes() >= 4)
        call.cancel()
        assert await survives(asyncio.gather(call, return_exceptions=True))
    async with replica(plane, service) as made:
        assert await inside(plane, await made.bind()) == COMPLETE
