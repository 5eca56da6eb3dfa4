"""What each page of the board shows of a state, for a query."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from klutchctl import repository
from klutchctl.web.board import rendering
from klutchctl.web.board.index import LEFT, index_of
from klutchctl.web.board.pages.cluster import cluster, unit
from klutchctl.web.board.pages.overview import file, overview
from klutchctl.web.board.pages.parts import Query, frame, paged, parse, path_of
from klutchctl.web.board.pages.plan import history, plan
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
    assert [row.name for row in first(parse(given)).rows] == clusters


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


def test_cells_have_a_word_and_lead_to_what_is_not_ready():
    by_name = {row.name: row for row in first().rows}
    columns = [name for name, _ in first().bindings]

    def cell(cluster, binding):
        return by_name[cluster].cells[columns.index(binding)]

    ill = cell("shop-eu-1", "orders-db")
    assert (ill.state, ill.href) == (
        State.DEGRADED,
        "/units/shop-eu-1/postgresqlinstances.anynines.com",
    )
    unknown = cell("shop-us-1", "search")
    assert (unknown.state, unknown.more) == (State.UNKNOWN, "12m")
    assert cell("shop-eu-1", "search").href == ""
    assert cell("shop-us-3", "search").state is None
    assert [by_name[name].ready for name in ("shop-eu-1", "shop-us-3")] == ["2/4", ""]


def test_groups_show_their_worst_and_lead_to_their_clusters():
    eu, us = first(Query(group="control-plane")).rows
    assert (eu.name, eu.state, eu.ready) == ("eu", State.DEGRADED, "14/16")
    assert (us.name, us.state, us.ready) == ("us", State.UNKNOWN, "0/4")
    assert eu.href == "/?label=control-plane%3Deu"
    orders = eu.cells[1]
    assert (orders.state, orders.more) == (State.DEGRADED, "1/4")
    assert orders.href == "/?state=Degraded&binding=orders-db&label=control-plane%3Deu"
    (row,) = first(Query(group="beta")).rows
    assert row.href == "/?label=%21beta"
    assert [row.name for row in first(parse({"label": "!beta"})).rows] == ALL


def test_pages_of_clusters_and_of_bindings():
    index = index_of(1, boards.big(2400, per_cluster=24))
    page = first(Query(page=2, columns=3), index)
    assert [row.name for row in page.rows][:2] == ["shop-eu-00050", "shop-eu-00051"]
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


def test_counts_lead_to_what_they_count_and_back():
    degraded = next(one for one in first().counts if one.state is State.DEGRADED)
    assert (degraded.number, degraded.href) == (1, "/?state=Degraded")
    chosen = next(
        one for one in first(Query(state="Degraded")).counts if one.state is State.DEGRADED
    )
    assert chosen.href == "/"
    assert sum(one.width for one in first().counts) == pytest.approx(1000, abs=0.1)


def test_the_first_page_says_what_waits_and_what_needs_people():
    page = first()
    assert page.actions == (("update", 1), ("delete", 1), ("unknown", 1))
    assert page.held == (("max-deletes", "12 units would be deleted, 10 are allowed"),)
    assert [(one.cluster, one.name) for one in page.troubles] == [
        ("shop-eu-1", "postgresqlinstances.anynines.com"),
        ("shop-us-1", "3 units"),
    ]
    assert (page.worst, page.planned, page.unread) == (State.DEGRADED, True, 1)
    assert not first(index=index_of(1, boards.empty())).planned


def test_the_page_of_a_cluster():
    page = cluster(PLAIN, "shop-us-1", Query(), NOW)
    assert page is not None
    assert (page.state, page.since.ago, page.counts) == (
        State.UNKNOWN,
        "12m",
        ((State.UNKNOWN, 3),),
    )
    assert page.unread == (("connection refused", "See that its API server runs"),)
    assert [row.was for row in page.units] == ["Ready"] * 3
    assert page.all_lines == "/plan?cluster=shop-us-1"
    assert cluster(PLAIN, "nowhere", Query(), NOW) is None
    left = cluster(PLAIN, "shop-eu-1", Query(binding=LEFT), NOW)
    assert left is not None
    assert [(row.name, row.binding) for row in left.units] == [("backups.anynines.com", LEFT)]
    assert left.held == (("max-deletes", "12 units would be deleted, 10 are allowed"),)


def test_the_page_of_a_unit():
    name = "postgresqlinstances.anynines.com"
    page = unit(PLAIN, "shop-eu-1", name, NOW, explain=nothing, docs="https://docs")
    assert page is not None
    assert (page.state, page.reason, page.since.ago, page.exact) == (
        State.DEGRADED,
        "CrdMissing",
        "3h",
        False,
    )
    assert (page.lines, page.held) == ((), ())
    assert 'href="https://docs/reasons/CrdMissing/"' in rendering.html(page)
    gone = unit(PLAIN, "shop-eu-1", "backups.anynines.com", NOW, explain=nothing)
    assert gone is not None
    assert (gone.leaving, gone.held[0][0], gone.lines[0].outcome) == (True, "max-deletes", "held")
    for cluster_name, name in (("shop-eu-1", "x.y"), ("nowhere", "backups.anynines.com")):
        assert unit(PLAIN, cluster_name, name, NOW, explain=nothing) is None


def test_what_kubectl_shows_as_not_ready_stands_beside_ready():
    key = UnitKey("shop", "shop.example", "databases")
    one = BoundUnit("db", UnitHealth(key, State.READY, "InstancesRefused", "orders: over quota"))
    made = replace(plain().board, clusters=(ClusterHealth("shop", "eu", (one,)),))
    index = index_of(1, FleetState(name="acme", board=made))
    page, of = (
        unit(index, "shop", key.name, NOW, explain=nothing),
        cluster(index, "shop", Query(), NOW),
    )
    assert page is not None
    assert of is not None
    assert (page.state, page.note) == (State.READY, "(claims refused)")
    assert [(row.state, row.note) for row in of.units] == [(State.READY, "(claims refused)")]
    assert "Ready (claims refused)" in rendering.fragment(page)


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
    assert (page.lines, page.nothing) == ((), said)


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
    assert bare.facts[:2] == (
        ("Binding", "db", "bindings/db.yaml:3"),
        ("Cluster", "shop", "clusters/shop.yaml:3"),
    )
    assert ("deletionPolicy", "Release", "") in bare.facts
    assert "policies/team.yaml:4" not in str(bare.facts)


def test_units_are_explained_by_the_newest_files():
    newest: list[Any] = []
    explain = Explaining(lambda: newest[-1] if newest else None)
    key = UnitKey("shop", "gi.o", "pgs")
    assert explain(key) is None
    for spaces in ("", "# a line above\n"):
        newest.append(fleet_texts.tree({"bindings/db.yaml": spaces + fleet_texts.BINDING}))
        found = explain(key)
        assert found is not None
        assert found.origin.line == 3 + bool(spaces)
    assert explain(UnitKey("shop", "gi.o", "others")) is None


def test_the_page_of_the_plan():
    page = plan(PLAIN, Query(), NOW)
    assert [(one.cluster, one.action) for one in page.lines] == [
        ("shop-eu-1", "delete"),
        ("shop-eu-3", "update"),
        ("shop-us-1", "unknown"),
    ]
    edited = page.lines[1]
    assert edited.details == ("/spec/permissionClaims/0/all: true -> false",)
    assert (edited.outcome, edited.origin) == ("failed", "bindings/team-a/orders-db.yaml:4")
    assert [one.cluster for one in plan(PLAIN, Query(cluster="shop-eu-3"), NOW).lines] == [
        "shop-eu-3"
    ]
    assert plan(PLAIN, Query(cluster="nowhere"), NOW).lines == ()
    assert page.unseen == (("shop-us-1", "connection refused. See that its API server runs"),)


def test_the_page_of_rounds():
    page = history(PLAIN, NOW)
    assert [(one.result, one.state) for one in page.rounds] == [
        ("partial", State.DEGRADED),
        ("done", State.READY),
        ("failed", State.DEGRADED),
        ("nothing", State.READY),
    ]
    assert (page.rounds[0].ended.ago, page.applied.ago) == ("8s", "3m")


def test_the_frame_says_what_is_not_as_usual():
    found = frame(index_of(9, troubled()), "", NOW)
    assert [one.title for one in found.banners] == [
        "The source is not verified: nothing is written (77aa01b)",
        "Suspended: nothing is written",
        "Control plane us: Degraded",
        "APIServiceBinding orders-db in shop-eu-2 rests until 2026-11-26T15:00:12Z",
    ]
    assert [one.grave for one in found.banners] == [True, False, True, False]
    assert (found.version, found.running, found.shard, found.looked.ago) == (
        9,
        "drift",
        "eu, us",
        "12s",
    )
    many = replace(troubled(), storms=troubled().storms * 5)
    assert frame(index_of(1, many), "", NOW).banners[-1].title == "2 more objects rest"
    assert not found.stale
    later = frame(index_of(1, plain()), "", NOW + timedelta(minutes=5))
    assert (later.looked.ago, later.stale) == ("5m", True)


@pytest.mark.parametrize(("units", "listed", "cut"), [(5000, 5000, False), (5040, 101, True)])
def test_a_file_lists_all_or_what_is_not_ready(units, listed, cut):
    page = file(index_of(1, boards.big(units)))
    assert sum(len(one.units) for one in page.sections) == listed
    assert page.cut is cut
    assert sum(one.left_out for one in page.sections) == (19 * 101 if cut else 0)
