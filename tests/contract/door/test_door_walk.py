"""The walk of an original CLI's browser, as the captures have it, and of ours over two replicas.

The captures are of the original backend; where ours differs on purpose, a comment says why.
"""

import base64
import json
import re
import signal

import pytest
import yaml

from bind.door.handlers.answers import binding_provider
from bind.door.handlers.answers import text as text_of
from reconciler.blueprints.objects import build
from reconciler.core import keys, names, refs
from reconciler.core.manifest import annotations_of, get_map, get_text
from reconciler.core.refs import Ref
from reconciler.kube.connection import Connection
from reconciler.kube.kubeconfig import from_content
from tests.support import konnector_claims
from tests.support.binding_objects import SECRETS
from tests.support.bound_scenes import BIND, Scene, at_home, says, until
from tests.support.browsers import CALLBACK, PUBLIC, Cli
from tests.support.doors import Door, wire
from tests.support.eventually import eventually
from tests.support.issuer import WEB
from tests.support.konnector_claims import ends
from tests.support.offers import MANAGER, offered
from tests.support.raw import http_session

TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
NO_CACHE = {
    "Cache-Control": "no-cache, no-store, must-revalidate, max-age=0",
    "Expires": "Thu, 01 Jan 1970 00:00:00 UTC",
    "X-Accel-Expires": "0",
}


@pytest.fixture(scope="module")
async def offer(control_plane, app_cluster, backend):
    clusters = (control_plane.cluster, app_cluster.cluster)
    async with offered(*clusters, namespace=backend.namespace) as offer:
        yield offer


@pytest.fixture(scope="module")
async def plain(backend, offer):
    """A replica with the flags of protocol-bind.md B.1 alone."""
    own = {
        "--oidc-issuer-client-secret": WEB.secret,
        "--cookie-signing-key": base64.b64encode(b"k" * 32).decode(),
        "--pretty-name": "Shop Inc",
    }
    return await backend.start_plain(own)


ROUTES = {
    "discovery, but by GET alone": ("POST", "/export", 405, None, None),
    "no HEAD": ("HEAD", "/export", 405, None, None),
    "no slash at the end": ("GET", "/export/", 404, TEXT, None),
    "parameters missing": ("GET", "/authorize", 400, TEXT, "missing redirect_url or session_id"),
    "c missing": ("GET", "/authorize?p=1&s=abc", 400, TEXT, "missing redirect_url or session_id"),
    "neither u nor p": (
        *("GET", "/authorize?s=abc&c=def", 400, TEXT),
        "missing redirect_url or session_id",
    ),
    # F4: the original redirects, and hands the kubeconfig to anybody in the end.
    "u leads elsewhere": (
        *("GET", "/authorize?u=https%3A%2F%2Fevil.example%2Fcb&s=abc&c=def", 400, TEXT),
        None,
    ),
    "no code": ("GET", "/callback", 400, TEXT, None),
    "an error of the provider": (
        *("GET", "/callback?error=access_denied&state=abc", 400, TEXT),
        None,
    ),
    "a state of nobody": ("GET", "/callback?code=abc&state=abc", 400, TEXT, None),
    # F12: the original says 500.
    "no session": (*("GET", "/bind?s=abc&resource=databases&group=shop.example", 401, TEXT), None),
    # The original shows what there is to all the world.
    "cards without a session": ("GET", "/resources?s=abc", 200, "text/html", None),
}


@pytest.mark.parametrize("case", ROUTES)
async def test_a_route_without_a_flow(plain, browser, case):
    method, path, status, content, body = ROUTES[case]
    reply = await browser.send(method, plain.port, path, {})
    assert reply.status == status, reply.body
    if content is not None:
        assert reply.headers["Content-Type"] == content
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
    if body is not None:
        assert reply.text == f"{body}\n"
    if path.startswith(("/bind", "/resources")):
        assert {name: reply.headers[name] for name in NO_CACHE} == NO_CACHE


@pytest.mark.parametrize("path", ["/export", "/"])
async def test_discovery_is_the_captured_document(plain, browser, path):
    reply = await browser.get(plain.port, path)
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/json")
    found = {"authorize_url": "https://bind.example.org/authorize", "pretty_name": "Shop Inc"}
    assert reply.body == text_of(binding_provider(**found))
    assert '"providerPrettyName":"Shop Inc"' in reply.text
    assert reply.headers.get("Vary") == ("Accept" if path == "/" else None)


async def test_a_door_without_pages_has_no_beginning(backend, browser):
    door = await backend.start("--ui=false")
    for accept in ("text/html", "application/json"):
        for path in ("/", "/ui/", "/ui/catalogue", "/assets/door.css"):
            reply = await browser.get(door.port, path, Accept=accept)
            assert (reply.status, reply.headers["Vary"]) == (404, "Accept")
    assert (await browser.get(door.port, "/export")).status == 200


async def test_the_captured_walk(backend, app_cluster, plain, provider, browser, offer):
    provider.sign_in_as(f"{backend.prefix}alice")
    cli = Cli(s="h3Xk9a", c="4ceiSr")
    reply = await browser.get(plain.port, "/authorize", {"c": cli.c, "p": "40123", "s": cli.s})
    assert (reply.status, reply.headers["Content-Type"]) == (302, HTML)
    asked = reply.query
    assert (asked["client_id"], asked["redirect_uri"]) == (WEB.id, CALLBACK)
    assert asked["response_type"] == "code"

    reply = await browser.get(plain.port, "/callback", await browser.agreed(reply.location))
    assert (reply.status, reply.location) == (302, f"/resources?s={cli.s}")
    (cookie,) = [one for one in reply.lines("Set-Cookie") if one.startswith("klutch-bind-")]
    name, _, rest = cookie.partition("=")
    attributes = {one.strip().partition("=")[0] for one in rest.split(";")[1:]}
    assert name == f"klutch-bind-{cli.s}"
    assert {"Path", "HttpOnly"} <= attributes

    reply = await browser.get(plain.port, reply.location)
    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/html")
    assert {name: reply.headers[name] for name in NO_CACHE} == NO_CACHE
    links = re.findall(r'<a href="(/bind\?[^"]*)" class="([^"]*)">', reply.text)
    by_plural = {classes.split()[-1]: href for href, classes in links}
    # As the e2e suite of the original clicks on it: `a.<plural>`.
    href = by_plural[offer.resource.plural]
    assert href == f"/bind?s={cli.s}&resource={offer.resource.plural}&group={offer.group}"

    reply = await browser.get(plain.port, href)
    assert (reply.status, reply.headers["Content-Type"]) == (302, HTML)
    assert {name: reply.headers[name] for name in NO_CACHE} == NO_CACHE
    assert reply.location.startswith(f"{cli.target}?response=")
    response = json.loads(base64.b64decode(reply.query["response"], validate=True))
    assert response["authentication"] == {
        "oauth2CodeGrant": {"sid": cli.s, "id": f"{provider.issuer}/{backend.prefix}alice"}
    }
    way = await _leads_to_a_space(backend, response, f"{backend.prefix}alice#{cli.c}")
    assert (await browser.get(plain.port, href)).query["response"] == reply.query["response"]
    await _serves_the_clis_request(way, response["requests"], offer)
    await _takes_a_claim_and_gives_its_secret(backend, app_cluster, way, response, offer)


async def _leads_to_a_space(backend, response, identity):
    kubeconfig = yaml.safe_load(base64.b64decode(response["kubeconfig"]))
    (context,) = [one["context"] for one in kubeconfig["contexts"]]
    space = context["namespace"]
    plane = backend.plane

    async def at(kind, namespace, name):
        return await plane.cluster.get(Ref(plane.name, kind, namespace, name))

    assert annotations_of(await at(refs.NAMESPACE, "", space))[keys.IDENTITY] == identity
    held = get_map(await at(refs.SECRET, space, names.KUBECONFIG), "data")
    assert list(held) == ["kubeconfig"]
    assert held["kubeconfig"] == response["kubeconfig"]
    token = get_text(await at(refs.SECRET, space, names.BINDER), "data", "token")
    (user,) = kubeconfig["users"]
    assert user["user"] == {"token": base64.b64decode(token).decode()}
    way = from_content(yaml.safe_dump(kubeconfig).encode(), name="the provider")
    assert isinstance(way, Connection)
    return way


async def _serves_the_clis_request(way, requests, offer):
    """Send what the original CLI sends next (14-bind.cli-requests.yaml, 6 and 7)."""
    resource = {**offer.resource.wire, "permissionClaims": [SECRETS]}
    assert requests == [
        {
            "kind": "APIServiceExportRequest",
            "apiVersion": "klutch.anynines.com/v1alpha1",
            "metadata": {"name": offer.name},
            "spec": {"resources": [resource]},
            "status": {},
        }
    ]
    # Go writes what is not there, too.
    body = {**requests[0], "metadata": {"name": offer.name, "creationTimestamp": None}}
    place = (
        f"/apis/klutch.anynines.com/v1alpha1/namespaces/{way.namespace}/apiserviceexportrequests"
    )
    async with http_session(way) as session:
        said = {"Authorization": f"Bearer {way.credential.token.reveal()}"}
        async with session.post(place, json=body, headers=said) as answer:
            assert answer.status == 201, await answer.text()

        async def phase():
            async with session.get(f"{place}/{offer.name}", headers=said) as answer:
                return get_text(await answer.json(), "status", "phase") == "Succeeded"

        await eventually(phase)


async def _takes_a_claim_and_gives_its_secret(backend, app_cluster, way, response, offer):
    """Bind as the CLI does at the end, and have a konnector sync a claim and its Secret."""
    scene = Scene(backend.plane, app_cluster, offer, way.namespace, f"dev-{way.namespace}")
    async with at_home(scene), scene.konnector():
        data = {"kubeconfig": response["kubeconfig"]}
        made = build(refs.SECRET, scene.secret, namespace=BIND, data=data)
        await app_cluster.cluster.create(made, refs.SECRET, manager=MANAGER)
        await scene.bind({**SECRETS, "state": "Accepted"})
        await until(lambda: says(scene.binding(), "Ready"))
        await scene.create_instance(size="1Gi")
        await until(lambda: scene.copy())
        there, here = ends(scene)
        await there.make(refs.SECRET, "credentials", **konnector_claims.data("s3cret"))
        await until(lambda: here.holds(refs.SECRET, "credentials", "s3cret"))


async def _killed(door: Door) -> None:
    door.replica.send(signal.SIGKILL)
    await door.replica.ended()


async def test_each_step_at_a_replica_that_knows_nothing_of_the_one_before(
    backend, provider, browser, offer, door
):
    cli = Cli.ours()
    started = await backend.start()
    back = await browser.agreed(await browser.begun(started.port, cli))
    await _killed(started)
    signed = await backend.start()
    reply = await browser.get(signed.port, "/callback", back)
    assert reply.status == 302, reply.body
    await _killed(signed)
    reply = await browser.binds(door.port, cli, wire(offer))
    assert (reply.status, reply.query["iss"]) == (302, PUBLIC)
    last = await backend.start()
    document = {"code": reply.query["code"], "code_verifier": cli.verifier}
    reply = await browser.post(last.port, "/api/v1/redeem", document=document)
    assert reply.status == 200, reply.body
    assert reply.document["consent"] is None
    assert reply.document["bindingResponse"]["kubeconfig"]
    await _killed(last)


async def test_the_keys_are_renewed_between_two_steps(backend, provider, browser, offer, door):
    """What was sealed with the key before is opened, by a replica that read neither."""
    cli = Cli.ours()
    assert (await browser.signed_in(door.port, cli)).status == 302
    ref = Ref(backend.plane.name, refs.SECRET, backend.namespace, names.DOOR_KEYS)
    long_ago = base64.b64encode(b"2026-01-01T00:00:00Z").decode()
    before = get_text(await backend.plane.cluster.get(ref), "data", "present")
    await backend.plane.cluster.merge_patch(ref, {"data": {"since": long_ago}}, manager=MANAGER)
    fresh = await backend.start()
    reply = await browser.binds(fresh.port, cli, wire(offer))
    assert reply.status == 302, reply.body
    held = get_map(await backend.plane.cluster.get(ref), "data")
    assert held["former"] == before
    assert held["present"] != before
    await _killed(fresh)
