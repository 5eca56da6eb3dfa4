"""`klutchctl bind` and `kubectl-bind` at a real front door of `klutch-bind`, in each way."""

import asyncio
import base64
import html
import json
import os
import re
import secrets
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from klutchctl.binding.checkup.visit import examined
from klutchctl.sandbox import processes
from reconciler import api
from reconciler.blueprints.objects import namespace as namespace_of
from reconciler.core import keys, names, refs
from reconciler.core.manifest import Manifest, annotations_of, get_text, name_of
from reconciler.doctor.diagnosis import Level
from tests.support import original_provider, removal
from tests.support.bound_scenes import read, remove
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.issuer import CLI, MACHINE, WEB, FakeProvider, issuing
from tests.support.offers import CREDENTIALS, Offer, offered
from tests.support.original_provider import Ended
from tests.support.replicas import Replica, replicas
from tests.support.watching import fetch

BIND = names.KLUTCH_NAMESPACE
CLAIMS: list[Manifest] = [
    CREDENTIALS,
    {**CREDENTIALS, "resource": "configmaps", "required": False, "selector": {"owner": "Consumer"}},
]
SECRETS_OF = (WEB.secret, MACHINE.secret)


@dataclass
class Door:
    """A door with one offer, its provider, and the app cluster that is to be bound."""

    url: str
    replica: Replica
    issuer: FakeProvider
    app: LiveCluster
    plane: LiveCluster
    offer: Offer
    home: Path

    async def run(self, *arguments: str, program: str = "klutchctl", **more: Any) -> Ended:
        module = {"klutchctl": "klutchctl.entry", "kubectl-bind": "klutchctl.kubectl_bind"}[program]
        start = [sys.executable, "-c", f"from {module} import main; main()"]
        if program == "klutchctl":
            start.append("bind")
        where = ["--kubeconfig", str(self.app.kubeconfig), "--context", self.app.context]
        environ = {**os.environ, "HOME": str(self.home), **more.pop("environ", {})}
        for name in ("DISPLAY", "BROWSER", "WAYLAND_DISPLAY"):
            environ.pop(name, None)
        usual = {"environ": environ, "visit": self.consented, **more}
        return await original_provider.run(
            *start, self.url, *arguments, *where, "--skip-konnector", **usual
        )

    async def consented(self, url: str, *, chosen: tuple[str, ...] = ("0",)) -> list[int]:
        """Sign in, choose the offer and accept claims, as a person does on the pages."""
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as browser:
            async with browser.get(url) as answer:
                page = await answer.text()
            link = re.search(r'href="(/consent\?[^"]*)"', page)
            assert link is not None, page
            place = html.unescape(link[1])
            async with browser.get(f"{self.url}{place}") as answer:
                page = await answer.text()
            token = re.search(r'name="csrf" value="([^"]*)"', page)
            assert token is not None, page
            form = [("csrf", html.unescape(token[1])), *(("claim", one) for one in chosen)]
            headers = {"Origin": self.url}
            target = f"{self.url}{place}"
            async with browser.post(target, data=form, headers=headers) as answer:
                return [*(one.status for one in answer.history), answer.status]

    async def simply(self, url: str) -> list[int]:
        """Sign in and follow the offer's link, as the walk of the original does."""
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(
            cookie_jar=jar, max_line_size=1 << 17, max_field_size=1 << 17
        ) as browser:
            async with browser.get(url) as answer:
                page = await answer.text()
            link = re.search(r'href="(/(?:bind|consent)\?[^"]*)"', page)
            assert link is not None, page
            place = html.unescape(link[1]).replace("/consent", "/bind")
            async with browser.get(f"{self.url}{place}") as answer:
                return [*(one.status for one in answer.history), answer.status]

    async def binding(self) -> Any:
        return await read(self.app, api.API_SERVICE_BINDING, BIND, self.offer.name)

    async def states(self) -> list[str]:
        claims = (await self.binding())["spec"]["permissionClaims"]
        return [claim["state"] for claim in claims]

    async def spaces(self) -> list[Any]:
        listed = (await self.plane.cluster.list(refs.NAMESPACE)).items
        return [one for one in listed if keys.IDENTITY in annotations_of(one)
                and name_of(one).startswith(self.prefix)]  # fmt: skip

    @property
    def prefix(self) -> str:
        return f"bind-{self.offer.group.partition('.')[0][:8]}-"

    async def unbound(self) -> None:
        """Take away what was made in the app cluster."""
        await remove(self.app, api.API_SERVICE_BINDING, BIND, self.offer.name)
        for one in (await self.app.cluster.list(refs.SECRET, namespace=BIND)).items:
            if name_of(one).startswith("kubeconfig-"):
                await remove(self.app, refs.SECRET, BIND, name_of(one))


@pytest.fixture(scope="module")
def issuer():
    with issuing() as provider:
        provider.interval = 1
        yield provider


@pytest.fixture(scope="module")
async def door(
    control_plane: LiveCluster, app_cluster: LiveCluster, issuer: Any, tmp_path_factory: Any
) -> Any:
    folder = tmp_path_factory.mktemp("door")
    namespace, (port,) = f"test-bind-{secrets.token_hex(4)}", processes.free_ports(1)
    url = f"http://127.0.0.1:{port}"
    issuer.audience = url
    plane = control_plane.cluster
    await plane.create(namespace_of(namespace), refs.NAMESPACE, manager="tests")
    (folder / "client-secret").write_text(WEB.secret)
    command = (sys.executable, "-m", "bind")
    async with (
        offered(plane, app_cluster.cluster, namespace=namespace, claims=CLAIMS) as offer,
        replicas(control_plane, namespace, folder, command=command) as started,
    ):
        made = Door(url, None, issuer, app_cluster, control_plane, offer, folder)  # type: ignore[arg-type]
        made.replica = await started.start(
            f"--oidc-issuer-url={issuer.issuer}",
            f"--oidc-issuer-client-id={WEB.id}",
            f"--oidc-client-secret-file={folder / 'client-secret'}",
            f"--oidc-callback-url={url}/callback",
            f"--cli-client-id={CLI.id}",
            f"--namespace-prefix={made.prefix}",
            f"--template-namespace={namespace}",
            f"--listen-address=127.0.0.1:{port}",
            "--authorization=Authenticated",
        )
        await eventually(lambda: _serves(made))
        yield made
        await made.unbound()
        for space in await made.spaces():
            await removal.remove_manifest(plane, refs.NAMESPACE, space)
    await remove(control_plane, refs.NAMESPACE, "", namespace)


async def _serves(door: Door) -> bool:
    assert door.replica.process.returncode is None, door.replica.log.read_text()
    try:
        status, _ = await asyncio.to_thread(fetch, f"{door.url}/healthz")
    except OSError:
        return False
    return status == 200 and (await door.replica.ask("/readyz"))[0] == 200


@pytest.fixture(autouse=True)
async def unbound(door: Door) -> Any:
    door.issuer.sign_in_as("alice", groups=["team-a"])
    yield
    await door.unbound()


def leaks(door: Door, end: Ended, *more: str) -> list[str]:
    """Return the secrets that are in what was printed or logged."""
    printed = end.stdout + end.stderr + door.replica.log.read_text() + door.replica.out.read_text()
    return [one for one in (*SECRETS_OF, *more) if one and one in printed]


async def token_in(door: Door) -> str:
    """Return the token of the space, from the one Secret that holds it."""
    found = (await door.app.cluster.list(refs.SECRET, namespace=BIND)).items
    [secret] = [one for one in found if name_of(one).startswith("kubeconfig-")]
    content = yaml.safe_load(base64.b64decode(get_text(secret, "data", "kubeconfig")))
    return get_text(content, "users", 0, "user", "token")


async def test_a_person_agrees_on_the_page_and_is_not_asked_again(door):
    done = await door.run("--no-wait")
    assert done.code == 0, done.stderr
    assert done.pages == (303, 200)
    assert await door.states() == ["Accepted", "Rejected"]
    assert "Do you accept" not in done.stdout
    assert leaks(door, done, await token_in(door)) == []
    [space] = await door.spaces()
    again = await door.run("--no-wait")
    assert again.code == 0, again.stderr
    assert "there already" in again.stderr
    assert await door.spaces() == [space]


async def test_the_original_way_works_with_kubectl_bind(door):
    """Without a page's consent the CLI asks; both answers are piped at once."""
    done = await door.run(program="kubectl-bind", visit=door.simply, answers="y\ny\n")
    assert done.code == 0, done.stderr
    assert await door.states() == ["Accepted", "Accepted"]
    assert leaks(door, done, await token_in(door)) == []


async def test_a_person_signs_in_by_device_code(door):
    done = await door.run("--device-code", "--claims", "required", "--no-wait")
    assert done.code == 0, done.stderr
    assert "and enter the code" in done.stderr
    assert "claims on configmaps are rejected; --accept accepts them" in done.stderr
    assert await door.states() == ["Accepted", "Rejected"]


async def test_a_machine_binds_with_its_secret_and_with_a_token(door, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(MACHINE.secret)
    machine = ["--client-id", MACHINE.id, "--client-secret-file", str(secret)]
    done = await door.run(*machine, "--claims", "all", "--no-wait")
    assert done.code == 0, done.stderr
    assert await door.states() == ["Accepted", "Accepted"]
    assert leaks(door, done, await token_in(door)) == []
    await door.unbound()
    token = door.issuer.bearer(sub="robot")
    env = {"TOKEN": token}
    arguments = ["--identity", "env:TOKEN", "--resource", door.offer.name, "--claims", "all"]
    done = await door.run(*arguments, "--no-wait", environ=env)
    assert done.code == 0, done.stderr
    assert leaks(door, done, token) == []


async def test_who_is_not_known_is_denied_and_nothing_is_written(door, tmp_path):
    mark = door.app.audit.mark()
    secret = tmp_path / "secret"
    secret.write_text("wrong")
    machine = ["--client-id", MACHINE.id, "--client-secret-file", str(secret)]
    denied = await door.run(*machine, "--claims", "all")
    assert denied.code == 4, denied.stderr
    bad = {"TOKEN": door.issuer.bearer(aud="another")}
    denied = await door.run("--identity", "env:TOKEN", "--claims", "all", environ=bad)
    assert denied.code == 4, denied.stderr
    good = {"TOKEN": door.issuer.bearer(sub="robot")}
    unknown = ["--identity", "env:TOKEN", "--resource", "nothing.example.org", "--claims", "all"]
    wrong = await door.run(*unknown, environ=good)
    assert wrong.code == 3, wrong.stderr
    assert door.app.audit.writes_since(mark, namespace=BIND) == []


async def test_a_dry_run_writes_on_neither_side(door):
    marks = (door.app.audit.mark(), door.plane.audit.mark())
    good = {"TOKEN": door.issuer.bearer(sub="nobody-before")}
    done = await door.run("--identity", "env:TOKEN", "--dry-run", "-o", "json", environ=good)
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["metadata"]["name"] == door.offer.name
    browser = await door.run("--dry-run", visit=door.simply)
    assert browser.code == 0, browser.stderr
    assert door.app.audit.writes_since(marks[0], namespace=BIND) == []
    written = door.plane.audit.writes_since(marks[1])
    spaces = {name_of(one) for one in await door.spaces()}
    assert not [one for one in written if one.resource == "namespaces" and one.name not in spaces]
    owners = [annotations_of(one)[keys.IDENTITY] for one in await door.spaces()]
    assert not [one for one in owners if one.startswith("nobody-before")]


async def test_the_doctor_finds_the_door_well(door):
    found = await examined(door.url, ca_file=None, now=lambda: datetime.now(UTC))
    assert [one.kind for one in found] == ["front door", "identity provider"]
    lacks = [fact.check for one in found for fact in one.facts if fact.level is not Level.OK]
    assert lacks == ["konnector"]
