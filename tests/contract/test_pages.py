"""Every page in a real browser: for everybody, without a script, from this site alone."""

from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.keys import Keys

from bind.door.pages import views
from tests.support import door_pages
from tests.support.chromium import site

_PAGES = door_pages.every()


@pytest.fixture(scope="module")
def origin():
    def answer(path, form):
        name = urlsplit(path).path.rpartition("/")[2]
        if name in views.ASSETS:
            asset = views.ASSETS[name]
            return 200, {"Content-Type": asset.content_type}, asset.body
        text = _PAGES.get(name, "")
        headers = {"Content-Type": "text/html; charset=utf-8", **dict(views.security_headers())}
        return 200 if text else 404, headers, text.encode()

    with site(answer) as origin:
        yield origin


@pytest.fixture(autouse=True)
def quiet(browser, origin):
    """A line in the console, a breach of the policy, or a request to another site fails."""
    browser.said(), browser.requested()
    yield
    assert browser.said() == []
    assert browser.requested() <= {urlsplit(origin).netloc}


@pytest.mark.parametrize("page", [name for name in _PAGES if name != "error-bare"])
def test_everybody_can_use_it(browser, origin, page):
    browser.open(f"{origin}/{page}")
    assert browser.violations() == []


BROKEN = """
const walk = document.createTreeWalker(document.querySelector("table"), NodeFilter.SHOW_TEXT);
const found = [], range = document.createRange();
for (let node; node = walk.nextNode();) for (const word of node.data.matchAll(/\\w+/g)) {
  range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
  if (range.getClientRects().length > 1) found.push(word[0]);
}
return found;"""


@pytest.mark.parametrize("page", [name for name, text in _PAGES.items() if "<table" in text])
def test_no_word_of_a_table_is_broken(browser, origin, page):
    browser.look(scheme="light", width=1200)
    browser.open(f"{origin}/{page}")
    assert browser.driver.execute_script(BROKEN) == []


def test_the_colours_follow_the_scheme(browser, origin):
    found = []
    for scheme in ("light", "dark"):
        browser.look(scheme=scheme, width=1100)
        browser.open(f"{origin}/home-in")
        found.append(browser.find("body").value_of_css_property("background-color"))
    assert found == ["rgba(251, 251, 249, 1)", "rgba(20, 23, 27, 1)"]


@pytest.mark.parametrize(
    ("page", "reached"),
    [
        ("home-out", ["a#sign-in"]),
        ("catalogue", ["input#q", "tbody a", ".account button"]),
        ("offer-result", ["pre#command", "#claim-0", "button#bind"]),
        ("resources", ["a.databases", "a.queues"]),
        ("consent", ["#claim-0", "#claim-1", "button#bind"]),
        ("bindings", ["tbody a"]),
    ],
)
def test_the_keyboard_reaches_everything_and_the_focus_is_seen(browser, origin, page, reached):
    browser.look(scheme="light", width=1100)
    for selector in reached:
        browser.open(f"{origin}/{page}")
        browser.tab_to(selector, Keys.TAB)


def test_the_first_stop_skips_to_the_content(browser, origin):
    browser.look(scheme="light", width=1100)
    browser.open(f"{origin}/catalogue")
    browser.press(Keys.TAB)
    skip = browser.driver.switch_to.active_element
    assert skip.text == "Skip to the content"
    assert skip.rect["y"] >= 0
    browser.press(Keys.ENTER)
    assert browser.driver.switch_to.active_element == browser.find("main")
