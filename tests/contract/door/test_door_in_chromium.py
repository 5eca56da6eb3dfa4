"""People before the front door: the real program and browser, without a script or a mouse."""

from collections import deque
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from selenium.webdriver.common.keys import Keys

from reconciler.core.manifest import get_text
from tests.support.browsers import Cli
from tests.support.chromium import chromium, site
from tests.support.doors import wire
from tests.support.offers import CREDENTIALS, offered

OPTIONAL = {
    "group": "",
    "resource": "configmaps",
    "version": "v1",
    "selector": {"owner": "Consumer"},
}


@pytest.fixture(scope="module")
async def claiming(control_plane, backend):
    claims = (CREDENTIALS, OPTIONAL)
    place = {"namespace": backend.namespace, "claims": claims}
    async with offered(control_plane.cluster, **place) as offer:
        yield offer


@pytest.fixture(scope="module")
async def here(backend, claiming):
    """A replica that browsers reach where it listens."""
    return await backend.start("--pretty-name=Shop Inc", reachable=True)


@pytest.fixture(scope="module")
def people():
    """The only browser of this module."""
    with chromium() as made:
        yield made


@pytest.fixture
def screen(people, here, provider):
    """A browser without cookies, whose pages run no script."""
    people.forget()
    people.requested()
    people.scripts(on=False)
    yield people
    assert people.said() == []
    assert {one.partition(":")[0] for one in people.requested()} <= {"127.0.0.1", "localhost"}


@pytest.fixture
def listening():
    """Where a CLI listens, and what it was asked for."""
    asked: deque[str] = deque()

    def answer(path, form):
        asked.append(path)
        return 200, {"Content-Type": "text/plain"}, b"Back to the command line"

    with site(answer) as at:
        yield urlsplit(at).port, asked


def usable(screen):
    """Hold a page against everything that a person may need."""
    screen.scripts(on=True)
    found = screen.violations()
    screen.scripts(on=False)
    assert found == []
    assert screen.said() == []


@pytest.mark.parametrize("accepted", [["secrets"], ["secrets", "configmaps"]])
async def test_a_person_agrees_and_the_cli_gets_that_and_no_more(
    backend, here, claiming, screen, listening, accepted
):
    port, asked = listening
    cli = Cli.ours(port=port)
    names = {"resource": claiming.resource.plural, "group": claiming.group}
    screen.open(f"{here.origin}/authorize?{urlencode({**cli.query, **names})}")
    usable(screen)
    assert cli.c in screen.text()
    assert cli.target in screen.text()
    boxes = screen.driver.find_elements("css selector", "input[name=claim]")
    assert [box.is_selected() for box in boxes] == [False, False]
    for place, kind in enumerate(["secrets", "configmaps"]):
        if kind in accepted:
            screen.tab_to(f"#claim-{place}", Keys.TAB)
            screen.press(Keys.SPACE)
    screen.enter("button#bind")
    assert screen.text() == "Back to the command line"
    assert screen.said() == []
    answer = dict(parse_qsl(urlsplit(asked[0]).query))
    assert (answer["state"], answer["iss"]) == (cli.s, here.origin)
    body = {"code": answer["code"], "code_verifier": cli.verifier}
    redeemed = await backend.client().post(here.port, "/api/v1/redeem", document=body)
    assert redeemed.status == 200, redeemed.text
    states = {get_text(claim, "resource"): claim["state"] for claim in redeemed.document["consent"]}
    assert states == {
        kind: "Accepted" if kind in accepted else "Rejected" for kind in ("secrets", "configmaps")
    }


def test_a_required_claim_is_not_left_out_by_mistake(here, claiming, screen, listening):
    port, asked = listening
    cli = Cli.ours(port=port)
    names = {"resource": claiming.resource.plural, "group": claiming.group}
    screen.open(f"{here.origin}/authorize?{urlencode({**cli.query, **names})}")
    screen.enter("button#bind")
    assert urlsplit(screen.driver.current_url).path == "/consent"
    assert not asked


def test_a_person_looks_around_and_leaves(here, claiming, screen):
    screen.open(f"{here.origin}/")
    usable(screen)
    assert "Shop Inc" in screen.text()
    screen.enter("a#sign-in")
    usable(screen)
    assert screen.driver.current_url == f"{here.origin}/ui/catalogue"
    screen.tab_to("input#q", Keys.TAB)
    screen.press(claiming.group, Keys.ENTER)
    usable(screen)
    assert len(screen.driver.find_elements("css selector", "#offers tbody tr")) == 1
    screen.enter("#offers a")
    usable(screen)
    screen.tab_to("#claim-0", Keys.TAB)
    screen.press(Keys.SPACE)
    screen.enter("button#bind")
    usable(screen)
    assert screen.find("#command").text == (
        f"klutchctl bind {here.origin} --resource {claiming.name} --claims none --accept secrets"
    )
    screen.enter("summary")
    usable(screen)
    assert f"group: {claiming.group}" in screen.find("#fleet").text
    screen.open(f"{here.origin}/ui/bindings")
    usable(screen)
    assert "You bound no service yet" in screen.text()
    screen.enter(".account button")
    usable(screen)
    screen.open(f"{here.origin}/ui/catalogue")
    assert screen.driver.current_url == f"{here.origin}/ui/"
    screen.find("a#sign-in")


async def test_a_person_sees_what_was_bound_and_how_to_end_it(
    backend, here, claiming, screen, listening
):
    port, _ = listening
    cli = Cli(port=port)
    screen.open(f"{here.origin}/authorize?{urlencode(cli.query)}")
    usable(screen)
    screen.tab_to(f"a.{claiming.resource.plural}", Keys.TAB)
    links = screen.driver.find_elements("css selector", f"a.{claiming.resource.plural}")
    (link,) = [one for one in links if claiming.group in (one.get_attribute("href") or "")]
    link.send_keys(Keys.ENTER)
    screen.comes_to("Back to the command line")
    screen.open(f"{here.origin}/ui/sign-in")
    screen.open(f"{here.origin}/ui/bindings")
    usable(screen)
    row = screen.find("#bindings tbody tr").text
    assert cli.c in row
    assert "Waiting for the konnector" in row
    screen.enter("#bindings a")
    usable(screen)
    assert f"Cluster {cli.c}" in screen.text()
    assert (await backend.client().get(here.port, "/ui/bindings")).status == 303


async def test_another_site_frames_no_page_and_binds_nothing(
    backend, here, claiming, provider, screen
):
    """Its links, images and forms come to nothing, though the person is signed in."""
    cli = Cli()
    screen.open(f"{here.origin}/authorize?{urlencode(cli.query)}")
    screen.open(f"{here.origin}/ui/sign-in")
    bind = f"{here.origin}/bind?{urlencode({'s': cli.s, **wire(claiming)})}"
    page = (
        f'<iframe src="{here.origin}/ui/"></iframe><img src="{bind}"><a href="{bind}">Prize</a>'
        f'<form method="post" action="{here.origin}/ui/sign-out"><button>Prize</button></form>'
    )
    with site(lambda path, form: (200, {"Content-Type": "text/html"}, page.encode())) as theirs:
        for lure, seen in (("a", "You may not do that here"), ("button", "Shop Inc")):
            screen.open(theirs.replace("127.0.0.1", "localhost"))
            screen.find(lure).send_keys(Keys.ENTER)
            screen.comes_to(seen)
            assert [one for one in screen.said() if "frame-ancestors 'none'" in one]
    assert await backend.spaces(provider.user.subject) == []
    screen.open(f"{here.origin}/ui/catalogue")
    screen.find("#offers")
