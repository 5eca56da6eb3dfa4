"""What pages of the board are made of, and what its commands take and refuse."""

import functools
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from klutchctl import main
from klutchctl.render import status_document
from klutchctl.web.board import rendering
from klutchctl.web.board.index import index_of
from klutchctl.web.board.overview import cluster, file, history, overview, plan, refusal, unit
from klutchctl.web.board.parts import Query
from reconciler.core.errors import Origin
from tests.support import boards
from tests.support.boards import NOW
from tests.support.outlines import LONG, MARKUP, RTL, Outline


def made(state):
    """Return every page of a state, by its name, as HTML."""
    index = index_of(1, state)
    values: dict[str, Any] = {
        "overview": overview(index, Query(), NOW),
        "narrowed": overview(index, Query(q="shop", label="!x", group="control-plane"), NOW),
        "plan": plan(index, Query(), NOW),
        "history": history(index, NOW),
        "refusal": refusal(index, 404, state.name, NOW),
    }
    for name, row in list(index.rows.items())[:2]:
        values[f"cluster {len(values)}"] = cluster(index, name, Query(), NOW)
        for one in row.health.units[:1]:
            page = unit(index, name, one.health.unit.name, NOW, explain=lambda _: None)
            values[f"unit {len(values)}"] = page
    found = {name: rendering.html(value) for name, value in values.items()}
    return found if state.board is None else found | {"file": rendering.file(file(index))}


@functools.cache
def hostile(text):
    state = boards.hostile(text)
    placed = [
        replace(one, units=tuple(replace(each, origin=Origin(text, 1, 1)) for each in one.units))
        for one in state.board.clusters
    ]
    return made(replace(state, board=replace(state.board, clusters=tuple(placed))))


PAGES = made(boards.troubled())
NAMES = [*PAGES]


@pytest.mark.parametrize("name", NAMES)
def test_every_page_is_well_formed_and_has_one_heading_of_each_level_in_order(name):
    Outline(PAGES[name]).check_order()


@pytest.mark.parametrize("name", NAMES)
def test_no_page_has_anything_of_another_site_or_inline(name):
    outline = Outline(PAGES[name])
    for tag, attributes in outline.elements:
        assert tag not in {"iframe", "object", "base", "img"}
        assert not [key for key in attributes if key.startswith("on") or key == "style"]
        for key in ("href", "src", "action"):
            assert re.match("/(?!/)|#|$", attributes.get(key, ""))
    scripts = [] if name == "file" else [{"src": "/assets/board.js", "defer": ""}]
    assert outline.all("script") == scripts


def test_a_file_refers_to_nothing_and_may_load_nothing():
    outline = Outline(PAGES["file"])
    found = [attributes for _, attributes in outline.elements]
    assert not [one for one in found if {"src", "href", "action"} & one.keys()]
    style = re.search("<style>(.*?)</style>", PAGES["file"], re.DOTALL)
    assert style is not None
    digest = b64encode(sha256(style[1].encode()).digest()).decode()
    assert {
        "http-equiv": "Content-Security-Policy",
        "content": f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'",
    } in found
    assert "url(" not in style[1]


def test_every_state_has_a_word_a_shape_and_a_colour():
    outline = Outline(PAGES["overview"])
    style = rendering.ASSETS["board.css"].body.decode()
    shapes = {one["class"] for one in outline.all("span") if one.get("class", "").startswith("s ")}
    assert shapes == {f"s {letter}" for letter in "rpduhl"}
    for letter in "rpduhl":
        assert f".{letter} {{ color: var(--{letter})" in style
        assert f".{letter}::before {{" in style


@pytest.mark.parametrize("name", [*hostile("")])
@pytest.mark.parametrize("text", [MARKUP, RTL, LONG], ids=["markup", "rtl", "long"])
def test_texts_of_others_stay_text(name, text):
    html = hostile(text)[name]
    outline = Outline(html)
    plain = Outline(hostile("plain")[name])
    harmless = {"a"}  # a name that no URL can hold is no link
    tags = [[tag for tag, _ in one.elements if tag not in harmless] for one in (outline, plain)]
    assert tags[0] == tags[1]
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f]", "".join(outline.text))
    assert "49" not in outline.words()
    assert len(html) < 100_000


def test_a_part_of_a_page_is_what_stands_in_it():
    page = overview(index_of(1, boards.plain()), Query(), NOW)
    part = rendering.fragment(page)
    assert part.strip() in rendering.html(page)
    assert "<head" not in part


def test_the_script_is_small():
    assert len(rendering.ASSETS["board.js"].body) <= 4_096


OTHERS = "--listen 0.0.0.0:0"


@pytest.fixture
def given(tmp_path):
    path = tmp_path / "status.json"
    path.write_text(status_document.dump(boards.plain().board))
    return path


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("board --from FILE .", "so it takes no PATH"),
        ("board --plan FILE", "--plan needs --from"),
        ("board --from FILE --cluster shop", "--cluster and --selector narrow looks"),
        ("board --from FILE --listen 8080", "is not ADDR:PORT"),
        (f"board --from FILE {OTHERS}", "a proxy that authenticates has to stand in front"),
        ("board --from FILE --listen [::]:0", "Give --behind-proxy"),
        ("board --from FILE --listen board.example:0", "Give --behind-proxy"),
        ("status --from FILE --watch -o html", "write FORMAT or FORMAT=PATH"),
    ],
)
def test_what_makes_no_sense_is_refused(line, said, given, capsys):
    assert main.run(line.replace("FILE", str(given)).split()) == 64
    assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_others_may_be_served_where_a_proxy_is_said_to_be_there(given, capsys, tmp_path):
    missing = str(tmp_path / "missing.json")
    assert main.run(["board", "--from", missing, *OTHERS.split(), "--behind-proxy"]) == 3
    assert "past the proxy reads all of this without a login" in capsys.readouterr().err


def test_a_file_of_a_status_that_was_written(given, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main.run(["status", "--from", str(given), "-o", f"html={page}"]) == 5
    assert "the app cluster has no CRD" in page.read_text("utf-8")
    assert "<script" not in page.read_text("utf-8")
    assert capsys.readouterr().out == ""
