"""Debian's Chromium, as people have it: what pages do in it, and what it says about them."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from axe_core_python.selenium import Axe
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.support.answering import Answer, answering

_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# The last one is as narrow as WCAG asks for.
LOOKS: Final = (("light", 1200), ("dark", 1200), ("light", 360), ("dark", 360), ("dark", 320))
_ONLY_PAGES: Final = ("http:", "https:")


@dataclass
class Chromium:
    """One browser. `requested` are the addresses that pages asked for since the last look."""

    driver: webdriver.Chrome
    axe: Axe = field(default_factory=Axe)

    def look(self, *, scheme: str, width: int) -> None:
        """Show pages in a colour scheme, and in a window of this width."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def open(self, url: str) -> None:
        self.driver.get(url)

    def forget(self) -> None:
        """Have no cookies, and nothing said."""
        self.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        self.said()

    def scripts(self, *, on: bool) -> None:
        """Let pages run scripts, or not."""
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not on})

    def violations(self) -> list[str]:
        """Return what axe finds on this page, each with where it is, and what is too wide."""
        found = []
        for scheme, width in LOOKS:
            self.look(scheme=scheme, width=width)
            found += [
                f"{scheme}, {width} px: {one['id']}: {[node['html'] for node in one['nodes']]}"
                for one in self.axe.run(self.driver)["violations"]
            ]
            found += [f"{scheme}: wider than {width} px"] if self.overflow() > 0 else []
        return found

    def said(self) -> list[str]:
        """Return what the console says since the last look: errors, and breaches of the policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested(self) -> set[str]:
        """Return the sites that were asked for something since the last look."""
        messages = [json.loads(one["message"]) for one in self.driver.get_log("performance")]
        urls = [
            urlsplit(one["message"]["params"]["request"]["url"])
            for one in messages
            if one["message"]["method"] == "Network.requestWillBeSent"
        ]
        return {url.netloc for url in urls if f"{url.scheme}:" in _ONLY_PAGES}

    def overflow(self) -> int:
        """Return by how many pixels this page is wider than its window."""
        script = "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
        return int(self.driver.execute_script(script))

    def find(self, selector: str) -> WebElement:
        """Return the first element."""
        return self.driver.find_element("css selector", selector)

    def text(self) -> str:
        return self.find("body").text

    def comes_to(self, text: str) -> None:
        """Wait until a person reads this text: a page that is left may be gone before the next."""
        going = (NoSuchElementException, StaleElementReferenceException)
        wait = WebDriverWait(self.driver, 30, poll_frequency=0.05, ignored_exceptions=going)
        wait.until(lambda _: text in self.text(), f"no page reads {text!r}")

    def press(self, *keys: str) -> None:
        actions = ActionChains(self.driver)
        for key in keys:
            actions.send_keys(key)
        actions.perform()

    def tab_to(self, selector: str, key: str, *, most: int = 40) -> None:
        """Press a key until an element has the focus, which has to be seen."""
        wanted = self.find(selector)
        for _ in range(most):
            self.press(key)
            focused = self.driver.switch_to.active_element
            outline = focused.value_of_css_property("outline-style")
            assert outline != "none", f"focus is not seen on {focused.get_attribute('outerHTML')}"
            if focused == wanted:
                return
        raise AssertionError(f"the keyboard does not reach {selector}")

    def enter(self, selector: str) -> None:
        self.tab_to(selector, Keys.TAB)
        self.press(Keys.ENTER)


@contextlib.contextmanager
def chromium() -> Iterator[Chromium]:
    """Start a browser with a profile of its own; the test is skipped where there is none."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("there is no chromium with chromedriver: `apt-get install chromium-driver`")
    with tempfile.TemporaryDirectory(prefix="klutchctl-chromium-") as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = binary
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        opened = webdriver.Chrome(options=options, service=Service(driver))
        try:
            # Debian's begins with a page of its own, whose script fails when it is left too soon.
            opened.get("about:blank")
            yield Chromium(opened)
        finally:
            opened.quit()


@contextlib.contextmanager
def site(answer: Callable[[str, Any], Answer]) -> Iterator[str]:
    """Serve what `answer` returns for a path and the form sent to it; yield the origin."""
    with answering(lambda asked: answer(asked.target, asked.body)) as port:
        yield f"http://127.0.0.1:{port}"
