"""`klutchctl plan` and `status` on real clusters, where an object is deeper than any reader."""

import pytest

from reconciler import api
from tests.support import removal
from tests.support.apply_runs import mode, scene
from tests.support.deep_objects import nested, post, typed

__all__ = ["mode", "scene"]


@pytest.mark.parametrize("levels", [280, 1000, 3000])
async def test_a_request_of_any_depth_hides_nothing(scene, levels):
    async with scene.peers() as at_rest:
        await scene.apply("--wait")
        await at_rest()
    resource = f'{{"group":"{scene.offer.group}","resource":"{scene.offer.resource.plural}"}}'
    spec = f'"spec":{{"parameters":{nested(levels)},"resources":[{resource}]}}'
    await removal.remove(scene.plane.cluster, scene.request)
    kind = api.API_SERVICE_EXPORT_REQUEST
    await post(scene.plane, kind, scene.space, typed(kind, spec, name=scene.request.name))
    assert await scene.lines() == []
    done = await scene.klutchctl("status", str(scene.fleet.folder))
    assert (done.code, scene.offer.name in done.stdout) == (0, True), done.stdout + done.stderr
