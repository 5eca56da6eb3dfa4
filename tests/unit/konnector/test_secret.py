"""Kubeconfig Secrets: SecretValid, whose they are, and how two of them differ."""

import base64
from typing import Any

import pytest

from konnector.kubeconfig import judge
from reconciler.api import secret_of
from reconciler.blueprints import objects as spaces
from reconciler.core.live import Address
from reconciler.core.refs import ObjectKey
from reconciler.core.secret import Secret

TOKEN = "canary-token-of-the-space"
REFERENCE = {"namespace": "klutch-bind", "name": "kubeconfig-a", "key": "kubeconfig"}
BINDING: Any = {
    "metadata": {"name": "databases.shop.example"},
    "spec": {"kubeconfigSecretRef": REFERENCE},
}


def content(server="https://plane.example", namespace="cluster-a1", token=TOKEN, tls=""):
    return spaces.kubeconfig(Address(server, "", tls), Secret(token), namespace=namespace).encode()


def holding(data, key="kubeconfig"):
    return {"data": {key: base64.b64encode(data).decode()}}


OF_NOBODY = content().replace(b"namespace: cluster-a1", b"extensions: []")
EXEC = content().replace(b"token:", b"exec: {command: sh}\n    tokens:")
OTHER_CONTEXT = content().replace(b"current-context: default", b"current-context: gone")
BAD: dict[str, Any] = {
    "no Secret": None,
    "no data": {},
    "another key": holding(content(), "config"),
    "an empty one": holding(b""),
    "no base64": {"data": {"kubeconfig": "%%%"}},
    "beyond ASCII": {"data": {"kubeconfig": "\u00e4"}},
    "a very long one": holding(content() + b"# junk\n" * 10_000),
    "no kubeconfig": holding(b"just text"),
    "no such context": holding(OTHER_CONTEXT),
    "no namespace": holding(OF_NOBODY),
    "a program to run": holding(EXEC),
    "no text": {"data": {"kubeconfig": 7}},
    "no object": {"data": ["kubeconfig"]},
}


def test_what_is_not_usable(golden):
    lines = []
    for name, held in BAD.items():
        judged = judge.judge(BINDING, held, control_plane_mode=False)
        reported = judged.condition
        assert (reported.type, reported.status, reported.severity) == (
            "SecretValid",
            "False",
            "Error",
        )
        assert TOKEN not in reported.message
        nothing = (judged.usable, judged.identity, judged.namespace, judged.content)
        assert nothing == (False, "", "", b"")
        lines += [name, f"  {reported.reason}: {reported.message}"]
    golden("".join(f"{line}\n" for line in lines), "secrets.txt")


def test_nothing_of_it_is_shown():
    assert TOKEN not in repr(judge.judge(BINDING, holding(content()), control_plane_mode=False))


def test_in_control_plane_mode_no_namespace_is_needed():
    assert judge.judge(BINDING, holding(OF_NOBODY), control_plane_mode=True).usable
    reported = judge.judge(BINDING, None, control_plane_mode=True).condition.message
    assert "kubectl" not in reported


def test_a_binding_without_a_spec_names_no_secret():
    assert secret_of({"metadata": {}}) == ObjectKey("", "")
    judged = judge.judge({"metadata": {}}, None, control_plane_mode=False)
    assert judged.condition.reason == "KubeconfigSecretNotFound"


def test_bindings_share_a_provider_by_content_alone():
    beside = {**holding(content()), "metadata": {"name": "other"}, "type": "Opaque"}
    one, other = (
        judge.judge(BINDING, held, control_plane_mode=False)
        for held in (holding(content()), beside)
    )
    assert one.identity == other.identity
    rotated = judge.judge(BINDING, holding(content(token="new-token")), control_plane_mode=False)
    assert rotated.identity != one.identity


PAIRS = {
    "the same": (content(), True),
    "another server": (content(server="https://other.example"), True),
    "another server, and a name for its certificate": (
        content(server="https://10.0.0.1", tls="plane.example"),
        True,
    ),
    "another token": (content(token="new-token"), False),
    "another server and token": (content("https://other.example", token="new"), False),
    "another namespace": (content(namespace="cluster-b2"), False),
    "a broken one": (b"just text", False),
}


@pytest.mark.parametrize(("other", "want"), PAIRS.values(), ids=PAIRS.keys())
def test_what_differs_in_the_address_alone(other, want):
    assert judge.same_but_for_server(content(), other) is want
    assert judge.same_but_for_server(other, content()) is want


FAULTS = {
    "fit": (content(), ""),
    "another space": (content(namespace="cluster-b2"), "does not lead to namespace cluster-a1"),
    "no space": (OF_NOBODY, "does not lead to namespace cluster-a1"),
    "broken": (b"just text", "has an invalid kubeconfig"),
}


@pytest.mark.parametrize(("data", "sentence"), FAULTS.values(), ids=FAULTS.keys())
def test_faults_of_a_new_kubeconfig(data, sentence):
    said = judge.fault(data, namespace="cluster-a1")
    assert bool(said) is bool(sentence)
    assert sentence in said
    assert TOKEN not in said
