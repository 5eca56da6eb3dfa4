"""Screenshots of the site are of the pages as they are: a digest of each page is beside them.

`--update-golden` takes them anew, in Debian's Chromium: then look at each.
"""

import base64
import contextlib
import hashlib
import io
import json
from pathlib import PurePosixPath

from markdown_it import MarkdownIt

from bind.door.pages import views
from klutchctl import main
from klutchctl.web.board import rendering
from klutchctl.web.board.index import index_of
from klutchctl.web.board.pages.details import unit
from klutchctl.web.board.pages.overview import overview
from klutchctl.web.board.pages.parts import Query
from reconciler.core.live import dump_live
from reconciler.source import disk
from tests.support import boards, books, door_pages, terminal, worlds
from tests.support.checkouts import Checkout
from tests.support.chromium import chromium, site

EXAMPLE = books.ROOT / "fleet-example"
FOLDER = books.SITE / "pictures"
RECORD = FOLDER / "screenshots.json"
REQUEST = {  # of team-b: backups; of the platform: what the credentials may reach
    "bindings/team-b/backups.yaml": """apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Binding
metadata: {name: analytics-backups, labels: {owner: team-b}}
spec: {template: backup, clusters: {names: [analytics-eu-1]}, dependsOn: [analytics-database]}
""",
}
FRAME = """<!doctype html><meta charset="utf-8"><title>Comment of a pull request</title><style>
body{margin:0;padding:24px;font:15px/1.5 system-ui,sans-serif;color:#1f2328;background:#fff}
main{border:1px solid #d1d9e0;border-radius:8px}header{padding:10px 16px;background:#f6f8fa;
border-bottom:1px solid #d1d9e0;border-radius:8px 8px 0 0}article{padding:4px 16px 8px}
code{background:#eff1f3;border-radius:5px;padding:2px 5px;font:13px ui-monospace,monospace}
pre{background:#f6f8fa;border-radius:6px;padding:12px;white-space:pre-wrap}pre code{padding:0;
background:none}table{border-collapse:collapse}td,th{border:1px solid #d1d9e0;padding:4px 10px}
</style><main><header><b>fleet-bot</b> commented</header><article>%s</article></main>"""
ASSETS = {**rendering.ASSETS, **views.ASSETS}
GROUP = "anynines.com"
READY = f"postgresqlinstances.{GROUP}"


def comment(folder):
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


def pages(folder):
    index, every = index_of(0, boards.plain()), door_pages.every()
    of_unit = unit(index, "shop-eu-1", READY, boards.NOW, explain=lambda _: None)
    board = {"board": overview(index, Query(), boards.NOW), "unit": of_unit}
    door = {"door": every["catalogue"], "consent": every["consent"]}
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    opened = markdown.render(comment(folder)).replace("<details>", "<details open>")
    shown = {name: rendering.html(page) for name, page in board.items() if page}
    return shown | door | {"pull-request": FRAME % opened}


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


def test_each_screenshot_is_of_the_page_as_it_is(request, tmp_path):
    shown = pages(tmp_path)
    found = {name: digest(page) for name, page in shown.items()}
    if request.config.getoption("--update-golden"):
        take(shown)
        RECORD.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    assert json.loads(RECORD.read_text("utf-8")) == found, "take them anew: --update-golden"
    assert max((FOLDER / f"{name}.png").stat().st_size for name in found) <= 200_000


TITLE = "The demo: plan, apply, a claim, a restored table, drift, status, and a guard"


def test_the_recording_is_of_the_transcript_and_the_transcript_of_the_demo(request):
    transcript = (FOLDER / "demo.txt").read_text("utf-8")
    path, found = FOLDER / "demo.svg", terminal.drawn(transcript, TITLE)
    if request.config.getoption("--update-golden"):
        path.write_text(found, "utf-8")
    assert path.read_text("utf-8") == found, "draw it anew: --update-golden"
    assert len(found) < 300_000
    demo = "".join(file.read_text("utf-8") for file in (books.ROOT / "tests/demo").glob("*.py"))
    titles = [scene[0].removeprefix("== ") for scene in terminal.scenes(transcript)]
    assert [title for title in titles if title not in demo] == []
    assert max(map(len, transcript.splitlines())) <= 112  # what fits
