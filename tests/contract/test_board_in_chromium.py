"""Every page of the board in a real browser: for everybody, following, and without a script."""

import asyncio
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.keys import Keys

from klutchctl.web.board import rendering
from klutchctl.web.board.index import index_of
from klutchctl.web.board.overview import file
from klutchctl.web.board.server import serving
from reconciler.health.verdict import State
from reconciler.watch.loop import States
from tests.support import boards
from tests.support.boards import NOW
from tests.support.outlines import MARKUP

UNIT = "/units/shop-eu-1/postgresqlinstances.anynines.com"
PAGES = (
    "/",
    "/?state=Unknown&q=shop&label=!x&group=control-plane",
    "/clusters/shop-eu-1",
    UNIT,
    "/plan",
    "/history",
    "/clusters/nowhere",
)


class Served:
    """A board on a thread of its own. `put` publishes from here."""

    def __init__(self, state):
        self._state, self._ready = state, threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(30)

    async def _serve(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.states = States(self._state)
        async with serving(("127.0.0.1", 0), self.states, now=lambda: NOW) as (host, port):
            self.origin = f"http://{host}:{port}"
            self._ready.set()
            await self._stop.wait()

    def put(self, state):
        self._loop.call_soon_threadsafe(self.states.put, state)

    def close(self):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@contextmanager
def served(state):
    board = Served(state)
    try:
        yield board
    finally:
        board.close()


@pytest.fixture(scope="module")
def origin():
    with served(boards.troubled()) as board:
        yield board.origin


@pytest.fixture(autouse=True)
def quiet(browser):
    """A line in the console or a breach of the policy fails, but for pages that are missing."""
    browser.said()
    yield
    assert [one for one in browser.said() if "404" not in one] == []


def within(seconds, condition):
    """Wait for a condition, and return how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds
        time.sleep(0.02)
    return time.monotonic() - began


@pytest.mark.parametrize("page", PAGES)
def test_everybody_can_use_it(browser, origin, page):
    browser.requested()
    browser.open(origin + page)
    assert browser.violations() == []
    assert browser.requested() == {urlsplit(origin).netloc}


def test_the_colours_follow_the_scheme(browser, origin):
    found = []
    for scheme in ("light", "dark"):
        browser.look(scheme=scheme, width=1280)
        browser.open(origin)
        found.append(browser.find("body").value_of_css_property("background-color"))
    assert found == ["rgba(251, 251, 249, 1)", "rgba(20, 23, 27, 1)"]


@pytest.mark.parametrize(
    ("page", "reached"),
    [
        ("/", ["input#q", "input#label", "select#group", "#scroll", "tbody td a"]),
        ("/clusters/shop-eu-1", ["tbody th a"]),
        ("/plan", [".plan strong a"]),
    ],
)
def test_the_keyboard_reaches_everything_and_the_focus_is_seen(browser, origin, page, reached):
    browser.look(scheme="light", width=1280)
    browser.open(origin + page)
    for selector in reached:
        browser.tab_to(selector, Keys.TAB)


def test_the_first_stop_skips_to_the_content(browser, origin):
    browser.look(scheme="light", width=1280)
    browser.open(origin)
    browser.press(Keys.TAB)
    skip = browser.driver.switch_to.active_element
    assert (skip.text, skip.rect["y"] >= 0) == ("Skip to the content", True)
    browser.press(Keys.ENTER)
    assert browser.driver.switch_to.active_element == browser.find("main")


def test_names_that_would_be_more_stay_text(browser):
    with served(boards.hostile(MARKUP)) as board:
        for page in ("/", "/clusters/shop", "/plan", "/history"):
            browser.open(board.origin + page)
            assert "<script>" in browser.text()


def broken(state):
    """Return a state in which the first unit of shop-eu-2 is not well any more."""
    found = list(state.board.clusters)
    cluster = found[1]
    unit = cluster.units[0]
    health = replace(unit.health, state=State.DEGRADED, reason="CrdMissing", message="it is gone")
    found[1] = replace(cluster, units=(replace(unit, health=health), *cluster.units[1:]))
    return replace(state, board=replace(state.board, clusters=tuple(found)))


def test_a_break_shows_within_a_second_without_a_reload(browser):
    with served(boards.plain()) as board:
        browser.look(scheme="light", width=1280)
        browser.open(f"{board.origin}/clusters/shop-eu-2")
        within(10, lambda: browser.find("#live-word").is_displayed())
        assert not browser.find("#refresh").is_displayed()
        browser.driver.execute_script("window.mark = 1; document.querySelector('tbody a').focus()")
        focused = browser.driver.switch_to.active_element.text
        board.put(broken(boards.plain()))
        # It takes half a second; the rest is for a busy machine.
        assert within(10, lambda: "it is gone" in browser.text()) < 3
        assert browser.driver.execute_script("return window.mark") == 1
        assert browser.driver.switch_to.active_element.text == focused
        plain = boards.plain()
        board.put(replace(plain, board=replace(plain.board, time=NOW - timedelta(minutes=5))))
        within(10, lambda: browser.find("#refresh").is_displayed())  # the look is old


def test_what_is_being_filled_in_is_not_lost(browser):
    with served(boards.plain()) as board:
        browser.open(board.origin)
        within(10, lambda: browser.find("#live-word").is_displayed())
        browser.find("input#q").send_keys("shop", Keys.TAB, Keys.TAB, Keys.TAB)
        board.put(broken(boards.plain()))
        within(10, lambda: browser.find("#refresh").is_displayed())  # it is not so fresh now
        assert browser.find("input#q").get_attribute("value") == "shop"
        assert "14\nReady" in browser.text()
        browser.press(Keys.ENTER)  # on the button
        within(10, lambda: "q=shop" in browser.driver.current_url)
        assert browser.find("input#q").get_attribute("value") == "shop"
        assert "13\nReady" in browser.text()
        within(10, lambda: browser.find("#live-word").is_displayed())


def test_without_a_script_there_is_a_link_and_forms_work(browser):
    with served(boards.plain()) as board:
        browser.scripts(on=False)
        try:
            browser.open(board.origin)
            assert browser.find("#refresh").is_displayed()
            assert not browser.find("#live-word").is_displayed()
            board.put(broken(boards.plain()))
            within(10, lambda: board.states.version == 1)
            browser.find("#refresh").click()
            within(10, lambda: "13\nReady" in browser.text())
            browser.find("input#q").send_keys("shop-us", Keys.ENTER)
            within(10, lambda: "q=shop-us" in browser.driver.current_url)
            assert "shop-eu-4" not in browser.text()
        finally:
            browser.scripts(on=True)


def test_a_board_that_went_away_says_so(browser):
    with served(boards.plain()) as board:
        browser.open(board.origin)
        within(10, lambda: browser.find("#live-word").is_displayed())
    within(10, lambda: browser.find("#refresh").is_displayed())
    assert "acme" in browser.text()
    browser.open("about:blank")  # so that it asks no more
    browser.said()


def test_a_file_opens_without_a_network(browser, tmp_path):
    path = tmp_path / "status.html"
    path.write_text(rendering.file(file(index_of(0, boards.troubled()))), "utf-8")
    browser.requested()
    browser.driver.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    try:
        browser.open(path.as_uri())
        assert "connection refused" in browser.text()
        assert browser.find("body").value_of_css_property("margin") == "0px"
        assert browser.violations() == []
    finally:
        browser.driver.execute_cdp_cmd(
            "Network.emulateNetworkConditions",
            {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1},
        )
    assert browser.requested() == set()
