"""The front door while rights come and go, and while its replicas are killed at their writes.

Of `make soak`. In the usual run `tests/contract/test_door_spaces.py` has a clock that jumps, and in
`tests/model/test_door_spaces.py` replicas die after every write.
"""

import asyncio
import secrets
import signal

import aiohttp
import pytest
import yaml

from reconciler.blueprints.objects import build
from reconciler.core import refs
from reconciler.core.refs import Ref
from tests.support import removal
from tests.support.browsers import Cli
from tests.support.cues import AFTER, Cue
from tests.support.door_spaces import COMPLETE, inside
from tests.support.doors import TEAM, wire
from tests.support.eventually import eventually
from tests.support.issuer import bearer
from tests.support.konnector_ways import fronting
from tests.support.offers import MANAGER
from tests.support.programs import Killing

pytestmark = pytest.mark.soak

# Namespace, ClusterBinding, ServiceAccount, its token, the kubeconfig.
MADE = 5
CREATES = r"/(namespaces|clusterbindings|serviceaccounts|secrets)$"


async def test_a_right_counts_within_fifteen_seconds(backend, door, provider, offer):
    late = f"late-{secrets.token_hex(4)}"
    provider.sign_in_as(f"user-{late}", groups=[late])
    cli, browser = Cli(), backend.client()
    assert (await browser.signed_in(door.port, cli)).status == 302

    async def answers(status):
        await asyncio.sleep(0.5)  # more often is refused
        return (await browser.binds(door.port, cli, wire(offer))).status == status

    async with backend.nothing_written():
        assert await answers(403)
    group = {"apiGroup": refs.ROLE.group, "kind": "Group", "name": f"oidc:{late}"}
    to = {"apiGroup": refs.ROLE.group, "kind": "Role", "name": TEAM}
    place, cluster = backend.namespace, backend.plane.cluster
    made = build(refs.ROLE_BINDING, late, namespace=place, roleRef=to, subjects=[group])
    await cluster.create(made, refs.ROLE_BINDING, manager=MANAGER)
    await eventually(lambda: answers(302), within=15)
    await removal.remove(cluster, Ref(cluster.name, refs.ROLE_BINDING, place, late))
    await eventually(lambda: answers(403), within=15)
    backend.resting = False


async def test_the_next_replica_completes_what_a_killed_one_began(
    backend, door, provider, offer, tmp_path
):
    cli, deaths, killing = Cli(), 0, Killing(where=CREATES)
    wish = {"clusterID": cli.c, "resources": [wire(offer)], "dryRun": False}
    said = {"Authorization": f"Bearer {bearer(provider, sub=provider.user.subject)}"}

    async def asked(port):
        return await backend.client().post(port, "/api/v1/bind", document=wish, **said)

    async with fronting(backend.plane) as proxy:
        proxy.add(Cue(killing.matches), killing, at=AFTER)
        led = yaml.safe_load((backend.processes.folder / "replica-0.yaml").read_text())
        own, led["clusters"][0]["cluster"]["server"] = backend.plane.connection.server, proxy.url
        kubeconfig = tmp_path / "led.yaml"
        kubeconfig.write_text(yaml.safe_dump(led))
        while True:
            doomed = await backend.start(f"--kubeconfig={kubeconfig}", f"--external-address={own}")
            killing.process, killing.written = doomed.replica, 0
            try:
                reply = await asked(doomed.port)
                break
            except aiohttp.ClientError:
                assert await doomed.replica.ended() == -signal.SIGKILL
                killing.process, deaths = None, deaths + 1
    assert (reply.status, deaths) == (200, MADE), reply.body
    (space,) = await backend.spaces(provider.user.subject)
    assert await inside(backend.plane.cluster, space) == COMPLETE
    assert (await asked(door.port)).document["kubeconfig"] == reply.document["kubeconfig"]
    backend.resting = False
