"""`klutchctl doctor URL`: what a provider lacks, at one that lies on cue."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from klutchctl.binding.checkup import examined
from reconciler.doctor.diagnosis import Level
from tests.support import issuer_lies, programs
from tests.support.issuer import issuing
from tests.support.issuer_lies import Lies


@pytest.fixture(scope="module")
def issuers():
    with issuing() as provider:
        yield provider


@pytest.fixture
def issuer(issuers):
    issuers.lies = Lies()
    return issuers


def now():
    return datetime.now(UTC)


async def facts(url, at=now):
    (found,) = await examined(url, ca_file=None, now=at)
    return {(fact.check, fact.level): fact.message for fact in found.findings}


async def test_a_good_provider_has_no_problem(issuer):
    found = await facts(issuer.issuer)
    assert {level for _, level in found} == {Level.OK}
    names = {check for check, _ in found}
    assert names >= {"discovery", "algorithms", "sign-in", "device", "machines", "keys", "clock"}


LACKS = {
    "another issuer": (
        Lies(discovery={"issuer": "https://other.example.org"}),
        "discovery",
        "of issuer",
    ),
    "no S256": (
        Lies(discovery={"code_challenge_methods_supported": ["plain"]}),
        "discovery",
        "S256",
    ),
    "no common algorithm": (
        Lies(discovery={"id_token_signing_alg_values_supported": ["HS256"]}),
        "discovery",
        "signs with none of",
    ),
    "an endpoint without TLS": (
        Lies(discovery={"token_endpoint": "http://idp.example.org/token"}),
        "discovery",
        "not secure",
    ),
    "no such document": (
        Lies(replies={"discovery": issuer_lies.body(b"", status=404)}),
        "discovery",
        "answers 404",
    ),
    "no usable key": (Lies(jwks={"keys": []}), "keys", "none of its keys"),
}


@pytest.mark.parametrize(("lies", "check", "said"), LACKS.values(), ids=LACKS)
async def test_a_problem_is_named(issuer, lies, check, said):
    issuer.lies = lies
    assert said in (await facts(issuer.issuer))[check, Level.PROBLEM]


@pytest.mark.parametrize(
    ("member", "check"),
    [
        ("device_authorization_endpoint", "device"),
        ("authorization_response_iss_parameter_supported", "issuer"),
        ("grant_types_supported", "machines"),
    ],
)
async def test_what_only_some_binds_need_is_a_warning(issuer, member, check):
    issuer.lies = Lies(discovery={member: None})
    found = await facts(issuer.issuer)
    assert (check, Level.WARNING) in found
    assert Level.PROBLEM not in {level for _, level in found}


@pytest.mark.parametrize(
    ("seconds", "level"), [(5, Level.OK), (30, Level.WARNING), (-90, Level.PROBLEM)]
)
async def test_clocks_are_compared(issuer, seconds, level):
    assert ("clock", level) in await facts(
        issuer.issuer, lambda: now() + timedelta(seconds=seconds)
    )


@pytest.fixture
async def site():
    """A door that is served as the test wants: answers by method and path."""
    answers: dict[str, Any] = {}

    async def answer(request):
        found = answers.get(request.path, (404, {}))
        return web.json_response(found[1], status=found[0])

    application = web.Application()
    application.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        grant = {"authenticatedURL": f"{url}/authorize"}
        answers["/export"] = (
            200,
            {
                "kind": "BindingProvider",
                "apiVersion": "v1alpha1",
                "version": "v1.0.0",
                "authenticationMethods": [{"method": "OAuth2CodeGrant", "oauth2CodeGrant": grant}],
            },
        )
        yield url, answers
    finally:
        await runner.cleanup()


def well_known(url, issuer):
    return {
        "kind": "FrontDoor",
        "audience": url,
        "redeemURL": f"{url}/api/v1/redeem",
        "bindURL": f"{url}/api/v1/bind",
        "catalogueURL": f"{url}/api/v1/catalogue",
        "konnectorImage": "konnector:1",
        "device": {"issuer": issuer, "clientID": "klutchctl"},
        "machines": {"issuer": issuer},
    }


async def levels(url):
    found = await examined(url, ca_file=None, now=now)
    return {one.kind: one.level for one in found}, [
        fact.message for one in found for fact in one.findings if fact.level is not Level.OK
    ]


async def test_a_door_is_examined_with_its_provider_once(site, issuer):
    url, answers = site
    answers["/.well-known/klutch-bind"] = 200, well_known(url, issuer.issuer)
    answers |= {"/api/v1/redeem": (405, {}), "/api/v1/bind": (405, {})}
    answers["/api/v1/catalogue"] = 401, {}
    good = {"front door": Level.OK, "identity provider": Level.OK}
    assert await levels(url) == (good, [])
    assert await levels(f"{url}/export") == (good, [])


async def test_a_proxy_that_hides_a_route_is_a_problem(site, issuer):
    url, answers = site
    answers["/.well-known/klutch-bind"] = 200, well_known(url, issuer.issuer)
    answers["/api/v1/redeem"] = 405, {}
    found, said = await levels(url)
    assert found["front door"] is Level.PROBLEM
    assert said == [
        "bindURL /api/v1/bind answers 404",
        "catalogueURL /api/v1/catalogue answers 404",
    ]


async def test_a_door_that_calls_itself_otherwise_is_a_problem(site, issuer):
    url, answers = site
    document = {**well_known(url, issuer.issuer), "audience": "https://bind.example.org"}
    answers["/.well-known/klutch-bind"] = 200, document
    found, (said,) = await levels(url)
    assert found == {"front door": Level.PROBLEM}
    assert "another address" in said


async def test_an_original_backend_is_known(site):
    url, _ = site
    assert (await levels(url))[0] == {"backend": Level.OK}


async def ended(*arguments):
    run = await programs.klutchctl_beside("doctor", *arguments)
    return run.returncode, run.stdout


async def test_exit_codes_and_outputs(issuer):
    status, out = await ended(issuer.issuer)
    assert status == 0
    assert out.startswith(f"Identity provider {issuer.issuer}\n")
    issuer.lies = Lies(jwks={"keys": []})
    status, out = await ended(issuer.issuer, "-o", "json")
    assert status == 6
    (found,) = json.loads(out)["addresses"]
    assert found["level"] == "problem"
    status, out = await ended("http://127.0.0.1:9")
    assert status == 1
    assert "no connection" in out
