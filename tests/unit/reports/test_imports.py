"""What is live and in no file, in the words of the files; and what these would not change."""

import pytest
import yaml

from klutchctl.render import manifests
from reconciler.api import API_SERVICE_BINDING
from reconciler.core import keys
from reconciler.core.manifest import Manifest, get_map, put
from reconciler.fleet.files import Snapshot
from reconciler.fleet.load import load_valid_part
from reconciler.planning import planner
from reconciler.reports import imports
from tests.support.fleet_texts import TEMPLATE, document, tree
from tests.support.scenes import (
    MODES,
    PLANE,
    SEARCH,
    applied,
    binding,
    change,
    cluster,
    fleet,
    foreign_binding,
    plane,
    secret_leading_to,
)
from tests.support.worlds import POSTGRES, World, offering

DOWN: Manifest = {
    "group": "",
    "resource": "secrets",
    "version": "v1",
    "selector": {"owner": "Provider"},
    "state": "Accepted",
}
SAID = {
    "group": "",
    "resource": "secrets",
    "version": "v1",
    "owner": "Provider",
    "names": ["*"],
    "namespaces": ["*"],
    "state": "Accepted",
}
NOBODY = (plane(), cluster())
ONE = imports.Import("gi.o", "pgs", ("shop",), (SAID,), {})
NARROW = {**SAID, "names": ["a"]}


def foreign(*claims, clusters=("shop",)):
    """A world of bindings that nobody adopted; claims as they are on the wire."""
    here = World(
        control_plane=offering(POSTGRES, claims=[{**DOWN, "state": "", "selector": {}}]),
        clusters={name: [] for name in clusters},
    )
    more = ", claims: [{resource: secrets, version: v1, owner: Provider}]"
    named = [cluster(name) for name in clusters]
    here.apply(here.plan(fleet(plane(), *named, binding(clusters=", ".join(clusters), more=more))))
    for where in (PLANE, *clusters):
        for one in list(here.objects(where)):
            here.objects(where).remove(one)
            bare = {
                k: v
                for k, v in get_map(one, "metadata").items()
                if k not in ("labels", "annotations")
            }
            here.objects(where).append({**one, "metadata": bare})
    for name in clusters if claims else ():
        change(here, name, API_SERVICE_BINDING, POSTGRES, list(claims), "spec", "permissionClaims")
    return here


def found(here, *wanted):
    read = fleet(*(wanted or NOBODY))
    return imports.imports(read, here.live(read))


CLAIMS = {
    "as it is": ([DOWN], [SAID]),
    "narrower": (
        [{**DOWN, "selector": {"owner": "Provider", "names": ["b", "a"], "namespaces": ["x"]}}],
        [{**SAID, "names": ["a", "b"], "namespaces": ["x"]}],
    ),
    "of no namespace": (
        [{**DOWN, "selector": {"owner": "Provider", "namespaces": []}}],
        [{**SAID, "namespaces": []}],
    ),
    "by labels": (
        [{**DOWN, "selector": {"owner": "Consumer", "labelSelectors": [{"b": "1"}, {"a": "1"}]}}],
        [{**SAID, "owner": "Consumer", "labels": [{"a": "1"}, {"b": "1"}]}],
    ),
    "rejected": ([{**DOWN, "state": "Rejected"}], [{**SAID, "state": "Rejected"}]),
}


@pytest.mark.parametrize(("wire", "said"), CLAIMS.values(), ids=CLAIMS.keys())
def test_claims_are_said_as_they_are_live(wire, said):
    (one,) = found(foreign(*wire)).found
    assert [dict(claim) for claim in one.claims] == [
        {key: claim[key] for key in claim} for claim in said
    ]


LEFT = {
    "a claim of nobody": ([{**DOWN, "selector": {}}], "names no owner"),
    "a claim by fields": (
        [{**DOWN, "selector": {"owner": "Provider", "fieldSelectors": ["type=x"]}}],
        "selects by fields",
    ),
    "a claim that waits": ([{**DOWN, "state": ""}], "neither accepted nor rejected"),
    "a name that is none": (
        [{**DOWN, "selector": {"owner": "Provider", "names": ["ok", "A B"]}}],
        "files cannot have its spec.claims.0.names.0",
    ),
    "a name that files would replace": (
        [{**DOWN, "selector": {"owner": "Provider", "names": ["${vars.x}"]}}],
        "files would replace the ${ in it",
    ),
}


@pytest.mark.parametrize(("wire", "why"), LEFT.values(), ids=LEFT.keys())
def test_what_files_cannot_say_is_left(wire, why):
    made = found(foreign(*wire))
    assert made.found == ()
    ((name, reason),) = made.left
    assert name == f"shop/{POSTGRES}"
    assert why in reason


def test_files_that_lost_all_their_units_get_them_back():
    (one,) = found(applied()).found
    assert (one.group, one.resource, one.clusters) == (
        "anynines.com",
        "postgresqlinstances",
        ("shop",),
    )


@pytest.mark.parametrize("mode", MODES)
def test_what_left_the_files_is_let_go_and_not_imported(mode):
    made = found(applied(mode=mode), plane(mode=mode), cluster(), binding("searches"))
    assert made.found == ()
    ((name, reason),) = made.left
    assert name == f"shop/{POSTGRES}"
    assert "put its Binding back" in reason


def test_clusters_that_are_bound_alike_share_a_binding():
    here = foreign(clusters=("shop", "web", "away"))
    one_more: Manifest = {**DOWN, "selector": {"owner": "Provider", "names": ["x"]}}
    change(here, "away", API_SERVICE_BINDING, POSTGRES, [one_more], "spec", "permissionClaims")
    made = found(here, plane(), cluster("shop"), cluster("web"), cluster("away"))
    assert sorted(one.clusters for one in made.found) == [("away",), ("shop", "web")]
    assert imports.units_of(made.found) == 3


def test_what_is_ours_or_in_the_files_is_not_imported():
    assert found(applied(), *NOBODY, binding()) == imports.Imports(())
    assert found(foreign(), *NOBODY, binding()) == imports.Imports(())


@pytest.mark.parametrize("with_secret", [True, False])
def test_what_leads_elsewhere_is_left(with_secret):
    here = applied()
    here.clusters["shop"].append(foreign_binding(SEARCH))
    if with_secret:
        here.clusters["shop"].append(secret_leading_to("their-space", "them", "theirs"))
    ((name, reason),) = found(here, *NOBODY, binding()).left
    assert name == f"shop/{SEARCH}"
    there = "their-space" if with_secret else "an unknown place"
    assert f"leads to {there}, not to" in reason


def test_parameters_only_where_they_are_known_to_be_in_force():
    here = foreign()
    request = next(o for o in here.control_plane if o["kind"] == "APIServiceExportRequest")
    here.control_plane.remove(request)
    here.control_plane.append(put(request, {"size": 1}, "spec", "parameters"))
    (one,) = found(here).found
    assert one.parameters == {}
    path = ("metadata", "annotations")
    change(here, "shop", API_SERVICE_BINDING, POSTGRES, {keys.PARAMETERS: "0"}, *path)
    ((_, reason),) = found(here).left
    assert "by their digest only" in reason


def written(loaded, *found_):
    return "\n---\n".join(
        "\n".join(manifests.yaml_lines(o)) for o in imports.documents(loaded, found_)
    )


def test_the_documents_take_over_what_they_name_and_change_nothing():
    here = foreign(clusters=("shop", "web"))
    files = (plane(), cluster("shop"), cluster("web"))
    made = found(here, *files)
    read = fleet(*files)
    text = written(
        load_valid_part(Snapshot({"fleet.yaml": HEAD + "".join(files).encode()}, ""), []),
        *made.found,
    )
    wanted = fleet(*files, f"---\n{text}\n")
    assert len(wanted.units) == 2
    plan = planner.plan(wanted, here.live(wanted))
    assert imports.settled(made, plan) == made
    assert not plan.widened
    assert read.units == {}


def test_what_its_file_would_change_is_left_alone():
    here = foreign({**DOWN, "create": {"replaceExisting": True}})
    made = found(here)
    wanted = fleet(
        *NOBODY, binding(more=", claims: [{resource: secrets, version: v1, owner: Provider}]")
    )
    kept = imports.settled(made, planner.plan(wanted, here.live(wanted)))
    assert kept.found == ()
    assert "taking it over would change /spec/permissionClaims" in kept.left[0][1]


HEAD = b"apiVersion: fleet.klutchctl.dev/v1alpha1\nkind: Fleet\nmetadata: {name: acme}\nspec: {}\n"


def repository(changes=None):
    loaded = load_valid_part(tree(changes or {}), [])
    assert loaded is not None
    return loaded


def said_of(loaded, *found_):
    """(kind, name, spec) of each document."""
    text = written(loaded, *found_)
    return [(d["kind"], d["metadata"]["name"], d["spec"]) for d in yaml.safe_load_all(text)]


def without_state(claim):
    return {key: value for key, value in claim.items() if key != "state"}


def test_a_new_template_has_what_is_accepted_anywhere_as_its_most():
    narrow = imports.Import("gi.o", "pgs", ("away",), (NARROW,), {})
    template, all_of_it, less = said_of(repository(), ONE, narrow)
    claims = [without_state(NARROW), without_state(SAID)]
    assert template[:2] == ("Template", "pgs")
    assert sorted(template[2]["claims"], key=str) == sorted(claims, key=str)
    assert all_of_it == (
        "Binding",
        "pgs",
        {"template": "pgs", "clusters": {"names": ["shop"]}, "claims": [SAID]},
    )
    assert less[1:] == (
        "pgs-2",
        {"template": "pgs", "clusters": {"names": ["away"]}, "claims": [NARROW]},
    )


def test_a_template_of_the_files_that_fits_is_used():
    fitting = TEMPLATE.replace(", names: [a, b]", "")
    ((kind, name, spec),) = said_of(repository({"templates/pg.yaml": fitting}), ONE)
    assert (kind, name, spec) == (
        "Binding",
        "pgs",
        {"template": "pg", "clusters": {"names": ["shop"]}},
    )


def test_names_that_are_taken_are_not_taken_again():
    long = "x" * 60
    taken = {
        "bindings/pgs.yaml": document(
            "Binding", "pgs", "{template: pg, clusters: {names: [], optional: true}}"
        )
    }
    names = [name for _, name, _ in said_of(repository(taken), ONE)]
    assert names == ["pgs", "pgs-2"]
    first, *_ = said_of(repository(), imports.Import("gi.o", long, ("shop",), (), {}))
    assert first[1] == "x" * 40


INCLUDES = {
    "a folder of Bindings": (
        "['templates/*.yaml', 'bindings/**/*.yaml']",
        "bindings/imported.yaml",
    ),
    "any folder": ("['*/*.yaml']", None),
    "another folder": ("['x/*.yaml']", "x/imported.yaml"),
    "none": ("[]", None),
    "one file": ("['bindings/db.yaml']", None),
}


@pytest.mark.parametrize(("include", "path"), INCLUDES.values(), ids=INCLUDES.keys())
def test_where_the_file_belongs(include, path):
    made = load_valid_part(
        tree({"fleet.yaml": document("Fleet", "acme", f"{{include: {include}}}")}), []
    )
    assert made is not None
    assert imports.place(made, "imported.yaml") == path
    if path:
        assert imports.belongs(made, path)
    assert not imports.belongs(made, "../bindings/imported.yaml")
