"""S27: an app namespace is deleted, and another one made under its name; what must not follow."""

from typing import Any

from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.blueprints.objects import namespace
from reconciler.controller.program import Term
from reconciler.core import keys
from reconciler.core.manifest import Manifest, annotations_of, get_text, uid_of
from reconciler.core.refs import EVENT, NAMESPACE, SECRET, Ref
from tests.support.bound_scenes import Scene, remove, until
from tests.support.konnector_claims import bound, claim, data, ends
from tests.support.losses import Many, confirm, says
from tests.support.settled import settled

ANOTHER = ("InstancesInSync", "AnotherNamespace")


async def used(scene: Scene) -> None:
    """Let an app namespace have a claim, and credentials of its service."""
    there, here = await bound(scene, claim("secrets", "Provider"))
    await there.make(SECRET, "creds", **data("former"))
    await until(lambda: here.holds(SECRET, "creds", "former"))


async def uid_here(scene: Scene) -> str:
    return uid_of(await scene.in_app(NAMESPACE, scene.app_namespace) or {})


async def uid_mapped(scene: Scene) -> str:
    """Return the uid of the app namespace that is recorded."""
    live = await scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace)
    return annotations_of(live or {}).get(keys.APP_NAMESPACE_UID, "")


async def is_mapped(scene: Scene) -> bool:
    return await uid_mapped(scene) == await uid_here(scene)


async def lose_record(scene: Scene) -> None:
    """Let the mapping be as an older konnector made it."""
    ref = Ref(scene.plane.name, API_SERVICE_NAMESPACE, scene.space, scene.app_namespace)
    gone: Manifest = {"metadata": {"annotations": {keys.APP_NAMESPACE_UID: None}}}
    await scene.plane.cluster.merge_patch(ref, gone, manager="operator")


async def make_again(scene: Scene) -> None:
    """Let an app namespace go with its claims, where nobody is asked; then make it again."""
    before = await uid_here(scene)
    await Many(scene, 0).lose_instance("orders")
    await remove(scene.app, NAMESPACE, "", scene.app_namespace)

    async def is_made() -> bool:
        if await scene.in_app(NAMESPACE, scene.app_namespace) is None:
            made = namespace(scene.app_namespace)
            await scene.app.cluster.create(made, NAMESPACE, manager="tests")
        return await uid_here(scene) not in ("", before)

    await until(is_made)


async def use_names(scene: Scene) -> None:
    """Make claims as another team would: of a name that was used, and of one that was not."""
    await scene.create_instance(size="9Gi")
    await scene.create_instance("fresh", size="9Gi")


async def is_event_there(scene: Scene) -> bool:
    events = (await scene.app.cluster.list(EVENT, namespace=scene.app_namespace)).items
    said = [one for one in events if get_text(one, "reason") == "AnotherNamespace"]
    return await uid_here(scene) in [get_text(one, "regarding", "uid") for one in said]


async def assert_nothing_passes(scene: Scene, running: Term) -> None:
    """The former one's data stays as it was, and neither side has anything of the other."""
    await until(lambda: says(scene, *ANOTHER))
    await until(lambda: is_event_there(scene))
    await settled(running)
    copy: Any = await scene.copy()
    assert copy["spec"] == {"size": "1Gi"}
    assert await scene.copy("fresh") is None
    assert await ends(scene)[1].lacks(SECRET, "creds")
    claim: Any = await scene.instance()
    assert claim is None or claim["spec"] == {"size": "9Gi"}
    assert await uid_mapped(scene) != await uid_here(scene)


async def give(scene: Scene) -> None:
    """Give the former one's data to this namespace, and wait until it is there."""
    await confirm(scene, keys.CONFIRM_NAMESPACES, f"{scene.app_namespace}=another")
    assert not await is_mapped(scene)
    uid = await uid_here(scene)
    await confirm(scene, keys.CONFIRM_NAMESPACES, f"x=y,{scene.app_namespace}={uid}")
    here = ends(scene)[1]
    await until(lambda: is_mapped(scene))
    await until(lambda: here.holds(SECRET, "creds", "former"))
    await until(lambda: scene.copy("fresh"))
    await until(lambda: says(scene, "InstancesInSync", ""))
