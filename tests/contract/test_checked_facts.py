"""The facts about kube-apiserver that the design stands on (mapping.md, section 0).

If a new Kubernetes version breaks one of these, the contract between the programs breaks:
each is asserted on a real API server, through our own client.
"""

import time
import uuid

import pytest

from reconciler.core import errors, field_set, refs
from reconciler.core.manifest import Manifest, get, get_text, get_text_map, put
from reconciler.core.refs import Kind, Ref
from reconciler.kube.client import KubeCluster
from reconciler.kube.requests import Preconditions, Propagation
from tests.support.accounts import create_robot, robot_connection, token_of
from tests.support.definitions import definition
from tests.support.eventually import eventually
from tests.support.raw import get_json

MANAGER = "klutchctl"
SELF_REVIEW = Kind(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
)
WHATEVER = Preconditions(uid=None)
VERDICT = 10.0  # seconds for which a server keeps its verdict on a token


def config_map(namespace, name="x", data=None, **metadata):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace} | metadata,
        "data": {"a": "1"} if data is None else data,
    }


@pytest.fixture
def cluster(control_plane):
    return control_plane.cluster


def ref(cluster, namespace, name="x", kind=refs.CONFIG_MAP):
    return Ref(cluster.name, kind, namespace, name)


async def create(cluster, manifest):
    return await cluster.create(manifest, refs.CONFIG_MAP, manager=MANAGER)


async def apply(cluster, manifest, kind=refs.CONFIG_MAP):
    return await cluster.apply(manifest, kind, manager=MANAGER, force=True)


async def delete(cluster, target, preconditions=WHATEVER, propagation=Propagation.BACKGROUND):
    return await cluster.delete(target, preconditions=preconditions, propagation=propagation)


async def make_again(cluster, namespace):
    """Create, delete and create one name; return the first and the second object."""
    first = await create(cluster, config_map(namespace))
    await delete(cluster, ref(cluster, namespace))
    return first, await create(cluster, config_map(namespace))


# Preconditions


async def test_create_finds_the_name_taken(cluster, namespace):
    await create(cluster, config_map(namespace))
    with pytest.raises(errors.AlreadyExists):
        await create(cluster, config_map(namespace))


async def test_apply_with_a_resource_version_alone_creates_a_deleted_object_again(
    cluster, namespace
):
    old = await create(cluster, config_map(namespace))
    await delete(cluster, ref(cluster, namespace))
    version = get_text(old, "metadata", "resourceVersion")
    new = await apply(cluster, config_map(namespace, resourceVersion=version))
    assert get(new, "metadata", "uid") != get(old, "metadata", "uid")


async def test_apply_with_uid_and_resource_version_does_not(cluster, namespace):
    old = await create(cluster, config_map(namespace))
    await delete(cluster, ref(cluster, namespace))
    version, uid = (get_text(old, "metadata", key) for key in ("resourceVersion", "uid"))
    with pytest.raises(errors.Replaced):
        await apply(cluster, config_map(namespace, resourceVersion=version, uid=uid))
    assert await cluster.get(ref(cluster, namespace)) is None


async def test_apply_with_the_uid_of_a_replaced_object_is_stale_not_rejected(cluster, namespace):
    old, new = await make_again(cluster, namespace)
    version = get_text(new, "metadata", "resourceVersion")
    stale = config_map(
        namespace, data={"a": "2"}, resourceVersion=version, uid=get_text(old, "metadata", "uid")
    )
    with pytest.raises(errors.Replaced) as caught:
        await apply(cluster, stale)
    assert caught.value.status == 422
    assert await cluster.get(ref(cluster, namespace)) == new


async def test_apply_with_an_old_resource_version_is_a_conflict(cluster, namespace):
    old = await create(cluster, config_map(namespace))
    new = await cluster.merge_patch(
        ref(cluster, namespace), {"data": {"b": "2"}}, manager="someone"
    )
    version, uid = (get_text(old, "metadata", key) for key in ("resourceVersion", "uid"))
    with pytest.raises(errors.Conflict) as caught:
        await apply(cluster, config_map(namespace, resourceVersion=version, uid=uid))
    assert type(caught.value) is errors.Conflict
    assert await cluster.get(ref(cluster, namespace)) == new


async def test_delete_meets_only_the_object_that_was_meant(cluster, namespace):
    old, new = await make_again(cluster, namespace)
    target = ref(cluster, namespace)
    with pytest.raises(errors.Replaced):
        await delete(cluster, target, Preconditions(uid=get_text(old, "metadata", "uid")))
    uid = get_text(new, "metadata", "uid")
    with pytest.raises(errors.Conflict) as caught:
        await delete(cluster, target, Preconditions(uid=uid, resource_version="1"))
    assert type(caught.value) is errors.Conflict
    assert await cluster.get(target) == new
    version = get_text(new, "metadata", "resourceVersion")
    assert await delete(cluster, target, Preconditions(uid=uid, resource_version=version))
    assert await cluster.get(target) is None


async def test_deleting_what_is_gone_counts_as_done(cluster, namespace):
    assert not await delete(cluster, ref(cluster, namespace), Preconditions(uid="some-uid"))


async def test_merge_patch_with_preconditions(cluster, namespace):
    old, new = await make_again(cluster, namespace)
    target = ref(cluster, namespace)
    stale_uid = {"metadata": {"uid": get_text(old, "metadata", "uid")}, "data": {"a": "2"}}
    with pytest.raises(errors.Replaced):
        await cluster.merge_patch(target, stale_uid, manager=MANAGER)
    stale_version = {"metadata": {"resourceVersion": "1"}, "data": {"a": "2"}}
    with pytest.raises(errors.Conflict):
        await cluster.merge_patch(target, stale_version, manager=MANAGER)
    assert await cluster.get(target) == new
    with pytest.raises(errors.Missing):
        await cluster.merge_patch(ref(cluster, namespace, "y"), {"data": {}}, manager=MANAGER)


# Field removal


async def test_a_field_created_by_post_stays_when_a_later_apply_drops_it(cluster, namespace):
    await create(cluster, config_map(namespace, data={"a": "1", "b": "2"}))
    live = await apply(cluster, config_map(namespace, data={"a": "1"}))
    assert get(live, "data") == {"a": "1", "b": "2"}, "the Update and Apply entries co-own it"


async def test_a_field_created_by_post_goes_once_our_entry_is_an_apply_entry(cluster, namespace):
    created = await create(cluster, config_map(namespace, data={"a": "1", "b": "2"}))
    patch = field_set.created_to_applied(created, manager=MANAGER)
    assert patch is not None
    await cluster.json_patch(ref(cluster, namespace), patch, manager=MANAGER)
    live = await apply(cluster, config_map(namespace, data={"a": "1"}))
    assert get(live, "data") == {"a": "1"}
    assert field_set.created_to_applied(live, manager=MANAGER) is None, "once is enough"


async def test_the_conversion_is_refused_when_the_object_changed_meanwhile(cluster, namespace):
    created = await create(cluster, config_map(namespace))
    target = ref(cluster, namespace)
    await cluster.merge_patch(target, {"data": {"c": "3"}}, manager="someone")
    patch = field_set.created_to_applied(created, manager=MANAGER)
    assert patch is not None
    with pytest.raises(errors.Conflict):
        await cluster.json_patch(target, patch, manager=MANAGER)


async def test_fields_of_others_survive_conversion_and_apply(cluster, namespace):
    await create(cluster, config_map(namespace, data={"a": "1", "b": "2"}))
    target = ref(cluster, namespace)
    live = await cluster.merge_patch(target, {"data": {"theirs": "9"}}, manager="someone")
    patch = field_set.created_to_applied(live, manager=MANAGER)
    assert patch is not None
    await cluster.json_patch(target, patch, manager=MANAGER)
    live = await apply(cluster, config_map(namespace, data={"a": "1"}))
    assert get(live, "data") == {"a": "1", "theirs": "9"}


async def test_the_original_konnectors_entry_is_taken_over(cluster, namespace):
    manifest = config_map(namespace, data={"a": "1", "b": "2"})
    created = await cluster.create(manifest, refs.CONFIG_MAP, manager="konnector")
    patch = field_set.created_to_applied(
        created, manager="klutch.anynines.com", from_managers=["konnector"]
    )
    assert patch is not None
    await cluster.json_patch(ref(cluster, namespace), patch, manager="klutch.anynines.com")
    smaller = config_map(namespace, data={"a": "1"})
    live = await cluster.apply(smaller, refs.CONFIG_MAP, manager="klutch.anynines.com", force=True)
    assert get(live, "data") == {"a": "1"}


# Other checked facts


async def test_an_apply_that_changes_nothing_keeps_the_resource_version(cluster, namespace):
    first = await apply(cluster, config_map(namespace))
    second = await apply(cluster, config_map(namespace))
    assert second == first


async def create_roles(cluster, namespace):
    """Create three objects of a kind that nobody else creates in a new namespace."""
    for name in ("x", "y", "z"):
        metadata = {"name": name, "namespace": namespace}
        role = {"apiVersion": refs.ROLE.api_version, "kind": refs.ROLE.kind, "metadata": metadata}
        await cluster.create(role, refs.ROLE, manager=MANAGER)


async def test_a_page_of_one_counts_the_rest(cluster, namespace):
    await create_roles(cluster, namespace)
    for metadata_only in (False, True):
        page = await cluster.first_page(
            refs.ROLE, namespace=namespace, limit=1, metadata_only=metadata_only
        )
        assert (len(page.items), page.more, page.remaining) == (1, True, 2)


@pytest.mark.parametrize(
    ("query", "items", "remaining"),
    [
        pytest.param("limit=1&resourceVersion=0", 3, None, id="from the watch cache: all"),
        pytest.param("limit=1&labelSelector=!no", 1, None, id="with a selector: no count"),
        pytest.param("limit=1", 1, 2, id="as we ask"),
    ],
)
async def test_when_the_server_counts(control_plane, namespace, query, items, remaining):
    await create_roles(control_plane.cluster, namespace)
    path = f"/apis/{refs.ROLE.api_version}/namespaces/{namespace}/roles?{query}"

    async def listed():
        answer = await get_json(control_plane.connection, path)
        assert len(answer["items"]) == items, "the watch cache may lag behind the writes"
        return answer["metadata"]

    metadata: Manifest = await eventually(listed)
    assert metadata.get("remainingItemCount") == remaining


async def test_a_token_for_less_than_ten_minutes_is_refused(cluster, namespace):
    await create_robot(cluster, namespace)
    with pytest.raises(errors.Rejected) as caught:
        await token_of(cluster, namespace, seconds=599)
    assert caught.value.status == 422
    assert await token_of(cluster, namespace, seconds=600)


async def test_a_revoked_token_is_accepted_a_little_longer(control_plane, namespace):
    cluster = control_plane.cluster
    connection = await robot_connection(control_plane, namespace)
    account = ref(cluster, namespace, "robot", refs.SERVICE_ACCOUNT)
    question = {"apiVersion": SELF_REVIEW.api_version, "kind": SELF_REVIEW.kind}
    async with KubeCluster(connection) as robot:

        async def accepted():
            try:
                await robot.create(question, SELF_REVIEW, manager="robot")
            except errors.Unauthorized:
                return False
            return True

        async def refused():
            return not await accepted()

        began = time.monotonic()
        assert await accepted()
        await delete(cluster, account)
        kept = await accepted()
        # On a machine that took longer than that for three requests, nothing can be seen of it.
        assert kept or time.monotonic() - began >= VERDICT
        await eventually(refused)


def owned_crd(suffix, owner):
    made = definition(Kind("facts.example", "v1", f"Thing{suffix}", f"things{suffix}"))
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    reference |= {key: get_text(owner, "metadata", key) for key in ("name", "uid")}
    return put(made, [reference], "metadata", "ownerReferences")


async def gone(cluster, target):
    async def absent():
        return await cluster.get(target) is None

    await eventually(absent)


async def cluster_scoped_owner(cluster, name):
    role = {"apiVersion": refs.CLUSTER_ROLE.api_version, "kind": refs.CLUSTER_ROLE.kind}
    return await cluster.create(
        role | {"metadata": {"name": name}, "rules": []}, refs.CLUSTER_ROLE, manager=MANAGER
    )


FIRST = {"name": "v1", "served": True, "storage": True}
SECOND = {"name": "v2", "served": True, "storage": True}
UNSERVED = {"name": "v1", "served": False, "storage": False}


async def test_a_crd_keeps_each_version_that_is_stored(cluster):
    """A version goes once no object is stored in it any more; until then it may be unserved."""
    suffix = uuid.uuid4().hex[:8]
    owner = await cluster_scoped_owner(cluster, f"stored-{suffix}")
    place = await crd_of(cluster, suffix, owner)
    schema = {"schema": {"openAPIV3Schema": {"type": "object"}}}

    async def become(*versions):
        spec = {"spec": {"versions": [{**one, **schema} for one in versions]}}
        await cluster.merge_patch(place, spec, manager=MANAGER)

    async def stored():
        return get(await cluster.get(place), "status", "storedVersions")

    await eventually(lambda: is_stored(stored, ["v1"]))
    await become(SECOND, UNSERVED)
    await eventually(lambda: is_stored(stored, ["v1", "v2"]))
    with pytest.raises(errors.Rejected, match="must remain in spec"):
        await become(SECOND)
    body = {"status": {"storedVersions": ["v2"]}}
    await cluster.merge_patch(place, body, manager=MANAGER, subresource="status")
    await become(SECOND)
    await delete(cluster, place)


async def is_stored(stored, versions):
    return await stored() == versions


async def crd_of(cluster, suffix, owner):
    crd = await cluster.create(owned_crd(suffix, owner), refs.CRD, manager=MANAGER)
    return ref(cluster, "", get_text(crd, "metadata", "name"), refs.CRD)


async def collector_has_seen_all(cluster, owner):
    """Wait until the garbage collector has heard of every CRD that was made before this call."""
    stranger = owner | {"metadata": {"name": "nobody", "uid": str(uuid.uuid4())}}
    await gone(cluster, await crd_of(cluster, "seen", stranger))


async def test_a_crd_goes_with_its_cluster_scoped_owner(cluster):
    owner = await cluster_scoped_owner(cluster, "facts-background")
    crd = await crd_of(cluster, "background", owner)
    await delete(cluster, ref(cluster, "", "facts-background", refs.CLUSTER_ROLE))
    await gone(cluster, crd)


async def test_orphaning_keeps_the_crd_and_strips_the_reference(cluster):
    owner = await cluster_scoped_owner(cluster, "facts-orphan")
    crd = await crd_of(cluster, "orphan", owner)
    await collector_has_seen_all(cluster, owner)  # it orphans only what it knows of
    target = ref(cluster, "", "facts-orphan", refs.CLUSTER_ROLE)
    await delete(cluster, target, propagation=Propagation.ORPHAN)
    await gone(cluster, target)
    live = await cluster.get(crd)
    assert live is not None
    assert get(live, "metadata", "ownerReferences") is None
    assert get(live, "metadata", "deletionTimestamp") is None
    await delete(cluster, crd)


async def test_a_crd_owned_by_a_namespaced_object_is_not_collected(cluster, namespace):
    owner = await create(cluster, config_map(namespace))
    crd = await crd_of(cluster, "namespaced", owner)

    async def refused():
        events = await cluster.list(refs.EVENT, fields="reason=OwnerRefInvalidNamespace")
        assert crd.name in [get(event, "regarding", "name") for event in events.items]
        return True

    await eventually(refused)  # told only while the owner lives
    references = get(await cluster.get(crd), "metadata", "ownerReferences")
    await create(cluster, config_map(namespace, "y", ownerReferences=references))
    await delete(cluster, ref(cluster, namespace))
    await gone(cluster, ref(cluster, namespace, "y"))
    live = await cluster.get(crd)
    assert live is not None
    assert get(live, "metadata", "deletionTimestamp") is None
    await delete(cluster, crd)


async def test_labels_written_by_adoption_change_neither_uid_nor_generation(cluster):
    owner = await cluster_scoped_owner(cluster, "facts-adopt")
    crd = await crd_of(cluster, "adopt", owner)
    before = await cluster.get(crd)
    assert before is not None
    labels = {"klutchctl.dev/fleet": "acme"}
    body = {
        "apiVersion": refs.CRD.api_version,
        "kind": refs.CRD.kind,
        "metadata": {
            "name": crd.name,
            "labels": labels,
            "uid": get_text(before, "metadata", "uid"),
        },
    }
    after = await apply(cluster, body, refs.CRD)
    assert get_text_map(after, "metadata", "labels") == labels
    for path in (("metadata", "uid"), ("metadata", "generation"), ("spec",)):
        assert get(after, *path) == get(before, *path)
    await delete(cluster, ref(cluster, "", "facts-adopt", refs.CLUSTER_ROLE))
