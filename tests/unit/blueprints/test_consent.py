"""What people read of permission claims, and what is made of their choices (D.6, F23)."""

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
OBJECTS = 'queues objects (apiVersion: "shop.example/v1")'
WISH = f"The provider wants to read and write {OBJECTS}"
RESERVED = "  RESERVED: it is of your cluster itself, or of what connects it"
OPTIONAL = "Accepting this Permission is optional."


def test_claims_of_the_capture_read_as_there():
    # 03-default-mode-oidc/13-bind.cli.txt
    assert [consent.sentences(claim) for claim in (SECRETS, BACKUPS)] == [
        'The provider wants to write secrets objects (apiVersion: "v1")'
        " which are referenced with:\n"
        '\t- name: "*"\n'
        "on your cluster.\n"
        "Created objects will be recreated upon deletion."
        " Accepting this Permission is required in order to proceed.",
        'The provider wants to read configmaps objects (apiVersion: "v1")'
        " which are referenced with:\n"
        '\t- name: "backup-settings"\n'
        "on your cluster.\n"
        f"Created objects will be recreated upon deletion. {OPTIONAL}",
    ]


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({}, f"The provider wants to read and write {OBJECTS} on your cluster.\n{OPTIONAL}"),
        (
            {"autoDonate": True},
            f"The provider wants to create user-owned {OBJECTS} on your cluster.\n{OPTIONAL}",
        ),
        (
            {"autoAdopt": True, "selector": {"owner": "Provider"}},
            f"The provider wants to have ownership of {OBJECTS} on your cluster.\n{OPTIONAL}",
        ),
        (
            {"selector": {"names": ["a", "b"]}},
            f"The provider wants to read and write {OBJECTS} which are referenced with:\n"
            f'\t- name: "a"\n\t- name: "b"\non your cluster.\n{OPTIONAL}',
        ),
        (
            {"create": {"replaceExisting": True}, "update": {"alwaysRecreate": True}},
            f"The provider wants to read and write {OBJECTS} on your cluster.\n"
            "Objects that exist already will be replaced."
            f" Changed objects will be deleted and created again. {OPTIONAL}",
        ),
        (
            {"update": {"fields": ["spec.size"], "preserving": ["spec.note", "spec.owner"]}},
            f"The provider wants to read and write {OBJECTS} on your cluster.\n"
            "After they were created, it changes only these fields of them:\n"
            '\t"spec.size"\n'
            "It leaves these fields of them as they are on your cluster:\n"
            '\t"spec.note"\n\t"spec.owner"\n'
            f"{OPTIONAL}",
        ),
        *(
            ({"selector": {"namespaces": none}}, f"{WISH} on your cluster.\n{OPTIONAL}")
            for none in ([], ["*"])
        ),
        (
            {"selector": {"namespaces": ["shop", "kube-system", "klutch-bind"]}},
            f"{WISH} on your cluster.\nThey are in these namespaces:\n"
            f'\t- namespace: "kube-system"{RESERVED}\n\t- namespace: "klutch-bind"{RESERVED}\n'
            f'\t- namespace: "shop"\n{OPTIONAL}',
        ),
        (
            {"selector": {"names": ["a"], "namespaces": ["*", "kube-public"]}},
            f'{WISH} which are referenced with:\n\t- name: "a"\non your cluster.\n'
            f'They are in these namespaces:\n\t- namespace: "kube-public"{RESERVED}\n'
            f'\t- namespace: "*"\n{OPTIONAL}',
        ),
        (
            {
                "selector": {
                    "labelSelectors": [{"b": "2", "a": "1"}, {}],
                    "fieldSelectors": ["type=x"],
                }
            },
            f"{WISH} on your cluster.\nThey have all labels of one of these lines:\n"
            f'\t{{"a": "1", "b": "2"}}\n\t{{}}\n'
            f'They have all of these fields:\n\t"type=x"\n{OPTIONAL}',
        ),
    ],
)
def test_what_a_claim_says_is_said(said, text):
    assert consent.sentences({**PLAIN, **said}) == text


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
    assert [line for line in text.splitlines() if line.startswith("Accepting")] == [OPTIONAL]


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
