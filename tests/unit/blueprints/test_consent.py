"""What people read of permission claims, and what is made of their choices (F23)."""

from typing import Any

import pytest

from reconciler.blueprints import consent
from tests.support.binding_objects import SECRETS

BACKUPS: dict[str, Any] = {
    "resource": "configmaps",
    "version": "v1",
    "selector": {"names": ["backup-settings"], "namespaces": ["*"], "owner": "Consumer"},
    "required": False,
}
PLAIN: dict[str, Any] = {
    "group": "shop.example",
    "resource": "queues",
    "version": "v1",
    "onConflict": {"recreateWhenConsumerSideDeleted": False},
}
OPTIONAL = "The provider asks for this (optional): "


def test_a_prompt_has_a_heading_and_a_row_for_each_thing_that_is_agreed_to():
    assert [consent.sentences(claim) for claim in (SECRETS, BACKUPS)] == [
        "The provider asks for this (required): Put Secrets into your namespaces\n"
        "\tWhich: all names\n"
        "\tWhere: in all namespaces but the cluster's own\n"
        "\tIf you delete one: it comes back\n"
        "\tWithout it: the service is not bound",
        f"{OPTIONAL}Read ConfigMaps in your namespaces\n"
        '\tWhich: with these names: "backup-settings"\n'
        "\tWhere: in all namespaces but the cluster's own\n"
        "\tIf you delete one: the provider's copy goes, too\n"
        "\tWithout it: the service cannot read them, and may not work",
    ]


@pytest.mark.parametrize(
    "forged", ['a"\nAccepting this Permission is optional.', "\u202e", "\x1b[2K"]
)
@pytest.mark.parametrize(
    "field", ["group", "resource", "version", "names", "fields", "namespaces", "labels"]
)
def test_no_text_of_a_provider_makes_a_line_or_hides_one(forged, field):
    claim = {
        **PLAIN,
        **{field: forged},
        "selector": {
            "names": [forged] if field == "names" else [],
            "namespaces": [forged] if field == "namespaces" else ["*"],
            "labelSelectors": [{forged: forged}] if field == "labels" else [],
            "fieldSelectors": [forged] if field == "fields" else [],
        },
        "update": {"fields": [forged] if field == "fields" else []},
    }
    text = consent.sentences(claim)
    assert text.isascii()
    assert text.replace("\n", "").replace("\t", "").isprintable()
    heading, *rows = text.splitlines()
    assert heading.startswith(OPTIONAL)
    assert all(row.startswith("\t") for row in rows)
    assert [row for row in rows if row.startswith("\tWithout it")] == rows[-1:]


WHOLE = {
    "group": "shop.example",
    "resource": "queues",
    "version": "v1",
    "selector": {
        "names": ["n-1", "n-2"],
        "namespaces": ["shop", "kube-system"],
        "labelSelectors": [{"a": "1"}, {"b": "2"}],
        "fieldSelectors": ["type=x"],
    },
    "create": {"replaceExisting": True},
    "onConflict": {"recreateWhenConsumerSideDeleted": False},
    "update": {"alwaysRecreate": True, "fields": ["spec.a"], "preserving": ["spec.b"]},
}


def rows(claim):
    return {row.name: (row.text, tuple(row.items)) for row in consent.terms(claim).rows}


def test_the_rows_of_a_page_have_all_that_a_prompt_has():
    assert rows(WHOLE) == {
        "Which": ("with these names:", ("n-1", "n-2")),
        "Labels": ("all of one of these lines:", ('{"a": "1"}', '{"b": "2"}')),
        "Fields": ("only those with all of these:", ("type=x",)),
        "Where": ("in these namespaces:", ("shop", "kube-system")),
        "Reserved": ("in these, of your cluster itself or of what connects it:", ("kube-system",)),
        "If you delete one": ("it stays away", ()),
        "If one is there": ("it is replaced", ()),
        "If one changes": ("it is deleted, and made again", ()),
        "Changes": ("of these fields alone, once they are there:", ("spec.a",)),
        "Keeps": ("these fields as they are in your cluster:", ("spec.b",)),
        "Without it": ("they do not arrive in your cluster, and the service may not work", ()),
    }
    wide = {**PLAIN, "selector": {"names": ["a", "*"], "namespaces": ["*", "kube-public", "x"]}}
    assert rows(wide)["Which"] == ("all names, and with these names:", ("a",))
    everywhere = "in all namespaces but the cluster's own, and in these namespaces:"
    assert rows(wide)["Where"] == (everywhere, ("kube-public", "x"))
    assert rows(wide)["Reserved"][1] == ("kube-public",)


@pytest.mark.parametrize(
    ("said", "heading"),
    [
        ({"selector": {"owner": "Provider"}}, "Put Secrets into your namespaces"),
        ({"selector": {"owner": "Consumer"}}, "Read Secrets in your namespaces"),
        ({}, "Read and write Secrets in your namespaces"),
        ({"selector": {"owner": "Me"}}, "Read and write Secrets in your namespaces"),
        ({"autoAdopt": True}, "Take over Secrets in your namespaces"),
        ({"autoDonate": True}, "Put Secrets into your namespaces, which are yours from then on"),
        ({"group": "x.example"}, "Read and write secrets.x.example in your namespaces"),
        ({"resource": "Secrets"}, "Read and write Secrets in your namespaces"),
    ],
)
def test_a_claim_has_a_heading(said, heading):
    terms = consent.terms({"resource": "secrets", "version": "v1", **said})
    assert f"{terms.begin} {terms.kind} {terms.end}" == heading


@pytest.mark.parametrize(
    ("chosen", "states", "missed"),
    [
        ({0, 1, 2}, ["Accepted", "Accepted", "Accepted"], []),
        ({0}, ["Accepted", "Rejected", "Rejected"], []),
        ({1}, ["Rejected", "Accepted", "Rejected"], ["secrets"]),
        (set(), ["Rejected", "Rejected", "Rejected"], ["secrets"]),
    ],
)
def test_what_is_not_chosen_is_rejected_and_a_required_claim_is_named(chosen, states, missed):
    claims = [SECRETS, BACKUPS, PLAIN]
    stated = consent.accepted(claims, chosen)
    assert stated == [{**claim, "state": one} for claim, one in zip(claims, states, strict=True)]
    assert consent.required_rejected(claims, chosen) == missed


def test_a_kind_is_named_with_its_group():
    assert list(map(consent.claim_key, (SECRETS, PLAIN))) == ["secrets", "queues.shop.example"]


@pytest.mark.parametrize(
    ("namespaces", "state", "opened"),
    [
        (["shop", "kube-system"], "Accepted", ["secrets in kube-system"]),
        (["shop", "kube-system"], "Rejected", []),
        (["*"], "Accepted", []),
    ],
)
def test_namespaces_of_the_cluster_itself_are_named_where_they_are_accepted(
    namespaces, state, opened
):
    claim = {**SECRETS, "selector": {"namespaces": namespaces}, "state": state}
    assert consent.reserved([claim]) == opened
