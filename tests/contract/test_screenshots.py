"""Screenshots of the site are of the pages as they are: a digest of each page is beside them.

`--update-golden` takes them anew, in Debian's Chromium: then look at each.
"""

import base64
import hashlib
import json
from pathlib import PurePosixPath

from bind.door.pages import views
from klutchctl.web.board import rendering
from klutchctl.web.board.index import index_of
from klutchctl.web.board.pages.cluster import unit
from klutchctl.web.board.pages.overview import overview
from klutchctl.web.board.pages.parts import Query
from tests.support import boards, books, door_pages
from tests.support.chromium import chromium, site

FOLDER = books.SITE / "pictures"
RECORD = FOLDER / "screenshots.json"
ASSETS = {**rendering.ASSETS, **views.ASSETS}
READY = "postgresqlinstances.anynines.com"


def pages():
    index, every = index_of(0, boards.plain()), door_pages.every()
    of_unit = unit(index, "shop-eu-1", READY, boards.NOW, explain=lambda _: None)
    board = {"board": overview(index, Query(), boards.NOW), "unit": of_unit}
    door = {"door": every["catalogue"], "consent": every["consent"]}
    return {name: rendering.html(page) for name, page in board.items() if page} | door


def digest(page):
    styles = (ASSETS[name].body for name in ("board.css", "door.css"))
    return hashlib.sha256(b"".join([page.encode(), *styles])).hexdigest()


def take(shown):
    def answer(path, _form):
        if asset := ASSETS.get(PurePosixPath(path).name):
            return 200, {"Content-Type": asset.content_type}, asset.body
        return 200, {"Content-Type": "text/html; charset=utf-8"}, shown[path[1:]].encode()

    with site(answer) as origin, chromium() as browser:
        browser.scripts(on=False)  # nothing follows here
        browser.look(scheme="light", width=1200)
        browser.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        for name in shown:
            browser.open(f"{origin}/{name}")
            height = browser.find("body").size["height"]
            clip = {"x": 0, "y": 0, "width": 1200, "height": height, "scale": 1}
            whole = {"captureBeyondViewport": True, "clip": clip}
            taken = browser.driver.execute_cdp_cmd("Page.captureScreenshot", whole)
            (FOLDER / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))


def test_each_screenshot_is_of_the_page_as_it_is(request):
    found = {name: digest(page) for name, page in pages().items()}
    if request.config.getoption("--update-golden"):
        take(pages())
        RECORD.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    assert json.loads(RECORD.read_text("utf-8")) == found, "take them anew: --update-golden"
    assert max((FOLDER / f"{name}.png").stat().st_size for name in found) <= 200_000
