"""What each page of the board shows of a state, for a query."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from klutchctl import repository
from klutchctl.web.board import rendering
from klutchctl.web.board.index import LEFT, index_of
from klutchctl.web.board.overview import cluster, file, overview, plan, unit
from klutchctl.web.board.parts import Query, paged, parse, path_of
from klutchctl.web.board.server import Explaining
from reconciler.core.errors import ConfigError
from reconciler.fleet.values import UnitKey
from reconciler.health.board import BoundUnit, ClusterHealth
from reconciler.health.verdict import State, UnitHealth
from reconciler.watch.fleet_state import FleetState, Waiting
from tests.support import boards, fleet_texts
from tests.support.boards import NOW, plain, troubled

PLAIN = index_of(7, plain())
ALL = ["shop-eu-1", "shop-eu-2", "shop-eu-3", "shop-eu-4", "shop-us-1", "shop-us-2", "shop-us-3"]
EU = ALL[:4]


def nothing(_):
    return None


def first(query=None, index=PLAIN):
    return overview(index, query or Query(), NOW)


def names(page):
    return [name for name, *_ in page.rows]


@pytest.mark.parametrize(
    ("given", "clusters"),
    [
        ({}, ALL),
        ({"unheard": "of"}, ALL),
        ({"state": "Degraded"}, ["shop-eu-1"]),
        ({"state": "Ready"}, EU),
        ({"state": "Released"}, ["shop-us-3"]),
        ({"binding": "messages"}, ["shop-eu-2", "shop-eu-3", "shop-eu-4"]),
        ({"binding": "search", "state": "Unknown"}, ["shop-us-1"]),
        ({"binding": "search", "state": "Degraded"}, []),
        ({"binding": LEFT, "state": "Ready"}, ["shop-eu-1"]),
        ({"label": "control-plane=eu"}, EU),
        ({"label": "control-plane in (us,eu),!beta"}, ALL),
        ({"label": "beta"}, []),
        ({"q": "CrdMissing"}, ["shop-eu-1"]),
        ({"q": "CONNECTION refused"}, ["shop-us-1"]),
        ({"q": " shop-us "}, ["shop-us-1", "shop-us-2", "shop-us-3"]),
        ({"q": "nowhere"}, []),
        ({"page": "9"}, ALL),
    ],
)
def test_a_query_asks_for_clusters(given, clusters):
    assert names(first(parse(given))) == clusters


@pytest.mark.parametrize(
    "given",
    [
        {"state": "Fine"},
        {"page": "0"},
        {"page": "-1"},
        {"page": "1e9"},
        {"page": "٣"},
        {"columns": "12345678"},
        {"q": "x" * 401},
        {"label": "a=b=c,"},
    ],
)
def test_a_query_that_means_nothing_is_refused_with_a_sentence(given):
    with pytest.raises(ConfigError, match=r"[a-z]"):
        parse(given)


def test_a_binding_that_is_asked_for_is_the_only_column():
    assert [name for name, _ in first(Query(binding="search")).bindings] == ["search"]
    assert [name for name, _ in first(Query(q="shop-us-2")).bindings] == ["orders-db"]


def test_clusters_without_a_label_are_a_group_too():
    (row,) = first(Query(group="beta")).rows
    assert row[1] == "/?label=%21beta"
    assert names(first(parse({"label": "!beta"}))) == ALL


def test_pages_of_clusters_and_of_bindings():
    page = first(Query(page=2, columns=3), index_of(1, boards.big(2400, per_cluster=24)))
    assert names(page)[:2] == ["shop-eu-00050", "shop-eu-00051"]
    assert len(page.rows) == 50
    assert [name for name, _ in page.bindings] == [f"service-{n}" for n in (20, 21, 22, 23)]
    assert page.pager.before == "/?columns=3"
    assert (page.pager.after, page.columns.before) == ("", "/?page=2&columns=2")


@pytest.mark.parametrize(
    ("page", "total", "wanted"),
    [
        (1, 0, (0, 0, "", "")),
        (1, 50, (1, 50, "", "")),
        (1, 51, (1, 50, "", "/?page=2")),
        (2, 51, (51, 51, "/", "")),
        (9, 51, (51, 51, "/", "")),
    ],
)
def test_where_a_page_is_among_the_others(page, total, wanted):
    found = paged(Query(page=page), "/", total)
    assert (found.first, found.last, found.before, found.after) == wanted


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 401])
def test_a_name_that_is_in_no_url_leads_nowhere(name):
    assert path_of("clusters", name) == ""
    assert path_of("clusters", "a?b#c%2f\u202e") == "/clusters/a%3Fb%23c%252f%E2%80%AE"


def test_what_kubectl_shows_as_not_ready_stands_beside_ready():
    key = UnitKey("shop", "shop.example", "databases")
    one = BoundUnit("db", UnitHealth(key, State.READY, "InstancesRefused", "orders: over quota"))
    made = replace(plain().board, clusters=(ClusterHealth("shop", "eu", (one,)),))
    index = index_of(1, FleetState(name="acme", board=made))
    for page in (
        unit(index, "shop", key.name, NOW, explain=nothing),
        cluster(index, "shop", Query(), NOW),
    ):
        assert page is not None
        assert "Ready (claims refused)" in rendering.fragment(page)


def test_there_is_a_page_of_what_is_there_alone():
    assert cluster(PLAIN, "nowhere", Query(), NOW) is None
    for name, resource in (("shop-eu-1", "x.y"), ("nowhere", "backups.anynines.com")):
        assert unit(PLAIN, name, resource, NOW, explain=nothing) is None
    assert plan(PLAIN, Query(cluster="nowhere"), NOW).lines == ()


@pytest.mark.parametrize(
    ("state", "name", "said"),
    [
        (plain(), "shop-eu-2", "Nothing waits."),
        (plain(), "shop-us-1", "The plan could not read its cluster."),
        (plain(waiting=Waiting()), "shop-eu-2", "No plan is at hand."),
    ],
)
def test_what_it_means_that_nothing_waits(state, name, said):
    page = unit(index_of(1, state), name, "servicebindings.anynines.com", NOW, explain=nothing)
    assert page is not None
    assert (page.lines, page.nothing) == ([], said)


def test_a_unit_of_the_files_names_the_lines_that_make_it_and_its_policy():
    tree = fleet_texts.tree({"policies/team.yaml": fleet_texts.POLICY})
    fleet = repository.documents(tree).fleet
    key = next(iter(fleet.units))
    one = BoundUnit("db", UnitHealth(key, State.READY))
    board = replace(plain().board, clusters=(ClusterHealth("shop", "eu", (one,)),))
    index = index_of(1, FleetState(name="acme", fleet=fleet, board=board))

    page = unit(index, "shop", key.name, NOW, explain=Explaining(lambda: tree))
    assert page is not None
    assert page.facts[0] == ("Binding", "db", "bindings/db.yaml:3")
    assert ("Policy", "team allows it", "policies/team.yaml:4") in page.facts
    bare = unit(index, "shop", key.name, NOW, explain=nothing)
    assert bare is not None
    assert bare.facts == [("Binding", "db", "")]
    of = cluster(index, "shop", Query(), NOW)
    assert of is not None
    assert "<code><bdi>clusters/shop.yaml:3:18</bdi></code>" in rendering.html(of)
    assert "<dt>Labels</dt><dd><code><bdi>env=" in rendering.html(of)


def test_units_are_explained_by_the_newest_files():
    newest: list[Any] = []
    explain = Explaining(lambda: newest[-1] if newest else None)
    key = UnitKey("shop", "gi.o", "pgs")
    assert explain(key) is None
    for spaces in ("", "# a line above\n"):
        newest.append(fleet_texts.tree({"bindings/db.yaml": spaces + fleet_texts.BINDING}))
        found = explain(key)
        assert found is not None
        assert found.binding.origin.line == 3 + bool(spaces)
    assert explain(UnitKey("shop", "gi.o", "others")) is None


def test_a_look_grows_old_and_many_storms_are_counted():
    assert not first().stale
    assert overview(PLAIN, Query(), NOW + timedelta(minutes=5)).stale
    many = replace(troubled(), storms=troubled().storms * 5)
    assert first(index=index_of(1, many)).banners[-1][0] == "2 more objects rest"


@pytest.mark.parametrize(("units", "listed", "cut"), [(5000, 5000, False), (5040, 101, True)])
def test_a_file_lists_all_or_what_is_not_ready(units, listed, cut):
    page = rendering.file(file(index_of(1, boards.big(units))))
    assert page.count('th role="rowheader"') == listed
    assert ("Only what is not Ready is listed" in page) is cut
    assert page.count("and 19 that are Ready") == (101 if cut else 0)
