"""What of commits and tags was signed, and by whom they say it was."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.source import signature
from reconciler.source.signature import Refused
from tests.support.signing import ALICE, AT, armored, commit_text, with_signature

TREE, PARENT = "1" * 40, "2" * 40
SIGNATURE = armored(b"x" * 100)
TEXT = commit_text(TREE, [PARENT, "3" * 40], note="one\n\n two\n")


def refusal(read, raw):
    with pytest.raises(Refused) as caught:
        read(raw)
    return caught.value.why


def test_a_commit_with_a_signature():
    found = signature.commit(with_signature(TEXT, SIGNATURE))
    assert found.targets == (PARENT, "3" * 40)
    assert (found.email, found.time.timestamp()) == (ALICE, AT)
    assert (found.payload, found.signature) == (TEXT, SIGNATURE)


def test_a_commit_without_one():
    found = signature.commit(TEXT)
    assert (found.payload, found.signature) == (TEXT, b"")


def test_what_looks_like_a_field_in_the_message_is_none():
    text = commit_text(TREE, note=f"x\n\nparent {PARENT}\ngpgsig {SIGNATURE.decode()}")
    found = signature.commit(text)
    assert (found.targets, found.signature, found.payload) == ((), b"", text)


SIGNED = with_signature(TEXT, SIGNATURE)
COMMITS = {
    "two signatures": (with_signature(SIGNED, SIGNATURE), "it has more than one signature"),
    "two, one for SHA-256": (
        with_signature(SIGNED, SIGNATURE, b"gpgsig-sha256"),
        "it has more than one signature",
    ),
    "one for SHA-256": (
        with_signature(TEXT, SIGNATURE, b"gpgsig-sha256"),
        "its signature is for a repository with SHA-256",
    ),
    "no committer": (b"tree 1\n\nx", "its committer is not a name, <address> and time"),
    "two committers": (
        TEXT.replace(b"author ", b"committer "),
        "its committer is not a name, <address> and time",
    ),
    "two addresses": (TEXT.replace(b"<alice", b"<bob@x> <alice"), "its committer is not a name"),
    "a long address": (TEXT.replace(b"<alice", b"<" + b"a" * 255), "its committer is not a name"),
    "no UTF-8": (TEXT.replace(b"<alice", b"<\xff"), "has no readable address or time"),
    "a far time": (TEXT.replace(b"> 1700000000 +02", b"> 999999999999 +02"), "or time"),
    "a parent without id": (TEXT.replace(PARENT.encode(), b"../x"), "a parent or target by no id"),
}


@pytest.mark.parametrize(("raw", "why"), COMMITS.values(), ids=COMMITS.keys())
def test_commits_that_are_refused(raw, why):
    assert why in refusal(signature.commit, raw)


TAG = f"object {PARENT}\ntype commit\ntag v1\ntagger A <{ALICE}> {AT} +0000\n\nfirst\n".encode()


@pytest.mark.parametrize("armor", [SIGNATURE, b"-----BEGIN PGP SIGNATURE-----\n\nx\n"])
def test_a_tag_with_a_signature(armor):
    name, found = signature.tag(TAG + armor)
    assert (name, found.targets, found.email) == ("v1", (PARENT,), ALICE)
    assert (found.payload, found.signature) == (TAG, armor)


def test_a_tag_without_one():
    _, found = signature.tag(TAG)
    assert (found.payload, found.signature) == (TAG, b"")


TAGS = {
    "of a tag": (TAG.replace(b"type commit", b"type tag"), "something else than a commit"),
    "of nothing": (TAG.replace(b"object", b"subject"), "something else than a commit"),
    "by nobody": (TAG.replace(b"tagger", b"tiger"), "its tagger is not a name"),
}


@pytest.mark.parametrize(("raw", "why"), TAGS.values(), ids=TAGS.keys())
def test_tags_that_are_refused(raw, why):
    assert why in refusal(signature.tag, raw)


@given(st.binary(), st.integers(0, len(SIGNED)), st.integers(0, len(SIGNED)))
def test_any_bytes_are_read_or_refused_in_words(noise, start, end):
    for read in (signature.commit, signature.tag):
        for raw in (noise, SIGNED[:start] + noise + SIGNED[end:], TAG + noise):
            with contextlib.suppress(Refused):
                assert read(raw)
