"""Secrets are shown by digest; nothing of a value remains."""

import base64
import json

import pytest

from reconciler.core.manifest import Manifest, annotations_of
from reconciler.core.secret import LAST_APPLIED, redact, value_digest

VALUE = "correct horse battery"
ENCODED = base64.b64encode(VALUE.encode()).decode()
DIGEST = value_digest("u", VALUE.encode())


def secret(**fields):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "uid": "u"}, **fields}


def with_annotation(manifest, key, text):
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": {key: text, "k": "v"}}}


APPLIED = json.dumps({"apiVersion": "v1", "kind": "Secret", "data": {"password": ENCODED}})

SHOWN = {
    "data": (secret(data={"p": ENCODED}), {"data": {"p": DIGEST}}),
    "stringData has the digest of the same data": (
        secret(stringData={"p": VALUE}),
        {"stringData": {"p": DIGEST}},
    ),
    "data that is not base64": (
        secret(data={"p": "%%%"}),
        {"data": {"p": value_digest("u", b"%%%")}},
    ),
    "a value that is not text": (
        secret(data={"p": [VALUE]}),
        {"data": {"p": value_digest("u", json.dumps([VALUE]).encode())}},
    ),
    "data that is not an object": (secret(data=VALUE), {"data": {}}),
    "type and immutable stay": (
        secret(type="Opaque", immutable=True),
        {"type": "Opaque", "immutable": True},
    ),
}


@pytest.mark.parametrize(("manifest", "want"), SHOWN.values(), ids=SHOWN.keys())
def test_what_is_shown_of_a_secret(manifest, want):
    assert redact(manifest) == {**secret(), **want}


ANNOTATIONS = {
    "kubectl's record": (LAST_APPLIED, APPLIED),
    "another tool's record": ("kapp.example/original", APPLIED),
    "the plain value in a sentence": ("note", f"the password is {VALUE}!"),
}


@pytest.mark.parametrize(("key", "text"), ANNOTATIONS.values(), ids=ANNOTATIONS.keys())
def test_annotations_that_repeat_the_data(key, text):
    shown = redact(with_annotation(secret(data={"p": ENCODED}), key, text))
    assert VALUE not in repr(shown)
    assert ENCODED not in repr(shown)
    assert annotations_of(shown)["k"] == "v"
    assert len(annotations_of(shown)[key]) == 16


def test_metadata_of_a_secret_may_carry_its_data_too():
    partial: Manifest = {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadata",
        "metadata": {},
    }
    assert ENCODED not in repr(redact(with_annotation(partial, LAST_APPLIED, APPLIED)))


OTHERS = {
    "a ConfigMap": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"p": VALUE}},
    "a Secret of another group": {"apiVersion": "x/v1", "kind": "Secret", "data": {"p": VALUE}},
    "kubectl's record of a ConfigMap": {
        "kind": "ConfigMap",
        "metadata": {"annotations": {LAST_APPLIED: json.dumps({"kind": "ConfigMap"})}},
    },
}


@pytest.mark.parametrize("manifest", OTHERS.values(), ids=OTHERS.keys())
def test_other_kinds_are_left_alone(manifest):
    assert redact(manifest) is manifest


def test_the_digest_is_salted_by_the_uid():
    assert value_digest("u", b"x") != value_digest("v", b"x")
    new: Manifest = {"apiVersion": "v1", "kind": "Secret", "stringData": {"p": VALUE}}
    assert redact(new, uid="u")["stringData"] == {"p": DIGEST}
    assert redact(new)["stringData"] != {"p": DIGEST}


def test_the_digest_itself():
    # sha256("klutchctl/v1" + "u" + '"eA=="'), so that saved plans stay comparable.
    assert value_digest("u", b"x") == "4bd06850822a9933"


def test_the_input_is_left_alone():
    manifest = with_annotation(secret(data={"p": ENCODED}), LAST_APPLIED, APPLIED)
    before = json.dumps(manifest)
    redact(manifest)
    assert json.dumps(manifest) == before
