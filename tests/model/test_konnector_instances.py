"""Claims and their copies: what each side gets, and with how many writes."""

from typing import Any

from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.core import keys
from reconciler.core.manifest import finalizers_of, uid_of
from reconciler.core.refs import CRD
from tests.support import losses
from tests.support.bound_scenes import Scene, read, remove, served, until
from tests.support.konnector_scenes import (
    Side,
    equals,
    event,
    events,
    redefine,
    refusal,
    story,
    working,
)


async def test_an_instance_costs_what_it_must(scene: Scene) -> None:
    """F.3; G 43, 49-52; behaviours 1: create, status, spec, drift, copy deleted, delete."""
    async with story(scene) as account:
        await account.settle("first")
        mapping = await scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace)
        assert mapping["status"] == {"namespace": scene.service_namespace}

        await account.begin()
        await account.settle()
        created = [
            "patch here orders",
            "patch/status here orders",
            "patch here orders",  # the mark, once nobody waits for the status
            "create there orders",
        ]
        assert await account.writes() == created

        await account.begin()
        await account.here.patch({"spec": {"size": "2Gi"}})
        await until(lambda: equals(account.there.spec(), {"size": "2Gi"}))
        assert await account.writes() == ["patch there orders"]

        await account.begin()
        await account.there.patch({"spec": {"size": "9Gi"}})
        await until(lambda: equals(account.there.spec(), {"size": "2Gi"}))
        assert await account.writes() == ["patch there orders"]

        await scene.recreate_always()
        await account.begin()
        await account.there.delete()
        await until(lambda: equals(account.there.spec(), {"size": "2Gi"}))
        await until(lambda: equals(account.here.status(), None))
        assert await account.writes() == ["patch/status here orders", "create there orders"]

        await account.begin()
        await account.here.delete()
        await until(account.here.gone)
        assert await account.there.gone()
        assert await account.writes() == ["patch here orders", "delete there orders"]


async def test_a_map_that_is_emptied_stays_as_an_empty_one(scene: Scene) -> None:
    """An apply alone would make null of it."""
    notes = {"labels": {"a/b": "1", "deep": {"er": 1}}}
    async with story(scene) as account:
        await account.settle(spec={"size": "1Gi", **notes})
        await account.begin()
        await account.here.patch({"spec": {"labels": {"a/b": "2"}}})
        changed = {"size": "1Gi", "labels": {"a/b": "2", "deep": {"er": 1}}}
        await until(lambda: equals(account.there.spec(), changed))
        await account.here.patch({"spec": {"labels": {"a/b": None, "deep": None}}})
        await until(lambda: equals(account.there.spec(), {"size": "1Gi", "labels": {}}))
        # The first of them takes over what was created.
        assert 2 <= len(await account.writes()) <= 4


async def test_what_is_in_order_is_written_by_no_restart(scene: Scene) -> None:
    async with scene.backend():
        async with working(scene) as account:
            await scene.bound()
            for name in ("orders", "users"):
                await account.settle(name, spec={"size": "1Gi", "users": [{"name": "a"}]})
        async with working(scene) as account:
            await account.there.patch(
                {"status": {"phase": "Failed"}}, "users", subresource="status"
            )
            await until(lambda: equals(account.here.status("users"), {"phase": "Failed"}))
            assert await account.writes() == ["patch/status here users"]


async def test_what_a_provider_adds_stays_and_costs_nothing(scene: Scene) -> None:
    """H26: as Crossplane does with its claims."""
    async with story(scene) as account:
        await account.settle(spec={"size": "1Gi", "parameters": {"a": 1}})
        await account.there.hold("finalizer.apiextensions.crossplane.io")
        added: Any = {"resourceRef": {"name": "x"}, "parameters": {"b": 2}, "policy": "Automatic"}
        await account.there.patch({"spec": added})
        await account.begin()
        status: Any = {"phase": "Ready", "conditions": [{"type": "Ready", "status": "True"}]}
        await account.there.patch({"status": status}, subresource="status")
        await until(lambda: equals(account.here.status(), status))
        assert await account.writes() == ["patch/status here orders"]

        await account.begin()
        await account.here.patch({"spec": {"size": "2Gi"}})
        whole = {"size": "2Gi", **added, "parameters": {"a": 1, "b": 2}}
        await until(lambda: equals(account.there.spec(), whole))
        assert await account.writes() == ["patch there orders"]
        assert finalizers_of(await account.there.read()) == [
            "finalizer.apiextensions.crossplane.io"
        ]
        await account.there.hold()


async def test_a_field_that_is_taken_out_goes(scene: Scene) -> None:
    """H10, golden 02/23: whatever its history, and inside lists too."""
    async with story(scene) as account:
        spec: Any = {
            "size": "1Gi",
            "note": "first",
            "options": {"backup": {"daily": True}, "trace": True},
            "users": [{"name": "a", "admin": True}, {"name": "b"}],
        }
        await account.settle(spec=spec)
        await account.here.patch({"spec": {"note": "second"}})
        await until(lambda: equals(account.there.spec(), {**spec, "note": "second"}))
        await account.here.patch({"spec": {"note": None, "options": {"backup": None}}})
        left: Any = {"size": "1Gi", "options": {"trace": True}, "users": spec["users"]}
        await until(lambda: equals(account.there.spec(), left))
        await account.begin()
        left["users"] = [{"name": "a"}, {"name": "b"}]
        await account.here.patch({"spec": {"users": left["users"]}})
        await until(lambda: equals(account.there.spec(), left))
        left["users"] = [{"name": "a"}]
        await account.here.patch({"spec": {"users": left["users"]}})
        await until(lambda: equals(account.there.spec(), left))
        assert await account.writes() == ["patch there orders"] * 2
        await account.here.patch({"spec": None})
        await until(lambda: equals(account.there.spec(), None))


async def test_without_a_status_subresource_the_status_comes_all_the_same(scene: Scene) -> None:
    """H13, golden 06/20."""

    def without_status(version: dict[str, object]) -> None:
        version["subresources"] = None

    await redefine(scene.plane, scene, without_status)
    async with story(scene) as account:
        crd = await read(scene.app, CRD, "", scene.offer.name)
        assert not crd["spec"]["versions"][0].get("subresources")
        await account.settle("first")
        await account.begin()
        await account.settle()
        assert await account.writes() == [*3 * ["patch here orders"], "create there orders"]
        assert await account.there.spec() == await account.here.spec() == {"size": "1Gi"}


async def test_an_instance_stays_as_long_as_its_copy(scene: Scene) -> None:
    """H11, golden 02/50-52: and is told meanwhile how its end goes."""
    async with story(scene) as account:
        await account.settle()
        await account.there.hold("provider.example/cleanup")
        assert await account.writes()
        await account.begin()
        await account.here.delete()
        await until(account.there.goes)
        silent = await until(lambda: event(scene, "orders", "DeletionPending"))
        assert "provider.example/cleanup" in silent["note"]
        why = "the database stays until \x1b[31mgrain\nis deleted"
        said = {"type": "Ready", "status": "False", "reason": "StillBound", "message": why}
        leaving: Any = {"phase": "Deleting", "conditions": [said]}
        await account.there.patch({"status": leaving}, subresource="status")
        await until(lambda: equals(account.here.status(), leaving))

        async def is_noted() -> bool:
            found = await events(scene, "orders", "DeletionPending")
            words = "StillBound: the database stays until grain is deleted"
            return [one["note"].endswith(words) for one in found] == [False, True]

        await until(is_noted)
        assert finalizers_of(await account.here.read()) == [keys.SYNCER]
        assert await account.writes() == ["patch/status here orders", "delete there orders"]
        await account.there.hold()
        await until(account.here.gone)
        assert await account.there.gone()


def narrow(version: dict[str, Any]) -> None:
    """Let a version know two fields only, one of which it fills in."""
    known = {"size": {"type": "string"}, "tier": {"type": "string", "default": "small"}}
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    properties["spec"] = {"type": "object", "properties": known}


async def test_what_the_control_plane_refuses_is_reported_to_the_developer(scene: Scene) -> None:
    """H17: in an Event about the instance and in a condition of the binding."""
    async with working(scene) as account:
        async with scene.backend():
            await scene.bound()
            await account.settle()
        await redefine(scene.plane, scene, narrow)
        await until(lambda: filled_in(account.there))
        await account.here.patch({"spec": {"size": "2Gi", "colour": "blue"}})
        refused = await until(lambda: event(scene, "orders", "SyncDenied"))
        assert refused["note"].startswith("The control plane refused to apply ")
        assert "colour" in refused["note"]
        assert await account.there.spec() == {"size": "1Gi", "tier": "small"}
        reported_of = await until(lambda: refusal(scene))
        assert f"{scene.app_namespace}/orders" in reported_of
        await account.here.patch({"spec": {"colour": None}})
        await until(lambda: equals(account.there.spec(), {"size": "2Gi", "tier": "small"}))
        await until(lambda: equals(refusal(scene), ""))


def phases(version: dict[str, Any]) -> None:
    status = {"type": "object", "properties": {"phase": {"type": "string", "enum": ["Ready"]}}}
    version["schema"]["openAPIV3Schema"]["properties"]["status"] = status


async def test_a_refusal_of_the_app_cluster_names_it(scene: Scene) -> None:
    """A status that was stored before its schema became narrower."""
    async with scene.backend():
        async with working(scene) as account:
            await scene.bound()
            await account.settle()
        await account.there.patch({"status": {"phase": "Odd"}}, subresource="status")
        await redefine(scene.plane, scene, phases)
        async with working(scene):
            refused = await until(lambda: event(scene, "orders", "SyncDenied"))
            start = f"The app cluster refused to patch {scene.offer.kind.kind}"
            assert refused["note"].startswith(start)
            assert "phase" in refused["note"]


async def test_what_only_the_control_plane_fills_in_is_left_to_it(scene: Scene) -> None:
    """A copy that was created with it counts as ours in this field, until it is applied."""
    async with working(scene) as account:
        async with scene.backend():
            await scene.bound()
            await account.settle("first")
        await redefine(scene.plane, scene, narrow)
        await until(lambda: filled_in(account.there, "first"))
        await account.settle()
        assert await account.there.spec() == {"size": "1Gi", "tier": "small"}
        await account.writes()
        await account.begin()
        await account.there.patch({"status": {"phase": "Failed"}}, subresource="status")
        await until(lambda: equals(account.here.status(), {"phase": "Failed"}))
        assert await account.writes() == ["patch/status here orders"]


async def filled_in(side: Side, name: str = "orders") -> bool:
    """Return whether the server shows by now what a changed CRD fills in."""
    return (await side.spec(name) or {}).get("tier") == "small"


async def test_a_schema_that_changes_comes_down_and_interrupts_nothing(scene: Scene) -> None:
    """Golden 02/60: a new field is known here as soon as there, and goes up."""
    async with story(scene) as account:
        await account.settle()

        def widen(version: dict[str, Any]) -> None:
            version["schema"]["openAPIV3Schema"]["properties"]["extra"] = {"type": "string"}

        await redefine(scene.plane, scene, widen)
        await until(lambda: account.here.keeps("extra"))
        await account.here.patch({"extra": "x"})

        async def arrives() -> bool:
            return "extra" in await account.there.read()

        await until(arrives)
        crd = await read(scene.app, CRD, "", scene.offer.name)
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        assert "extra" in schema["properties"]
        await account.there.patch({"status": {"phase": "Failed"}}, subresource="status")
        await until(lambda: equals(account.here.status(), {"phase": "Failed"}))


async def test_a_crd_that_somebody_deletes_comes_back_without_its_instances(scene: Scene) -> None:
    """C.4: each instance goes after its copy, once that is confirmed, and nothing hangs (T11)."""
    async with story(scene) as account:
        await account.settle()
        before = uid_of(await scene.in_app(CRD, scene.offer.name))
        await remove(scene.app, CRD, "", scene.offer.name)

        async def is_new() -> bool:
            crd = await scene.in_app(CRD, scene.offer.name)
            return crd is not None and uid_of(crd) != before

        await until(lambda: losses.says(scene, "DeletesAllowed", "MassDeletion"))
        assert not await account.there.gone()
        await losses.confirm(scene, keys.CONFIRM_MASS_DELETE)
        await until(is_new)
        await until(account.there.gone)
        await until(lambda: served(scene.app, scene.offer.kind))
        await account.here.make()
        await until(account.there.read)
