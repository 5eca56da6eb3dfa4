"""What a pull request changes, and what has to be judged, is shown whole, field by field."""

from dataclasses import replace

import pytest

from klutchctl.render import plan_formats
from klutchctl.render.plan_rows import differences
from reconciler.core.decision import FieldChange
from reconciler.core.errors import Origin
from reconciler.core.manifest import JSON, Manifest
from reconciler.planning import planfile
from reconciler.planning.changes import Action, Plan
from reconciler.reports.pr_diff import Against, Edit, Effect
from tests.golden import values
from tests.golden.plans import PLANS, binding, change, key

CLAIMS = "/spec/permissionClaims"
NAMES = [f"orders-{number:03}" for number in range(60)]
CLAIM: Manifest = {
    "autoAdopt": False,
    "group": "",
    "resource": "secrets",
    "selector": {"names": NAMES, "namespaces": ["*"], "owner": "Provider"},
    "state": "Accepted",
}
VOLUME: Manifest = {"emptyDir": {}, "name": "y" * 130}
MANY = {f"key-{number:03}": "x" * 50 for number in range(50)}
LISTED = ", ".join(f'"{name}"' for name in NAMES)
FIELDS = {
    "a short one is one line": ("/spec/x", {"a": 1}, {"a": 2}, ['/spec/x: {"a": 1} -> {"a": 2}']),
    "a claim that is new": (
        f"{CLAIMS}/0",
        None,
        CLAIM,
        [
            f'{CLAIMS}/0/resource: (absent) -> "secrets"',
            f"{CLAIMS}/0/selector/names: (absent) -> [{LISTED}]",
            f'{CLAIMS}/0/selector/namespaces: (absent) -> ["*"]',
            f'{CLAIMS}/0/selector/owner: (absent) -> "Provider"',
            f'{CLAIMS}/0/state: (absent) -> "Accepted"',
        ],
    ),
    "of a new claim, what does not mean its absence is shown": (
        f"{CLAIMS}/0",
        None,
        {
            **CLAIM,
            "onConflict": {"recreateWhenConsumerSideDeleted": False},
            "read": {"labels": []},
            "selector": {"names": NAMES, "namespaces": [], "labelSelectors": []},
        },
        [
            f'{CLAIMS}/0/onConflict: (absent) -> {{"recreateWhenConsumerSideDeleted": false}}',
            f'{CLAIMS}/0/resource: (absent) -> "secrets"',
            f"{CLAIMS}/0/selector/names: (absent) -> [{LISTED}]",
            f"{CLAIMS}/0/selector/namespaces: (absent) -> []",
            f'{CLAIMS}/0/state: (absent) -> "Accepted"',
        ],
    ),
    "of other things, empty and absent differ": (
        "/spec/template/spec/volumes/0",
        VOLUME,
        None,
        [
            "/spec/template/spec/volumes/0/emptyDir: {} -> (absent)",
            f'/spec/template/spec/volumes/0/name: "{"y" * 119}... (132 characters) -> (absent)',
        ],
    ),
    "what becomes empty or false is shown": (
        f"{CLAIMS}/0",
        {**CLAIM, "autoAdopt": True, "group": "g"},
        CLAIM,
        [f"{CLAIMS}/0/autoAdopt: true -> false", f'{CLAIMS}/0/group: "g" -> ""'],
    ),
    "all claims, of which one is another": (
        CLAIMS,
        [CLAIM, CLAIM],
        [CLAIM, {**CLAIM, "resource": "configmaps"}],
        [f'{CLAIMS}/1/resource: "secrets" -> "configmaps"'],
    ),
    "what is in the cluster is cut": (
        f"{CLAIMS}/0/resource",
        "y" * 500,
        "secrets",
        [f'{CLAIMS}/0/resource: "{"y" * 119}... (502 characters) -> "secrets"'],
    ),
    "a value that is not judged is cut": (
        "/spec/x",
        None,
        "y" * 500,
        [f'/spec/x: (absent) -> "{"y" * 119}... (502 characters)'],
    ),
    "a value of another form": (
        "/spec/x",
        "y" * 130,
        {"a": 1},
        [f'/spec/x: "{"y" * 119}... (132 characters) -> {{"a": 1}}'],
    ),
}


@pytest.mark.parametrize(("path", "before", "after", "says"), FIELDS.values(), ids=FIELDS.keys())
def test_differences(path, before, after, says):
    assert list(differences(FieldChange(path, before, after))) == says


@pytest.mark.parametrize("path", ["/spec/x", f"{CLAIMS}/0"])
def test_what_others_made_long_has_an_end(path):
    *shown, last = differences(FieldChange(path, MANY, None))
    assert len(shown) == 20
    assert last == f"{path}: 30 more fields; -o json has all"


def test_what_the_files_claim_has_none():
    assert len(list(differences(FieldChange(f"{CLAIMS}/0", None, MANY)))) == 50


UNIT = key("postgresqlinstances")
PLAN = replace(
    PLANS["nothing-to-do"],
    changes=(
        change(
            Action.UPDATE,
            "orders-db",
            binding(UNIT),
            reason="differs from the files",
            unit=UNIT,
            fields=(FieldChange(f"{CLAIMS}/0", None, CLAIM),),
        ),
    ),
)


@pytest.mark.parametrize("render", [plan_formats.text, plan_formats.comment])
def test_no_name_of_a_claim_is_left_out(render):
    assert LISTED in render(PLAN)


@pytest.mark.parametrize("render", [plan_formats.text, plan_formats.comment])
def test_an_edit_is_shown_whole(render):
    reach = f"names [{', '.join(NAMES)}]"
    changes: dict[str, tuple[JSON, JSON]] = {
        "secrets v1 of Provider": ("all", reach),
        "things.x.example v1 of Provider": (None, "all"),
        "configmaps v1 of Consumer": ("namespaces [a]", None),
        "secrets v1 of Consumer": (None, "all rejected"),
        "configmaps v1 of Provider": (None, "names [a]; names [b] namespaces [x]"),
    }
    fields = tuple(FieldChange(f"/claims/{name}", *values) for name, values in changes.items())
    edit = Edit(Effect.WIDEN, "Binding", "orders-db", Origin("b.yaml", 1), fields=fields)
    shown = render(PLAN, against=Against("main", "", (edit,)))
    come = "the provider's Secrets may come down"
    for line in (
        f"{come}: in all namespaces -> {reach} in all namespaces",
        "the provider's things.x.example v1 may come down, in all namespaces, if offered",
        "ConfigMaps of the app cluster may go up: namespaces [a] -> nothing",
        '/claims/secrets v1 of Consumer: (absent) -> "all rejected"',
        "may come down, names [a] in all namespaces; names [b] namespaces [x], if offered",
    ):
        assert line in shown


def test_edits_have_all_the_room_that_clusters_leave():
    edits = tuple(
        Edit(Effect.ADD, "Cluster", f"c-{number:04}", Origin("x.yaml", number))
        for number in range(900)
    )
    text = plan_formats.comment(PLAN, against=Against("main", "", edits))
    assert text.count("+ add") == 900
    assert LISTED in text


EMPTY = planfile.identified(
    Plan(fleet="acme", revision="", digest="", changes=(), sections={}, clusters_total=0)
)
COMMIT = values.against().revision


def test_json_is_still_a_plan_file():
    shown = plan_formats.as_json(EMPTY, against=replace(values.against(), denied=()))
    assert planfile.parse(shown.encode(), "x") == EMPTY


def test_nothing_changes():
    shown = plan_formats.text(EMPTY, against=Against("main", COMMIT, ()))
    assert shown.split("\n\n")[1] == "Changed against main (4c1e9d2)\n    nothing"


TITLES = {
    "a commit is named once": (COMMIT[:7], "Changed against 4c1e9d2"),
    "nothing acts on a terminal": ("\x1b[31m", r"Changed against \x1b[31m (4c1e9d2)"),
}


@pytest.mark.parametrize(("ref", "title"), TITLES.values(), ids=TITLES.keys())
def test_the_title(ref, title):
    assert title in plan_formats.text(EMPTY, against=Against(ref, COMMIT, ()))


HOSTILE = Edit(
    Effect.CHANGE,
    "Binding",
    "\x1b[2J",
    Origin("a\n```\n@all.yaml", 1, 1),
    "g\u202e",
    ("`" * 9,),
    (FieldChange("/\n", "\x07", "</details>"),),
)


def test_no_text_acts():
    against = Against("<b>@all", "", (HOSTILE,))
    for shown in (
        plan_formats.text(EMPTY, against=against),
        plan_formats.comment(EMPTY, against=against),
    ):
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "<b>" not in plan_formats.comment(EMPTY, against=against)
    assert "`" * 10 + "text" in plan_formats.comment(EMPTY, against=against)


def test_a_comment_stays_in_its_limit_and_keeps_the_gravest():
    many = [Edit(Effect.ADD, "Cluster", f"c-{n}", Origin("語" * 100)) for n in range(5_000)]
    shown = plan_formats.comment(
        EMPTY, against=replace(values.against(), edits=(*values.against().edits, *many))
    )
    assert len(shown.encode()) <= plan_formats.MAX_BYTES
    assert "- delete" in shown
    assert "more lines" in shown
