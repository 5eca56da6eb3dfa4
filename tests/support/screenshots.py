"""The pages of screenshots as HTML, and their pictures, taken in Debian's Chromium."""

import base64
import contextlib
import io
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath

from markdown_it import MarkdownIt

from bind.door.pages import views
from klutchctl import main
from klutchctl.web.board import rendering
from klutchctl.web.board.index import index_of
from klutchctl.web.board.overview import overview, unit
from klutchctl.web.board.parts import Query
from reconciler.core.live import dump_live
from reconciler.source import disk
from tests.support import boards, books, door_pages, worlds
from tests.support.checkouts import Checkout
from tests.support.chromium import chromium, site

EXAMPLE = books.ROOT / "fleet-example"
# Of team-b: backups; of the platform: what the credentials may reach.
REQUEST = {
    "bindings/team-b/backups.yaml": Path(__file__).with_name("request.yaml").read_text("utf-8")
}
FRAME = Path(__file__).with_name("comment.html").read_text("utf-8").strip()
ASSETS = {**rendering.ASSETS, **views.ASSETS}
GROUP = "anynines.com"
READY = f"postgresqlinstances.{GROUP}"


def comment(folder: Path) -> str:
    """Return what `klutchctl plan` writes for a pull request to the example's fleet."""
    files = {name: text.decode() for name, text in disk.read_folder(EXAMPLE).files.items()}
    changed = {
        name: text.replace("[postgresql, credentials]", "[postgresql, credentials, backup]")
        for name, text in files.items()
        if name == "policies/team-b.yaml"
    } | REQUEST
    checkout = Checkout(folder)
    checkout.write(files)
    checkout.commit()
    fleet = worlds.fleet_of(**{name.removesuffix(".yaml"): text for name, text in files.items()})
    offered = {f"{key.resource}.{key.group}" for key in fleet.units}
    secrets = {"group": "", "resource": "secrets", "version": "v1"}
    claims = [secrets | {"selector": {"owner": "Provider"}}]
    bindings = f"servicebindings.{GROUP}"
    offers = worlds.offering(*sorted(offered - {bindings}))
    offers += worlds.offering(bindings, claims=claims)
    world = worlds.World(offers, {name: [] for name in fleet.clusters})
    world.apply(world.plan(fleet))
    checkout.write(changed)
    (folder / "live.json").write_bytes(dump_live(world.live(fleet)))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        options = ["--snapshot", f"{folder}/live.json", "--base", "main", "-o", "markdown"]
        assert main.run(["plan", str(checkout.folder), *options]) in {0, 4, 6}
    return printed.getvalue()


@cache
def pages() -> Mapping[str, str]:
    """Return the HTML of the page of each screenshot, by its name."""
    index, every = index_of(0, boards.plain()), door_pages.every()
    of_unit = unit(index, "shop-eu-1", READY, boards.NOW, explain=lambda _: None)
    board = {"board": overview(index, Query(), boards.NOW), "unit": of_unit}
    door = {"door": every["catalogue"], "consent": every["consent"]}
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    with tempfile.TemporaryDirectory() as folder:
        opened = markdown.render(comment(Path(folder))).replace("<details>", "<details open>")
    shown = {name: rendering.html(page) for name, page in board.items() if page}
    return {**shown, **door, "pull-request": FRAME % opened}


def taken(names: Iterable[Path]) -> Iterator[bytes]:
    """Yield a PNG of each page, 1200 px wide."""

    def answer(path: str, _form: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        if asset := ASSETS.get(PurePosixPath(path).name):
            return 200, {"Content-Type": asset.content_type}, asset.body
        return 200, {"Content-Type": "text/html; charset=utf-8"}, pages().get(path[1:], "").encode()

    with site(answer) as origin, chromium() as browser:
        browser.scripts(on=False)  # nothing follows here
        browser.look(scheme="light", width=1200)
        browser.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        for name in names:
            browser.open(f"{origin}/{name.stem}")
            height = browser.find("body").size["height"]
            clip = {"x": 0, "y": 0, "width": 1200, "height": height, "scale": 1}
            whole = {"captureBeyondViewport": True, "clip": clip}
            shot = browser.driver.execute_cdp_cmd("Page.captureScreenshot", whole)
            yield base64.b64decode(shot["data"])
