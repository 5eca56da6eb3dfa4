"""What permission claims select (protocol-konnector.md E.1, H1, H2; mapping.md 0 and 7)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konnector.permission_claim.rules import Claims, Rule, rules_of
from reconciler.core.refs import ObjectKey

SECRETS = {"resource": "secrets", "version": "v1", "state": "Accepted"}
ALL = Rule("", "v1", "secrets", "databases.shop.example")
CREDS = ObjectKey("team-a", "creds")


def claim(**more):
    return {**SECRETS, **more}


def selecting(**selector):
    return claim(selector=selector)


def binding(*claims):
    name = "databases.shop.example"
    return {"metadata": {"name": name}, "spec": {"permissionClaims": list(claims)}}


def labels(**pairs):
    return frozenset(pairs.items())


READ = {
    "the CRD's defaults say the same": (
        claim(group="", read={}, onConflict={"recreateWhenConsumerSideDeleted": True},
              selector={"names": ["*"], "namespaces": ["*"]}), ALL,
    ),
    "names": (
        selecting(names=["creds", "other"]),
        replace(ALL, names=frozenset({"creds", "other"}), literal=frozenset({"creds", "other"})),
    ),
    "app namespaces": (
        selecting(namespaces=["team-a"]), replace(
            ALL, namespaces=frozenset({"team-a"}), literal_namespaces=frozenset({"team-a"})
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given_claim", "want"), READ.values(), ids=READ.keys())
def test_what_a_claim_means(given_claim, want):
    assert rules_of(binding(given_claim)) == Claims((want,))


def test_what_is_not_accepted_says_nothing():
    assert rules_of(binding(claim(state="Rejected"))) == Claims()


SUBJECT = "Permission claim 1 (secrets)"
REMOVE = "is not supported; remove it to have the claim obeyed"


@pytest.mark.parametrize("state", ["Rejected", ""])
def test_a_required_claim_that_is_not_accepted_is_reported(state):
    """F23: the original's CLI binds all the same."""
    claims = rules_of(binding(claim(state=state, required=True)))
    (why,) = claims.unsupported
    assert not claims.rules
    assert why.startswith(f"{SUBJECT} is not accepted here, and the provider requires it")


FIELDS = "metadata.name, metadata.namespace and type are"
REFUSED = {
    "adoption": (claim(autoAdopt=True), f"autoAdopt {REMOVE}"),
    "donation": (claim(autoDonate=True), f"autoDonate {REMOVE}"),
    "labels that may be read": (
        claim(read={"labels": [{"pattern": "a"}]}), f"read.labels {REMOVE}",
    ),
    "fields that may be updated": (
        claim(update={"fields": ["data.a"]}), f"update.fields {REMOVE}",
    ),
    "fields to keep": (
        claim(update={"preserving": ["data.a"]}),
        f"update.preserving {REMOVE}",
    ),
    "another field selector": (
        selecting(fieldSelectors=["type=Opaque,spec.nodeName=n"]),
        f"the field selector 'spec.nodeName=n' is not supported; {FIELDS}",
    ),
    "an empty field selector": (
        selecting(fieldSelectors=[""]),
        f"the field selector '' is not supported; {FIELDS}",
    ),
    "an operator that field selectors do not have": (
        selecting(fieldSelectors=["type in (Opaque)"]),
        f"the field selector 'type in (Opaque)' is not supported; {FIELDS}",
    ),
    "an escaped field selector": (
        selecting(fieldSelectors=["type=a\\"]),
        f"the field selector 'type=a\\' is not supported; {FIELDS}",
    ),
    "names in a text": (
        selecting(names="creds"), "selector.names is not a list",
    ),
    "a name that is a number": (
        selecting(names=["creds", 1]),
        "selector.names contains other things than texts",
    ),
    "namespaces in a map": (
        selecting(namespaces={}), "selector.namespaces is not a list",
    ),
    "another owner": (
        selecting(owner="provider"),
        "selector.owner is neither Provider nor Consumer",
    ),
    "an owner that is no text": (
        selecting(owner=True), "owner is not a text",
    ),
    "a selector that is a list": (
        claim(selector=[]), "selector is not an object",
    ),
    "labels in a text": (
        selecting(labelSelectors=["a=b"]),
        "selector.labelSelectors contains other things than maps of labels",
    ),
    "a label that is a number": (
        selecting(labelSelectors=[{"a": "1", "b": 2}]),
        "selector.labelSelectors contains a label that is not a text",
    ),
    "an update that is a list": (
        claim(update=["fields"]), "update is not an object",
    ),
    "no version": (
        {"resource": "secrets", "state": "Accepted"}, "version is missing",
    ),
    "a group that is a number": (claim(group=1), "group is not a text"),
    "a version with its group": (claim(version="apps/v1"), "'apps/v1' is not a version"),
    "a version that leads elsewhere": (claim(version=".."), "'..' is not a version"),
}  # fmt: skip


@pytest.mark.parametrize(("given_claim", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_obeyed_selects_nothing_and_is_reported(given_claim, why):
    reported = f"{SUBJECT} is not followed: {why}"
    assert rules_of(binding(given_claim)) == Claims((), (reported,))


def test_a_claim_without_a_resource_is_known_by_its_number_alone():
    claims = rules_of(binding({"version": "v1", "state": "Accepted"}))
    assert claims == Claims((), ("Permission claim 1 is not followed: resource is missing",))


FOLLOWED = {
    "labels of copies": (
        claim(read={"labelsOnProviderOwnedObjects": [{"pattern": "a"}]}),
        "read.labelsOnProviderOwnedObjects",
    ),
    "annotations of the developer's": (
        claim(read={"overrideAnnotations": [{}]}), "read.overrideAnnotations",
    ),
    "recreation instead of update": (
        claim(update={"alwaysRecreate": True}), "update.alwaysRecreate",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given_claim", "path"), FOLLOWED.values(), ids=FOLLOWED.keys())
def test_what_would_only_add_is_reported_and_the_claim_followed(given_claim, path):
    why = f"{SUBJECT} is followed without {path}, which is not supported"
    assert rules_of(binding(given_claim)) == Claims((ALL,), (why,))


def test_a_group_cannot_lead_elsewhere():
    claims = rules_of(binding(claim(group="../api")))
    (why,) = claims.unsupported
    assert why.endswith("is not followed: '../api' is not a group")


def test_one_bad_claim_spares_the_others_and_is_known_by_its_number():
    claims = rules_of(binding(claim(), claim(autoAdopt=True), claim(resource="configmaps")))
    assert [rule.resource for rule in claims.rules] == ["secrets", "configmaps"]
    assert [why[:26] for why in claims.unsupported] == ["Permission claim 2 (secret"]


def test_foreign_text_in_a_sentence_is_cut_short():
    claims = rules_of(
        binding(claim(resource="r" * 5000, selector={"fieldSelectors": ["f" * 5000]}))
    )
    assert len(claims.unsupported[0]) < 400


EVERYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "*", "Accepted", "creds"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["names", "labels", "owner", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
PARTS = ("group", "version", "resource", "selector", "read", "create", "update", "onConflict",
         "autoAdopt", "autoDonate", "required", "state")  # fmt: skip
SELECTORS = ("names", "namespaces", "owner", "labelSelectors", "fieldSelectors")
BROKEN = st.dictionaries(st.sampled_from(PARTS), EVERYTHING)


@given(EVERYTHING | st.fixed_dictionaries({"permissionClaims": st.lists(BROKEN) | EVERYTHING}))
def test_no_binding_makes_it_fail(spec):
    rules_of({"metadata": {"name": "x"}, "spec": spec})


@given(BROKEN, st.dictionaries(st.sampled_from(SELECTORS), EVERYTHING))
def test_whatever_else_a_claim_says_it_never_selects_another_name(broken, selector):
    read = rules_of(binding({**broken, **SECRETS, "selector": {**selector, "names": ["mine"]}}))
    assert not any(rule.selects(CREDS, {}) for rule in read.rules)


OBJECT: Any = {"metadata": {"labels": {"a": "1", "b": "2"}}, "type": "Opaque"}
SELECTED = {
    "another name": ({"names": ["other"]}, False),
    "its namespace": ({"namespaces": ["team-a"]}, True),
    "one of two selectors": ({"labelSelectors": [{"c": "3"}, {"b": "2"}]}, True),
    "not its type": ({"fieldSelectors": ["type!=Opaque"]}, False),
    "its name as a field": ({"fieldSelectors": ["metadata.name==creds"]}, True),
    "its app namespace as a field": ({"fieldSelectors": ["metadata.namespace=team-a"]}, True),
}


@pytest.mark.parametrize(("selector", "want"), SELECTED.values(), ids=SELECTED.keys())
def test_selection(selector, want):
    (rule,) = rules_of(binding(claim(selector=selector))).rules
    assert rule.selects(CREDS, OBJECT) is want


def test_of_metadata_alone_the_type_is_taken_to_agree():
    (rule,) = rules_of(binding(selecting(fieldSelectors=["type=x", "metadata.name=creds"]))).rules
    assert rule.selects(CREDS, {}, partial=True)
    assert not rule.selects(CREDS, {})
    assert not rule.selects(ObjectKey("team-a", "other"), {}, partial=True)


def test_a_cluster_scoped_object_is_in_no_namespace():
    everywhere, nowhere, somewhere = (
        rules_of(binding(selecting(namespaces=listed))).rules[0] for listed in (["*"], [], ["a"])
    )
    place = ObjectKey("", "x")
    assert [rule.reaches(place) for rule in (everywhere, nowhere, somewhere)] == [True, True, False]
