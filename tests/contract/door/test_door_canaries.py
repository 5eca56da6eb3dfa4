"""What proves somebody is in no text of the front door, and in no object but its Secret."""

import base64
import json

import psutil

from reconciler import api
from reconciler.core import refs
from tests.support.browsers import Cli
from tests.support.doors import wire
from tests.support.issuer import WEB, bearer

OBJECTS = (refs.EVENT, refs.SERVICE_ACCOUNT, refs.ROLE_BINDING, api.CLUSTER_BINDING)


async def objects_of(cluster, space):
    """Return what is in a space, but its Secrets, as text."""
    listed = [await cluster.list(kind, namespace=space) for kind in OBJECTS]
    return json.dumps([[*one.items] for one in (*listed, await cluster.list(refs.NAMESPACE))])


async def test_nothing_secret_is_shown(backend, control_plane, door, provider, offer):
    browser, cli = backend.client(), Cli.ours()
    back = await browser.agreed(await browser.begun(door.port, cli, **wire(offer)))
    (login,) = browser.cookies.values()
    await browser.get(door.port, "/callback", back)
    (session,) = browser.cookies.values()
    code = (await browser.binds(door.port, cli, wire(offer))).query["code"]
    wish = {"code": code, "code_verifier": cli.verifier}
    made = await browser.post(door.port, "/api/v1/redeem", document=wish)
    again = await browser.post(door.port, "/api/v1/redeem", document=wish)
    assert (made.status, again.status) == (200, 400)
    token = bearer(provider, sub=provider.user.subject)
    denied = {"Authorization": f"Bearer {token}x"}
    looks = await browser.get(door.port, "/ui/sign-in")
    await browser.get(door.port, "/callback", await browser.agreed(looks.location))
    visit = browser.cookies["__Host-klutch-ui"]
    failed = [
        await browser.get(door.port, "/callback", {**back, "state": "x"}),
        await browser.get(door.port, "/callback", back),
        await browser.get(door.port, "/api/v1/catalogue", **denied),
        await browser.get(door.port, "/bind", {"s": cli.s}, Accept="text/html"),
        again,
    ]
    assert {400, 401} == {reply.status for reply in failed}
    config = base64.b64decode(made.document["bindingResponse"]["kubeconfig"]).decode()
    canaries = {
        "secret": WEB.secret,
        "state": back["state"],
        "our code": code,
        "verifier": cli.verifier,
        "login": login,
        "session": session,
        "visit": visit,
        "bearer": token.rpartition(".")[2],
        "kubeconfig": config.rpartition("token: ")[2].split()[0],
        # Tokens, codes and verifiers between door and provider.
        **{f"proof {place}": one for place, one in enumerate(sorted(provider.proofs))},
    }
    assert len(canaries) >= 9 + 8
    (space,) = await backend.spaces(f"{provider.user.subject}#{cli.c}")
    places = {
        "log": door.replica.log.read_text(),
        "audit": door.replica.out.read_text(),
        "metrics": (await door.replica.ask("/metrics"))[1],
        "objects": await objects_of(control_plane.cluster, space),
        "argv": " ".join(psutil.Process(door.replica.process.pid).cmdline()),
        "errors": "".join(reply.text + str(reply.headers) for reply in failed),
    }
    found = {
        (what, where)
        for what, text in canaries.items()
        for where, shown in places.items()
        if text.rpartition(".")[2] in shown
    }
    assert found == set()
    lines = [line["event"] for line in door.audited(browser)]
    assert {"sign-in", "redeem", "refused-token"} <= set(lines)
