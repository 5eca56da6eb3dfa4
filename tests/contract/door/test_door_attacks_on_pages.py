"""Attacks on the pages for people and on connections (front-door.md 9), on the real program.

Nothing that was refused has written: the API server's audit log proves it.
"""

import re

import pytest

from reconciler.api import API_SERVICE_EXPORT_TEMPLATE
from reconciler.core.manifest import name_of
from reconciler.core.refs import Ref
from tests.support.browsers import PUBLIC
from tests.support.doors import wire
from tests.support.eventually import eventually
from tests.support.issuer import bearer
from tests.support.offers import MANAGER

COOKIE = "__Host-klutch-ui"
ELSEWHERE = "https://evil.example"
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>\u202egnp.exe{{7*7}}'
LONG = HOSTILE + "x" * 10_000


async def looks_around(backend, door):
    """Return a browser that signed in without a CLI."""
    browser = backend.client()
    reply = await browser.get(door.port, "/ui/sign-in")
    back = await browser.agreed(reply.location)
    assert (await browser.get(door.port, "/callback", back)).location == "/ui/catalogue"
    return browser


@pytest.fixture
async def visitor(backend, door, provider):
    return await looks_around(backend, door)


@pytest.fixture
async def template(control_plane, backend, offer):
    kind = API_SERVICE_EXPORT_TEMPLATE
    listed = (await control_plane.cluster.list(kind, namespace=backend.namespace)).items
    (name,) = [
        name_of(one) for one in listed if one["spec"]["APIServiceSelector"]["group"] == offer.group
    ]
    return Ref(control_plane.name, kind, backend.namespace, name)


def forms(page):
    """Return the token of each form of a page, by its action."""
    found = re.findall(
        r'<form[^>]*action="([^"]+)"[^>]*>\s*<input[^>]*name="csrf" value="(\w+)"', page
    )
    return dict(found)


@pytest.fixture
async def pages(door, visitor, template):
    """The two forms, each with its token: to sign out, and of an offer."""
    path = f"/ui/offers/{template.namespace}/{template.name}"
    found = forms((await visitor.get(door.port, path)).text)
    assert found.keys() == {path, "/ui/sign-out"}
    return found


class TestForms:
    @pytest.mark.parametrize("origin", [ELSEWHERE, "null", f"{PUBLIC}.evil.example", "", None])
    async def test_of_another_site(self, backend, door, visitor, pages, origin):
        headers, before = {} if origin is None else {"Origin": origin}, dict(visitor.cookies)
        async with backend.nothing_written():
            for path, token in pages.items():
                reply = await visitor.post(
                    door.port, path, form={"csrf": token, "claim": "0"}, **headers
                )
                assert (reply.status, reply.location) == (403, "")
        assert visitor.cookies == before

    async def test_without_the_token_of_its_page(self, backend, door, visitor, pages):
        strange = forms((await (await looks_around(backend, door)).get(door.port, "/ui/")).text)
        async with backend.nothing_written():
            for path in pages:
                others = [token for where, token in pages.items() if where != path]
                for token in ("", "x", "é", "0" * 64, *others, *strange.values()):
                    form = {"csrf": token, "claim": "0"}
                    reply = await visitor.post(door.port, path, form=form, Origin=PUBLIC)
                    assert (reply.status, reply.location) == (403, "")

    async def test_of_our_pages(self, backend, door, visitor, pages):
        async with backend.nothing_written():
            for path, token in sorted(pages.items()):  # to sign out comes last
                form = {"csrf": token, "claim": "0"}
                reply = await visitor.post(door.port, path, form=form, Origin=PUBLIC)
                assert reply.status in {200, 303}
        assert COOKIE not in visitor.cookies


class TestSessions:
    async def test_cut(self, door, visitor):
        """As one of another purpose, or too old: tests/unit/bind/door/test_sessions.py."""
        visitor.cookies[COOKIE] = visitor.cookies[COOKIE][:-4]
        for path in ("/ui/catalogue", "/ui/bindings"):
            reply = await visitor.get(door.port, path)
            assert (reply.status, reply.location) == (303, "/ui/")


class TestOthers:
    async def test_bindings_of_others(self, backend, door, provider, visitor, offer):
        """Neither their names nor that they are there; nor where a subject begins like another."""
        own = provider.user.subject
        for subject in (f"{own}#x", f"{own}x", "somebody"):
            wish = {"clusterID": "c-1", "resources": [wire(offer)], "dryRun": False}
            token = f"Bearer {bearer(provider, sub=subject)}"
            client, backend.resting = backend.client(), False
            reply = await client.post(door.port, "/api/v1/bind", document=wish, Authorization=token)
            assert reply.status == 200
            (space,) = await backend.spaces(f"{subject}#c-1")
            assert (await visitor.get(door.port, f"/ui/bindings/{space}")).status == 404
            assert space not in (await visitor.get(door.port, "/ui/bindings")).text


class TestTexts:
    @pytest.fixture
    async def hostile(self, control_plane, template, door, visitor):
        notes = {f"klutchctl.dev/{name}": LONG for name in ("title", "description", "docs-url")}
        await control_plane.cluster.merge_patch(
            template, {"metadata": {"annotations": notes}}, manager=MANAGER
        )

        async def shown():
            return "alert(1)" in (await visitor.get(door.port, "/ui/catalogue")).text

        await eventually(shown)

    async def test_are_text(self, door, visitor, template, hostile):
        offer = f"/ui/offers/{template.namespace}/{template.name}"
        query = {"q": HOSTILE}
        of_ui = ("/ui/catalogue", offer, "/ui/", "/ui/bindings", f"/ui/offers/{HOSTILE}/x")
        for path in (*of_ui, "/resources", f"/{HOSTILE}"):
            target = path.translate({ord(one): f"%{ord(one):02X}" for one in '"<> {}'})
            target = target.replace("\u202e", "%E2%80%AE")
            reply = await visitor.get(door.port, target, query, Accept="text/html")
            assert reply.status in {200, 404}
            for raw in ("<script>alert", "<img src=x", "\u202e", "javascript:", ">49<"):
                assert raw not in reply.text
            assert len(reply.body) < 100_000
            assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
