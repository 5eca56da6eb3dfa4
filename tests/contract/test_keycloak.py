"""Every grant of the front door at a real Keycloak, as a sandbox has it.

Then `klutchctl bind` in each way at a real door whose provider this Keycloak is. All tests with a
Keycloak are in this file: one worker of a run gets it, and so one Keycloak is started.
"""

import base64
import json
import os
import secrets
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest
import pytest_asyncio
import yaml
from joserfc.jwk import ECKey

from klutchctl.sandbox import processes
from klutchctl.sandbox.addons import keycloak
from klutchctl.sandbox.addons import keycloak as addon
from klutchctl.sandbox.addons.keycloak import Purpose
from reconciler.blueprints.objects import namespace as namespace_of
from reconciler.core import keys
from reconciler.core.manifest import annotations_of, get_text, name_of
from reconciler.core.refs import CRD, NAMESPACE, SECRET
from reconciler.core.secret import Secret
from reconciler.oidc import grants, tokens
from reconciler.oidc.grants import Client
from reconciler.oidc.provider import GrantRefused
from reconciler.oidc.tokens import texts
from reconciler.web.issuer import Issuer
from reconciler.web.outbound import Http
from tests.support.accounts import ROBOT, create_robot, token_of
from tests.support.bound_scenes import Scene, at_home, read, remove, says, until
from tests.support.doors import BIND, BindDoor, opened
from tests.support.keycloak import Keycloak, browsing, federate, signs_in, signs_in_with
from tests.support.konnector import konnector
from tests.support.konnector_claims import data, ends
from tests.support.raw import get_json

# In the usual run, somebody signs in at a Keycloak as README.md shows.
pytestmark = pytest.mark.soak

CLUSTER = "https://kubernetes.default.svc.cluster.local"
CALLBACK = "http://127.0.0.1:29999/callback"
VERIFIER = grants.verifier(bytes(range(32)))


class Visitor:
    """Asks the provider as the door and the CLI do."""

    def __init__(self, keycloak, http):
        self.keycloak = keycloak
        self.http = http
        self.issuer = Issuer(http, keycloak.issuer, now=time.time)

    async def tokens(self, form):
        answer = await self.http.send(form)
        return grants.tokens_of(answer.status, answer.body)

    async def credentials(self, client):
        provider = await self.issuer.provider()
        return await self.tokens(grants.machine_form(provider, client, scopes=(), **proof()))

    async def bearer(self, token):
        """Return the claims of a token, as the door takes it."""
        check = tokens.BearerCheck(self.keycloak.issuer, (self.keycloak.door,), ("RS256",), {})
        return await self.issuer.verified(
            lambda keys: tokens.bearer(token, keys, check, now=time.time())
        )

    async def person(self, found, client, nonce=""):
        check = tokens.IdTokenCheck(
            self.keycloak.issuer, client, nonce, ("RS256",), found.access_token
        )
        assert found.id_token is not None
        return await self.issuer.verified(
            lambda keys: tokens.id_token(found.id_token, keys, check, now=time.time())
        )


def proof():
    return {"now": time.time(), "jti": os.urandom(16)}


@pytest_asyncio.fixture
async def visitor(keycloak):
    async with Http() as http:
        yield Visitor(keycloak, http)


async def test_discovery_announces_what_the_front_door_needs(visitor):
    provider = await visitor.issuer.provider()
    assert provider.issuer == visitor.keycloak.issuer
    assert provider.announces_iss
    assert "RS256" in provider.algorithms
    assert {"client_secret_basic", "private_key_jwt"} <= {*provider.token_auth_methods}
    assert provider.device_authorization_endpoint


async def test_a_person_signs_in_at_the_door_with_pkce(visitor):
    provider = await visitor.issuer.provider()
    url = grants.authorization_url(
        provider,
        client_id=keycloak.DOOR_CLIENT,
        redirect_uri=CALLBACK,
        scopes=("openid", "profile", "email"),
        state="a-state",
        nonce="a-nonce",
        challenge=grants.challenge(VERIFIER),
    )
    end = await signs_in(visitor.keycloak, url, "alice", Purpose.ALICE)
    answer = {name: value for name, (value,) in parse_qs(urlsplit(end).query).items()}
    assert end.startswith(f"{CALLBACK}?")
    assert answer["state"] == "a-state"
    assert grants.callback_problem(provider, iss=answer["iss"]) == ""
    form = grants.code_form(
        provider,
        visitor.keycloak.web,
        code=Secret(answer["code"]),
        redirect_uri=CALLBACK,
        verifier=VERIFIER,
        **proof(),
    )
    claims = await visitor.person(await visitor.tokens(form), keycloak.DOOR_CLIENT, "a-nonce")
    assert claims.raw.get("preferred_username") == "alice"
    assert texts(claims.raw.get("groups")) == ("team-a",)
    with pytest.raises(GrantRefused):  # a code is good once
        await visitor.tokens(form)


async def test_the_id_token_of_a_device_code_names_the_door_beside_its_client(visitor):
    provider, client = await visitor.issuer.provider(), Client(keycloak.CLI_CLIENT)
    asked = grants.device_form(
        provider, client, scopes=("openid",), challenge=grants.challenge(VERIFIER)
    )
    answer = await visitor.http.send(asked)
    code = grants.device_code_of(answer.status, answer.body)
    await signs_in(visitor.keycloak, code.verification_uri_complete, "bob", Purpose.BOB)
    form = grants.device_token_form(
        provider, client, device_code=code.device_code, verifier=VERIFIER, **proof()
    )
    found = await visitor.tokens(form)
    claims = await visitor.person(found, keycloak.CLI_CLIENT)
    assert {*texts(claims.raw.get("aud"))} == {keycloak.CLI_CLIENT, visitor.keycloak.door}
    assert (await visitor.bearer(found.id_token)).subject == visitor.keycloak.subject("bob")


@pytest.mark.parametrize("name", ["machine", "keyed_machine"])
async def test_a_machine_gets_a_token_for_the_door_by_its_own_proof(visitor, name):
    client = getattr(visitor.keycloak, name)
    found = await visitor.credentials(client)
    claims = await visitor.bearer(found.access_token)
    assert claims.raw.get("azp") == client.id


async def test_another_secret_is_refused(visitor):
    with pytest.raises(GrantRefused):
        await visitor.credentials(Client(keycloak.MACHINE, secret=Secret("another")))


def test_no_secret_is_in_its_arguments_or_its_log(keycloak):
    (process,) = processes.observe(keycloak.layout)
    log = Path(keycloak.layout.logs, "keycloak.log").read_text()
    shown = f"{process.arguments} {log}"
    assert not [one for one in Purpose if keycloak.secret(one).reveal() in shown]
    assert psutil.Process(process.pid).memory_info().rss < 900 * 1024 * 1024


@dataclass
class Door(BindDoor):
    """A door at which the people and machines of a Keycloak sign in."""

    keycloak: Keycloak

    def browser(self):
        return browsing(self.keycloak)

    async def signed_in(self, browser, url):
        back = await signs_in_with(browser, self.keycloak, url, "alice", Purpose.ALICE)
        async with browser.get(back) as answer:
            return await answer.text()

    async def elsewhere(self, url):
        """Sign in on another machine, by the page of a device code."""
        await signs_in(self.keycloak, url, "bob", Purpose.BOB)
        return []

    async def binds(self, *arguments, **more):
        """Bind as a machine or by device code, until a konnector has the binding Ready."""
        pinned = (
            ()
            if "--identity" in arguments and "--exchange" not in arguments
            else ("--issuer", self.keycloak.issuer)
        )
        done = await self.run(
            *arguments, "--resource", self.offer.name, "--claims", "all", *pinned, **more
        )
        assert done.code == 0, done.stderr
        assert await says(self.binding(), "Ready")
        assert await self.states() == ["Accepted", "Accepted"]
        printed = done.stdout + done.stderr + self.replica.log.read_text()
        assert not [one for one in Purpose if self.keycloak.secret(one).reveal() in printed]
        return done

    async def unbound(self):
        await super().unbound()
        await remove(self.app, CRD, "", self.offer.name)

    async def owner(self):
        """Return whom the space is made for that the binding leads to."""
        name = get_text(await self.binding(), "spec", "kubeconfigSecretRef", "name")
        secret = await read(self.app, SECRET, BIND, name)
        config = yaml.safe_load(base64.b64decode(get_text(secret, "data", "kubeconfig")))
        namespace = config["contexts"][0]["context"]["namespace"]
        [space] = [one for one in await self.spaces() if name_of(one) == namespace]
        return annotations_of(space)[keys.IDENTITY]


@pytest.fixture(scope="module")
async def cluster_keys(app_cluster):
    """The public keys of the app cluster's ServiceAccounts."""
    return await get_json(app_cluster.connection, "/openid/v1/jwks")


@pytest.fixture(scope="module")
async def door(keycloak, control_plane, app_cluster, cluster_keys, tmp_path_factory):
    folder = tmp_path_factory.mktemp("door")
    (folder / "keys.json").write_text(json.dumps(cluster_keys))
    issuer = {
        "alias": "app-cluster",
        "url": CLUSTER,
        "audiences": [keycloak.door],
        "jwksFile": "keys.json",
    }
    access = {"apiVersion": "bind.klutchctl.dev/v1alpha1", "kind": "Access", "issuers": [issuer]}
    (folder / "access.yaml").write_text(json.dumps(access))
    flags = (
        *addon.door_flags(keycloak.layout, keycloak.ports),
        f"--access-file={folder / 'access.yaml'}",
        "--authorization=Authenticated",
    )
    async with opened(
        partial(Door, keycloak=keycloak),
        control_plane,
        app_cluster,
        url=keycloak.door,
        folder=folder,
        flags=flags,
    ) as opened_door:
        yield opened_door


@pytest.fixture
async def unbound(door):
    async with konnector(door.app.connection):
        yield door
        await door.unbound()


@pytest.fixture(scope="module")
async def account(app_cluster):
    """A ServiceAccount without any rights, as NAMESPACE/NAME."""
    namespace = f"test-machine-{secrets.token_hex(4)}"
    await app_cluster.cluster.create(namespace_of(namespace), NAMESPACE, manager="tests")
    await create_robot(app_cluster.cluster, namespace)
    yield f"{namespace}/{ROBOT}"
    await remove(app_cluster, NAMESPACE, "", namespace)


async def kept(folder, token):
    file = folder / "token"
    file.write_text(token)
    return str(file)


async def test_a_person_binds_by_browser_and_gets_a_claim_and_its_secret(unbound):
    """All of the road: sign-in, consent on the page, Ready by our konnector, a Secret."""
    door = unbound
    mark = secrets.token_hex(4)
    scene = Scene(door.plane, door.app, door.offer, f"none-{mark}", f"dev-{mark}")
    async with at_home(scene):
        done = await door.run()
        assert done.code == 0, done.stderr
        assert await door.states() == ["Accepted", "Rejected"]
        assert await says(door.binding(), "Ready")
        [space] = await door.spaces()
        assert annotations_of(space)[keys.IDENTITY].startswith(f"{door.keycloak.subject('alice')}#")
        scene.space = name_of(space)
        await scene.create_instance(size="1Gi")
        await until(lambda: scene.copy())
        there, here = ends(scene)
        await there.make(SECRET, "credentials", **data("s3cret"))
        await until(lambda: here.holds(SECRET, "credentials", "s3cret"))


async def test_a_person_binds_by_device_code(unbound):
    await unbound.binds("--device-code", visit=unbound.elsewhere, field="user_code")
    assert (await unbound.owner()).startswith(f"{unbound.keycloak.subject('bob')}#")


@pytest.mark.parametrize(
    ("client", "flag", "file"),
    [
        (keycloak.MACHINE, "--client-secret-file", Purpose.MACHINE),
        (keycloak.KEYED_MACHINE, "--client-key-file", addon.KEY_FILE),
    ],
)
async def test_a_machine_binds_by_its_own_proof(unbound, client, flag, file):
    path = str(unbound.keycloak.layout.keycloak / file)
    await unbound.binds("--client-id", client, flag, path)


async def test_a_service_account_binds_as_a_federated_client(
    unbound, account, cluster_keys, tmp_path
):
    [key] = cluster_keys["keys"]
    namespace, _, name = account.partition("/")
    client = await federate(
        unbound.keycloak,
        issuer=CLUSTER,
        key=ECKey.import_key(key).as_pem(private=False).decode(),
        subject=f"system:serviceaccount:{namespace}:{name}",
    )
    token = await token_of(unbound.app.cluster, namespace, name, audience=unbound.keycloak.issuer)
    file = await kept(tmp_path, token)
    done = await unbound.binds("--client-id", client, "--client-assertion-file", file)
    assert token not in done.stdout + done.stderr
    await unbound.unbound()
    elsewhere = await token_of(unbound.app.cluster, namespace, name, audience=unbound.url)
    file = await kept(tmp_path, elsewhere)
    machine = ("--client-id", client, "--client-assertion-file", file, "--claims", "all")
    refused = await unbound.run(*machine)
    assert refused.code == 4, refused.stderr
    assert await unbound.binding() is None


async def test_a_machine_binds_with_the_exchanged_token_of_another(unbound, visitor, tmp_path):
    theirs = await visitor.credentials(visitor.keycloak.keyed_machine)
    file = await kept(tmp_path, theirs.access_token.reveal())
    secret = str(unbound.keycloak.layout.keycloak / Purpose.MACHINE)
    machine = ("--client-id", keycloak.MACHINE, "--client-secret-file", secret)
    await unbound.binds("--identity", f"file:{file}", "--exchange", *machine)
    assert (await unbound.owner()).startswith((await visitor.bearer(theirs.access_token)).subject)


@pytest.mark.parametrize("source", ["file", "kubernetes"])
async def test_a_service_account_binds_at_the_door_itself(unbound, account, tmp_path, source):
    namespace, _, name = account.partition("/")
    place = account
    if source == "file":
        token = await token_of(unbound.app.cluster, namespace, name, audience=unbound.url)
        place = await kept(tmp_path, token)
    await unbound.binds("--identity", f"{source}:{place}")
    expected = f"{CLUSTER}|system:serviceaccount:{namespace}:{name}#"
    assert (await unbound.owner()).startswith(expected)
