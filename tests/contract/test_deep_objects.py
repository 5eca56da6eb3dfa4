"""What somebody nests deeper than JSON readers go does not end the work for anybody else.

kube-apiserver stores and lists such objects, with any client's word for them.
"""

from typing import Final

from reconciler.api import API_SERVICE_EXPORT_REQUEST
from reconciler.core.refs import SECRET
from tests.support.bound_scenes import Scene, until
from tests.support.deep_objects import nested, post, typed
from tests.support.konnector_scenes import refusal

# Written by nobody, compared by recursion or not, and read by orjson or not.
LEVELS: Final = [280, 1000, 3000]


async def litter(scene: Scene, namespace: str, levels: int) -> None:
    """Leave what tenants can leave: a request, and metadata of a Secret, on both sides."""
    name = f"deep-{levels}"
    named = f'{{"group":"{scene.offer.group}","resource":"{scene.offer.kind.plural}"}}'
    asked = f'"spec":{{"parameters":{{"a":{nested(levels)}}},"resources":[{named}]}}'
    kind = API_SERVICE_EXPORT_REQUEST
    await post(scene.plane, kind, namespace, typed(kind, asked, name=name))
    manager = '"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1"'
    managed = f',"managedFields":[{{{manager},"fieldsV1":{nested(levels)}}}]'
    secret = typed(SECRET, '"data":{}', name=name, metadata=managed)
    for live, where in ((scene.plane, namespace), (scene.app, scene.app_namespace)):
        await post(live, SECRET, where, secret)


async def test_neighbours_of_deep_objects_are_served(scene: Scene, namespace: str) -> None:
    for levels in LEVELS:
        await litter(scene, namespace, levels)
    async with scene.backend(), scene.konnector():
        await scene.bound()
        await scene.create_instance(size="1Gi")
        await until(scene.copy)
        # Into watches that are open, and into the lists of those that begin.
        for levels in LEVELS:
            spec = f'"spec":{{"a":{nested(levels)}}}'
            instance = typed(scene.offer.kind, spec, name=f"deep-{levels}")
            await post(scene.app, scene.offer.kind, scene.app_namespace, instance)
        await scene.create_instance("later", size="2Gi")
        await until(lambda: scene.copy("later"))
    async with scene.backend(), scene.konnector():
        await scene.create_instance("latest", size="3Gi")
        await until(lambda: scene.copy("latest"))
        await until(lambda: all_refused(scene))
        for levels in LEVELS:
            assert await scene.copy(f"deep-{levels}") is None


async def all_refused(scene: Scene) -> bool:
    message = await refusal(scene)
    return all(f"deep-{levels}" in message for levels in LEVELS)
