"""What somebody nests deeper than JSON readers go does not end the work for anybody else.

kube-apiserver stores and lists such objects, with any client's word for them.
"""

from typing import Final

import pytest

from reconciler.api.exports import API_SERVICE_EXPORT_REQUEST
from reconciler.core.refs import SECRET
from tests.support.bound_scenes import Scene, until
from tests.support.deep_objects import nested, post, typed
from tests.support.konnector_scenes import refusal

# Written by nobody, compared by recursion or not, and read by orjson or not.
LEVELS: Final = [280, 1000, 3000]


async def litter(scene: Scene, namespace: str, levels: int) -> None:
    """Leave what tenants can leave: a request, and metadata of a Secret, on both sides."""
    named = f'{{"group":"{scene.offer.group}","resource":"{scene.offer.kind.plural}"}}'
    asked = f'"spec":{{"parameters":{{"a":{nested(levels)}}},"resources":[{named}]}}'
    kind = API_SERVICE_EXPORT_REQUEST
    await post(scene.plane, kind, namespace, typed(kind, asked))
    manager = '"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1"'
    managed = f',"managedFields":[{{{manager},"fieldsV1":{nested(levels)}}}]'
    for live, where in ((scene.plane, namespace), (scene.app, scene.app_namespace)):
        await post(live, SECRET, where, typed(SECRET, '"data":{}', metadata=managed))


@pytest.mark.parametrize("levels", LEVELS)
async def test_neighbours_of_a_deep_object_are_served(
    scene: Scene, namespace: str, levels: int
) -> None:
    await litter(scene, namespace, levels)
    async with scene.backend(), scene.konnector():
        await scene.bound()
        await scene.create_instance(size="1Gi")
        await until(scene.copy)
        # Into watches that are open, and into the lists of those that begin.
        instance = typed(scene.offer.kind, f'"spec":{{"a":{nested(levels)}}}')
        await post(scene.app, scene.offer.kind, scene.app_namespace, instance)
        await scene.create_instance("later", size="2Gi")
        await until(lambda: scene.copy("later"))
    async with scene.backend(), scene.konnector():
        await scene.create_instance("latest", size="3Gi")
        await until(lambda: scene.copy("latest"))
        assert "deep" in await until(lambda: refusal(scene))
        assert await scene.copy("deep") is None
