"""Attacks on the right to bind, with the kubeconfig of an own space, on the real program (law 5).

Nothing that was refused has been made: the API server's audit log proves it.
"""

import base64
import json
import secrets

import pytest

from reconciler.api import (
    API_SERVICE_EXPORT,
    API_SERVICE_EXPORT_REQUEST,
    API_SERVICE_EXPORT_TEMPLATE,
)
from reconciler.blueprints import objects
from reconciler.blueprints.objects import UNMARKED, build
from reconciler.core import conditions, keys, names, refs
from reconciler.core.errors import Forbidden
from reconciler.core.manifest import get_list, get_maps, get_text
from reconciler.core.refs import Ref
from reconciler.kube.client import KubeCluster
from reconciler.kube.kubeconfig import from_content
from tests.support.browsers import Cli
from tests.support.doors import wire
from tests.support.eventually import eventually
from tests.support.offers import offered

MANAGER = "tests"


@pytest.fixture
async def other_offer(control_plane, backend):
    async with offered(control_plane.cluster, namespace=backend.namespace) as made:
        yield made


@pytest.fixture
def alice(provider):
    """A person in a group of her own, which has no right yet."""
    group = f"team-{secrets.token_hex(4)}"
    provider.sign_in_as(f"alice-{secrets.token_hex(4)}", groups=[group])
    return group


async def allow(backend, group, offer):
    plane, kind = backend.plane.cluster, API_SERVICE_EXPORT_TEMPLATE
    name = f"{group}-{offer.group.partition('.')[0]}"
    template = f"{offer.resource.plural}-{offer.group.partition('.')[0]}"
    rule = {
        "apiGroups": [kind.group],
        "resources": [kind.plural],
        "resourceNames": [template],
        "verbs": ["bind"],
    }
    to = {"apiGroup": refs.ROLE.group, "kind": refs.ROLE.kind, "name": name}
    subject = {"apiGroup": refs.ROLE.group, "kind": "Group", "name": f"oidc:{group}"}
    place = {"namespace": backend.namespace}
    await plane.create(build(refs.ROLE, name, rules=[rule], **place), refs.ROLE, manager=MANAGER)
    binding = build(refs.ROLE_BINDING, name, roleRef=to, subjects=[subject], **place)
    await plane.create(binding, refs.ROLE_BINDING, manager=MANAGER)


async def bind(backend, door, browser, cli, offer):
    """Bind at the door, once the right has come to it, and return the way into the space."""

    async def bound():
        reply = await browser.binds(door.port, cli, wire(offer))
        assert reply.status == 302, reply.body
        return reply

    backend.resting = False
    reply = await eventually(bound)
    response = json.loads(base64.b64decode(reply.query["response"]))
    return from_content(base64.b64decode(response["kubeconfig"]), name="the provider")


async def test_a_kubeconfig_of_a_space_gets_no_other_service_than_was_bound(
    backend, door, browser, alice, offer, other_offer
):
    plane, cli = backend.plane, Cli()
    await allow(backend, alice, offer)
    assert (await browser.signed_in(door.port, cli)).status == 302
    way = await bind(backend, door, browser, cli, offer)
    assert (await browser.binds(door.port, cli, wire(other_offer))).status == 403
    mark = plane.audit.mark()

    async def read(kind, name, namespace=way.namespace):
        return await plane.cluster.get(Ref(plane.name, kind, namespace, name))

    async def answer(asked):
        return conditions.get(await read(API_SERVICE_EXPORT_REQUEST, asked.name), "ExportsReady")

    async def is_withheld():
        said = await answer(other_offer)
        return said is not None and (said.status, said.reason) == ("False", "NotListed")

    async def is_served(asked=other_offer):
        live = await read(API_SERVICE_EXPORT_REQUEST, asked.name)
        return get_text(live, "status", "phase") == "Succeeded"

    async with KubeCluster(way) as held:
        for asked in (other_offer, offer):
            request = objects.export_request(
                way.namespace, asked.resource, parameters={}, marks=UNMARKED
            )
            await held.create(request, API_SERVICE_EXPORT_REQUEST, manager=MANAGER)
        # Nor can it note something itself.
        body = {"metadata": {"annotations": {keys.MAY_BIND: other_offer.name}}}
        own = Ref(plane.name, refs.NAMESPACE, "", way.namespace)
        with pytest.raises(Forbidden):
            await held.merge_patch(own, body, manager=MANAGER)
        await eventually(lambda: is_served(offer))
        await eventually(is_withheld)

    assert "bind it there" in (await answer(other_offer)).message
    assert await read(API_SERVICE_EXPORT, other_offer.name) is None
    tried = plane.audit.writes_since(mark, namespace=way.namespace)
    created = [one for one in tried if (one.verb, one.resource) == ("create", "apiserviceexports")]
    assert len(created) == 1  # of what was bound
    role = await read(refs.CLUSTER_ROLE, names.space_cluster_role(way.namespace), "")
    groups = [get_list(rule, "apiGroups") for rule in get_maps(role, "rules")]
    assert [offer.group] in groups
    assert [other_offer.group] not in groups

    await allow(backend, alice, other_offer)
    assert (await bind(backend, door, browser, cli, other_offer)).namespace == way.namespace
    await eventually(is_served)
    assert await read(API_SERVICE_EXPORT, other_offer.name) is not None
