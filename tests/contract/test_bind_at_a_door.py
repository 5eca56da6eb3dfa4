"""`klutchctl bind` and `kubectl-bind` at a real front door of `klutch-bind`, in each way."""

import base64
import html
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import pytest
import yaml

from klutchctl.binding.checkup import examined
from klutchctl.sandbox import processes
from reconciler import api
from reconciler.core import keys, refs
from reconciler.core.manifest import annotations_of, get_text, name_of
from reconciler.core.refs import Ref
from reconciler.doctor.diagnosis import Level
from tests.support.clusters import LiveCluster
from tests.support.doors import BIND, BindDoor, opened
from tests.support.fleet_texts import cluster, control_plane, document, one_file
from tests.support.issuer import CLI, MACHINE, WEB, FakeProvider, issuing
from tests.support.original_provider import Ended
from tests.support.programs import klutchctl_beside

SECRETS_OF = (WEB.secret, MACHINE.secret)


@dataclass
class Door(BindDoor):
    """A door whose provider signs in at once."""

    issuer: FakeProvider

    async def after_others(self, url: str) -> list[int]:
        """Sign in as usual, once others have called the port of the CLI."""
        port = dict(parse_qsl(urlsplit(url).query))["p"]
        async with aiohttp.ClientSession() as other:
            for query in ("code=theirs&state=x", "response=e30%3D", "error=access_denied"):
                async with other.get(f"http://localhost:{port}/callback?{query}") as answer:
                    assert answer.status == 400
        return await self.consented(url)

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
    (port,) = processes.free_ports(1)
    url = f"http://127.0.0.1:{port}"
    issuer.audience = url
    (folder / "client-secret").write_text(WEB.secret)
    flags = (
        f"--oidc-issuer-url={issuer.issuer}",
        f"--oidc-issuer-client-id={WEB.id}",
        f"--oidc-client-secret-file={folder / 'client-secret'}",
        f"--oidc-callback-url={url}/callback",
        f"--cli-client-id={CLI.id}",
        f"--listen-address=127.0.0.1:{port}",
        "--authorization=Authenticated",
    )
    made = partial(Door, issuer=issuer)
    async with opened(
        made, control_plane, app_cluster, url=url, folder=folder, flags=flags
    ) as opened_door:
        yield opened_door


@pytest.fixture(autouse=True)
async def unbound(door: Door) -> Any:
    door.issuer.sign_in_as("alice", groups=["team-a"])
    yield
    await door.unbound()


def leaks(door: Door, end: Ended, *more: str) -> list[str]:
    """Return the secrets that are in what was printed, logged, or left in a file at home."""
    files = [one for one in door.home.rglob("*") if one.is_file() and one.name != "client-secret"]
    printed = end.stdout + end.stderr + "".join(one.read_text("latin-1") for one in files)
    assert {door.replica.log, door.replica.out} <= {*files}
    return [one for one in (*SECRETS_OF, *door.issuer.proofs, *more) if one and one in printed]


async def token_in(door: Door) -> str:
    """Return the token of the space, from the Secret that the binding names."""
    name = get_text(await door.binding(), "spec", "kubeconfigSecretRef", "name")
    secret = await door.app.cluster.get(Ref(door.app.name, refs.SECRET, BIND, name))
    content = yaml.safe_load(base64.b64decode(get_text(secret, "data", "kubeconfig")))
    return get_text(content, "users", 0, "user", "token")


async def test_what_a_person_agrees_to_on_the_page_is_asked_once_more_here(door):
    done = await door.run("--no-wait", visit=door.after_others, answers="y\n")
    assert done.code == 0, done.stderr
    assert done.pages == (303, 200)
    assert await door.states() == ["Accepted", "Rejected"]
    assert done.stdout.count("Do you accept") == 1
    assert leaks(door, done, await token_in(door)) == []
    [space] = await door.spaces()
    again = await door.run("--no-wait")
    assert again.code == 0, again.stderr
    assert "there already" in again.stderr
    assert await door.spaces() == [space]


async def test_a_page_accepts_nothing_against_flags_or_without_an_answer(door):
    """S2: the page is the door's, and so is what it says of a person."""
    everything = partial(door.consented, chosen=("0", "1"))
    for flags, answers in ((["--claims", "none"], ""), ([], "no\n"), ([], "")):
        ended = await door.run("--no-wait", *flags, visit=everything, answers=answers)
        assert ended.code == 6, ended.stderr
    assert await door.binding() is None
    done = await door.run("--no-wait", "--claims", "required", visit=everything)
    assert done.code == 0, done.stderr
    assert await door.states() == ["Accepted", "Rejected"]


async def test_the_original_way_works_with_kubectl_bind(door):
    """Without a page's consent the CLI asks; both answers are piped at once."""
    done = await door.run(program="kubectl-bind", visit=door.simply, answers="y\ny\n")
    assert done.code == 0, done.stderr
    assert await door.states() == ["Accepted", "Accepted"]
    assert leaks(door, done, await token_in(door)) == []


async def test_a_person_signs_in_by_device_code(door):
    door.issuer.lies.id_token["aud"] = [CLI.id, door.url]  # as an audience mapper has it
    try:
        done = await door.run("--device-code", "--claims", "required", "--no-wait")
    finally:
        door.issuer.lies.id_token.clear()
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


async def test_a_credential_goes_to_the_identity_provider_that_was_said_alone(door, tmp_path):
    """A door that lies names one of its own, for the secret that is good elsewhere."""
    secret = tmp_path / "secret"
    secret.write_text(MACHINE.secret)
    machine = ["--client-id", MACHINE.id, "--client-secret-file", str(secret), "--claims", "all"]
    exchange = ["--client-id", CLI.id, "--identity", f"file:{secret}", "--exchange"]
    mark, requests = door.app.audit.mark(), door.issuer.requests
    asked = (requests["token"], requests["device"])
    for way in (machine, exchange, ["--device-code"]):
        refused = await door.run(*way, "--issuer", "https://id.example.org")
        assert refused.code == 3, refused.stderr
        assert door.issuer.issuer in refused.stderr
        assert "not https://id.example.org" in refused.stderr
    assert (requests["token"], requests["device"]) == asked
    assert door.app.audit.writes_since(mark) == []
    done = await door.run(*machine, "--issuer", door.issuer.issuer, "--no-wait")
    assert done.code == 0, done.stderr


async def test_a_token_that_is_good_at_another_door_is_not_given_to_this_one(door, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(MACHINE.secret)
    machine = ["--client-id", MACHINE.id, "--client-secret-file", str(secret)]
    honest = "https://bind.example.net"
    door.issuer.lies.id_token["aud"] = [CLI.id, honest]
    door.issuer.lies.access_token["aud"] = honest
    mark = door.app.audit.mark()
    try:
        for way in (machine, ["--device-code"]):
            refused = await door.run(*way, "--claims", "all")
            assert refused.code == 4, refused.stderr
            assert f"is not for {door.url}, so it was not sent there" in refused.stderr
    finally:
        door.issuer.lies.id_token.clear()
        door.issuer.lies.access_token.clear()
    assert door.app.audit.writes_since(mark, namespace=BIND) == []


async def test_a_dry_run_writes_on_neither_side(door):
    good = {"TOKEN": door.issuer.bearer(sub="nobody-before")}
    async with door.nothing_written():
        done = await door.run("--identity", "env:TOKEN", "--dry-run", "-o", "json", environ=good)
        door.issuer.sign_in_as("nobody-before-either")
        browser = await door.run("--dry-run", visit=door.simply)
    assert (done.code, browser.code) == (0, 0), done.stderr + browser.stderr
    names = [json.loads(done.stdout), yaml.safe_load(browser.stdout)]
    assert [name_of(one) for one in names] == [door.offer.name] * 2
    owners = [annotations_of(one)[keys.IDENTITY] for one in await door.spaces()]
    assert not [one for one in owners if one.startswith("nobody-before")]


async def test_a_file_for_a_fleet_is_valid_and_its_plan_is_that_unit_alone(door, tmp_path):
    fleet = document("Fleet", "acme", "{include: [{glob: 'bindings/*.yaml', optional: true}]}")
    plane, shop = control_plane(at=door.plane.context), cluster(at=door.app.context)
    (tmp_path / "fleet.yaml").write_text(one_file(fleet, plane, shop))
    (tmp_path / "bindings").mkdir()
    file = tmp_path / "bindings/databases.yaml"
    wanted = ("--claims", "required", "--write", str(file), "--cluster", "shop")
    robot = {"TOKEN": door.issuer.bearer(sub="writes-a-file")}
    async with door.nothing_written():
        done = await door.run("--identity", "env:TOKEN", *wanted, environ=robot)
    assert done.code == 0, done.stderr

    checked = await klutchctl_beside("validate", str(tmp_path))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    found = await klutchctl_beside(
        "--kubeconfig", str(door.plane.kubeconfig), "plan", str(tmp_path), "-o", "json"
    )
    plan = json.loads(found.stdout)
    changes, unit = plan["changes"], {"cluster": "shop", **door.offer.resource.wire}
    lines = [(one["action"], one["ref"]["kind"]) for one in changes if "unit" in one]
    assert all(one["unit"] == unit for one in changes if "unit" in one)
    assert lines == [("create", "APIServiceExportRequest"), ("create", "APIServiceBinding")]
    # What else there is to do makes the way of this unit: its space, and the kubeconfig to that.
    places = {one["ref"].get("namespace") or one["ref"]["name"] for one in changes}
    assert places <= {changes[-2]["ref"]["namespace"], BIND, api.API_SERVICE_BINDING.resource}
    assert {one["action"] for one in changes} <= {"create", "noop"}
    claims = changes[-1]["after"]["spec"]["permissionClaims"]
    states = {claim["resource"]: claim["state"] for claim in claims}
    assert states == {"configmaps": "Rejected", "secrets": "Accepted"}


async def test_the_doctor_finds_the_door_well(door):
    found = await examined(door.url, ca_file=None, now=lambda: datetime.now(UTC))
    assert [one.kind for one in found] == ["front door", "identity provider"]
    lacks = [fact.check for one in found for fact in one.findings if fact.level is not Level.OK]
    assert lacks == ["konnector"]


async def test_a_proxy_that_nobody_named_makes_the_door_not_ready(door):
    """S17; the last one here, since that lasts."""
    assert (await door.replica.ask("/readyz"))[0] == 200
    async with aiohttp.ClientSession() as other:
        headers = {"X-Forwarded-For": "198.51.100.1"}
        async with other.get(f"{door.url}/healthz", headers=headers) as answer:
            assert answer.status == 200
    status, text = await door.replica.ask("/readyz")
    assert status == 503
    assert "127.0.0.1 sends X-Forwarded-For, and --trusted-proxies does not name it" in text
