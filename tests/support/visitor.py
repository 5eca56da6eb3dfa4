"""A person at a front door whose people are in a sandbox's Keycloak: `$BROWSER` of a test.

`python -m tests.support.visitor SANDBOX URL` signs in as alice, and agrees to all that is asked.
"""

import asyncio
import html
import os
import re
import sys

import aiohttp
from yarl import URL

from klutchctl.sandbox import lifecycle
from klutchctl.sandbox.addons.realm import Purpose
from klutchctl.sandbox.state import layout_of
from klutchctl.settings import Settings
from tests.support.keycloak import Keycloak, signs_in


async def visit(keycloak: Keycloak, url: str) -> None:
    """Open what a CLI prints, sign in, and end where the CLI waits."""
    door = URL(keycloak.door)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get(url, allow_redirects=False) as begun:
            assert begun.status == 302, await begun.text()
            asked = begun.headers["Location"]
        back = await signs_in(keycloak, asked, "alice", Purpose.ALICE)
        async with browser.get(URL(back, encoded=True)) as answer:
            place, page = answer.url, await answer.text()
        token = re.search(r'name="csrf" value="([^"]*)"', page)
        assert place.path == "/consent", page
        assert token is not None, page
        claims = [("claim", one) for one in re.findall(r'name="claim"[^>]*value="(\d+)"', page)]
        form = [("csrf", html.unescape(token[1])), *claims]
        headers = {"Origin": str(door.origin())}
        async with browser.post(place, data=form, headers=headers) as end:
            assert end.status == 200, await end.text()


def main() -> None:
    """Be that person."""
    name, url = sys.argv[1:]
    layout = layout_of(name, state_home=Settings(os.environ).state_home)
    state = lifecycle.load(layout)
    assert state is not None
    assert state.keycloak is not None
    asyncio.run(visit(Keycloak(layout, state.keycloak), url))


if __name__ == "__main__":
    main()
