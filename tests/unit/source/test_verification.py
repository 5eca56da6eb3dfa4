"""Which commits may be used: by mode, signatures, and where they lead from."""

import os
import random
import shutil
import subprocess
from datetime import UTC, datetime

import pygit2
import pytest
from pygit2.enums import ObjectType

from reconciler.core.errors import ConfigError
from reconciler.source import verification
from reconciler.source.signature import Signature, Unverified, VerificationMode
from reconciler.source.verification import Incomplete, Verification
from tests.support import signing
from tests.support.signing import ed25519

HEAD, TAG, HISTORY = VerificationMode.HEAD, VerificationMode.TAG, VerificationMode.HISTORY
GOOD, BAD = ed25519(), ed25519(2)
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


@pytest.fixture
def repository(tmp_path):
    return pygit2.init_repository(tmp_path / "fleet.git", bare=True)


@pytest.fixture
def keys(tmp_path):
    file = tmp_path / "allowed"
    file.write_text(f"*@acme.example {GOOD.line}\n")
    return file


@pytest.fixture
def verified(repository, keys):
    def check(mode, commit, *, accepted="", tag=None, ref="refs/tags/v1"):
        checking = Verification(mode, keys, None, lambda: NOW)
        return checking.check(repository, commit, tag=tag, accepted=accepted, ref=ref)

    return check


@pytest.fixture
def refusal(verified):
    def check(mode, commit, **other):
        with pytest.raises(Unverified) as caught:
            verified(mode, commit, **other)
        assert caught.value.revision == commit
        said = str(caught.value)
        assert said.startswith(f"commit {commit[:12]} is not verified: ")
        return said.partition(": ")[2].removesuffix("; see `klutchctl explain SourceUnverified`")

    return check


@pytest.fixture
def commit(repository):
    turns = iter(range(2_000))

    def make(signer=None, **other):
        return signing.signed_commit(repository, {"a": str(next(turns)).encode()}, signer, **other)

    return make


def test_a_head_that_is_signed(verified, commit):
    commit()
    assert verified(HEAD, commit(GOOD)) == Signature(HEAD, "ssh", signing.ALICE)


HEADS = {
    "unsigned": ({}, "it has no signature"),
    "by a stranger": (
        {"signer": BAD},
        f"its signature is by a key that is not listed: {BAD.fingerprint}",
    ),
    "in the name of another": (
        {"signer": GOOD, "email": "mallory@x"},
        f"its signature is by a key that is not one of 'mallory@x': {GOOD.fingerprint}",
    ),
}


@pytest.mark.parametrize(("made", "why"), HEADS.values(), ids=HEADS.keys())
@pytest.mark.parametrize("mode", [HEAD, HISTORY])
def test_a_head_that_is_not_verified(refusal, commit, made, why, mode):
    assert refusal(mode, commit(**made)) == why


def test_a_signature_of_neither_kind(repository, refusal):
    text = signing.commit_text(str(repository.TreeBuilder().write()))
    raw = signing.with_signature(text, b"-----BEGIN SIGNED MESSAGE-----\nx\n")
    made = str(repository.odb.write(ObjectType.COMMIT, raw))
    assert refusal(HEAD, made) == "its signature is neither of SSH nor of GPG"


def test_a_signature_that_was_taken_to_another_commit(repository, refusal, commit):
    raw = repository.odb.read(commit(GOOD))[1].replace(b"\n\nx", b"\n\ny")
    made = str(repository.odb.write(ObjectType.COMMIT, raw))
    assert "does not fit its content" in refusal(HEAD, made)


def test_a_commit_that_is_too_large(refusal, commit):
    assert "is no commit, or too large a one" in refusal(HEAD, commit(GOOD, note="x" * (1 << 20)))


def test_whatever_is_changed_in_a_signed_commit_it_is_unverified(repository, refusal, commit):
    raw, chance = repository.odb.read(commit(GOOD))[1], random.Random(1)
    for turn in range(300):
        start = chance.randrange(len(raw))
        noise = chance.randbytes(chance.randrange(1, 9)) if turn % 2 else b""
        changed = raw[:start] + noise + raw[start + chance.randrange(1, 9) :]
        made = str(repository.odb.write(ObjectType.COMMIT, changed))
        for mode in (HEAD, HISTORY):
            assert refusal(mode, made, accepted="0" * 40)


def test_a_history_begins_with_its_head(verified, commit):
    commit()
    assert verified(HISTORY, commit(GOOD)) == Signature(HISTORY, "ssh", signing.ALICE, first=True)


def test_every_new_commit_of_a_history_is_looked_at(verified, refusal, commit):
    start = commit()
    first, second, third = commit(GOOD), commit(GOOD), commit(GOOD)
    assert verified(HISTORY, third, accepted=start) == Signature(HISTORY, "ssh", signing.ALICE)
    assert verified(HISTORY, third, accepted=second)
    middle = commit()
    last = commit(GOOD)
    said = refusal(HISTORY, last, accepted=first)
    assert said == f"{middle[:12]}, which leads to it, is not: it has no signature"
    assert verified(HISTORY, last, accepted=middle)
    assert verified(HEAD, last, accepted=first)


def test_both_sides_of_a_merge_are_looked_at(verified, refusal, commit):
    root = commit()
    accepted = commit(GOOD)
    unsigned = commit(parents=[root], ref="refs/heads/a")
    side = commit(GOOD, parents=[unsigned], ref="refs/heads/a")
    for parents in ([accepted, side], [side, accepted]):
        merge = commit(GOOD, parents=parents)
        assert unsigned[:12] in refusal(HISTORY, merge, accepted=accepted)
    # What led to the accepted one, too, is not new: neither the root nor what came before.
    good = commit(GOOD, parents=[root], ref="refs/heads/b")
    assert verified(HISTORY, commit(GOOD, parents=[accepted, good]), accepted=accepted)
    assert verified(HISTORY, commit(GOOD, parents=[good, accepted]), accepted=accepted)


def test_history_that_was_rewritten_or_rolled_back_is_refused(refusal, verified, commit):
    root, older, accepted = commit(GOOD), commit(GOOD), commit(GOOD)
    rewritten = commit(GOOD, parents=[older])
    for head in (rewritten, older, root, commit(GOOD, parents=[])):
        said = refusal(HISTORY, head, accepted=accepted)
        assert said.startswith(f"it does not descend from {accepted[:12]}, the last accepted")
        assert verified(HEAD, head, accepted=accepted)


def test_history_that_is_not_here_is_reported_apart(verified, commit):
    missing = "f" * 40
    head = commit(GOOD, parents=[commit(GOOD, parents=[missing])])
    with pytest.raises(Incomplete, match="is not here as far as 000000000000") as caught:
        verified(HISTORY, head, accepted="0" * 40)
    assert caught.value.revision == head
    assert verified(HISTORY, head, accepted=missing)
    assert verified(HISTORY, commit(GOOD, parents=[head]), accepted=head)


@pytest.mark.parametrize("accepted", ["", "main", "0000", "x" * 40, "F" * 40, "0" * 40 + "\n"])
def test_what_was_accepted_has_to_be_an_id(refusal, verified, commit, accepted):
    if accepted:
        assert "and is no id of a commit" in refusal(HISTORY, commit(GOOD), accepted=accepted)
    else:
        assert verified(HISTORY, commit(GOOD), accepted=accepted).first


def test_no_more_than_so_many_commits_are_new_at_once(verified, refusal, commit, monkeypatch):
    monkeypatch.setattr(verification, "MOST_COMMITS", 3)
    start, first = commit(), commit(GOOD)
    commit(GOOD)
    assert verified(HISTORY, commit(GOOD), accepted=start)
    head = commit(GOOD)
    assert refusal(HISTORY, head, accepted=start).startswith("more than 3 commits are new since")
    assert verified(HISTORY, head, accepted=first)


def test_a_key_that_reaches_its_end(verified, refusal, commit, keys):
    keys.write_text(f'*@acme.example valid-before="20240101Z" {GOOD.line}\n')
    accepted = commit(GOOD, at=signing.AT)
    head = commit(GOOD, at=signing.AT)
    for mode in (HEAD, HISTORY):
        assert "was valid before 2024-01-01" in refusal(mode, head)
        assert "was valid before 2024-01-01" in refusal(mode, head, accepted=accepted)
        # It was accepted while its key was valid, and is in use.
        assert verified(mode, head, accepted=head)
    keys.write_text(f"*@acme.example {BAD.line}\n")
    assert "not listed" in refusal(HISTORY, head, accepted=head)


def test_a_commit_in_the_middle_by_a_key_that_reached_its_end(refusal, commit, keys):
    old = f'*@acme.example valid-before="20240101Z" {BAD.line}\n'
    keys.write_text(f"*@acme.example {GOOD.line}\n{old}")
    accepted, middle, head = commit(GOOD), commit(BAD, at=signing.AT), commit(GOOD)
    said = refusal(HISTORY, head, accepted=accepted)
    assert said.startswith(f"{middle[:12]}, which leads to it, is not: ")
    assert "was valid before 2024-01-01" in said


def test_a_commit_from_after_the_end_of_its_key(refusal, commit, keys):
    keys.write_text(f'*@acme.example valid-before="20270101Z" {GOOD.line}\n')
    assert "was valid before" in refusal(HEAD, commit(GOOD, at=1_900_000_000))


def test_tags(repository, verified, refusal, commit):
    found = commit()
    tag = signing.signed_tag(repository, found, GOOD)
    assert verified(TAG, found, tag=tag) == Signature(TAG, "ssh", signing.ALICE)
    assert "'refs/heads/main' is not an annotated tag" in refusal(TAG, found, ref="refs/heads/main")
    assert refusal(TAG, found, tag=tag, ref="refs/tags/v2") == "the tag was signed as 'v1'"
    assert refusal(TAG, commit(GOOD), tag=tag) == "the tag leads to another commit"
    unsigned = signing.signed_tag(repository, found)
    assert refusal(TAG, found, tag=unsigned) == "the signature of its tag is absent"
    other = signing.signed_tag(repository, found, BAD)
    why = f"the signature of its tag is by a key that is not listed: {BAD.fingerprint}"
    assert refusal(TAG, found, tag=other) == why
    assert "is no tag" in refusal(TAG, found, tag=found)
    chain = signing.signed_tag(repository, tag, GOOD, kind="tag")
    assert "something else than a commit" in refusal(TAG, found, tag=chain)


def test_keys_are_read_again_when_they_change(repository, keys, commit):
    checking = Verification(HEAD, keys, None, lambda: NOW)
    head = commit(BAD)

    def said():
        with pytest.raises(Unverified) as caught:
            checking.check(repository, head, tag=None, accepted="")
        return str(caught.value)

    assert "not listed" in said()
    keys.write_text(f"*@acme.example {BAD.line}\n")
    assert checking.check(repository, head, tag=None, accepted="").signer == signing.ALICE
    keys.write_text("garbage")
    assert f"its signature cannot be checked: {keys} line 1 is not `principals" in said()
    keys.unlink()
    assert f"its signature cannot be checked: {keys}: No such file" in said()


def test_without_keys_there_is_nothing_to_verify_with(keys, repository, commit):
    with pytest.raises(ConfigError, match=r"no keys .* Name a file by --allowed-signers"):
        Verification(HEAD, None, None, lambda: NOW)
    Verification(VerificationMode.OFF, None, None, lambda: NOW)


@pytest.mark.skipif(
    not (shutil.which("git") and shutil.which("ssh-keygen")), reason="needs git and ssh-keygen"
)
def test_what_git_signs(tmp_path, keys):
    def run(*command):
        subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)

    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    env |= {f"GIT_{who}_EMAIL": signing.ALICE for who in ("AUTHOR", "COMMITTER")}
    env |= {f"GIT_{who}_NAME": "Alice" for who in ("AUTHOR", "COMMITTER")}
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "key")
    keys.write_text(f"*@acme.example {(tmp_path / 'key.pub').read_text()}")
    run("git", "init", "-q", "-b", "main", "work")
    git = ("git", "-C", "work", "-c", "gpg.format=ssh", "-c", f"user.signingkey={tmp_path}/key.pub")
    run(*git, "commit", "-qS", "--allow-empty", "-m", "first\n\n gpgsig x\n")
    run(*git, "commit", "-qS", "--allow-empty", "-m", "second")
    run(*git, "tag", "-s", "v1", "-m", "one")
    made = pygit2.Repository(tmp_path / "work")
    first, head = (str(made.revparse_single(name).id) for name in ("HEAD~1", "HEAD"))
    checking = Verification(HISTORY, keys, None, lambda: NOW)
    signature = checking.check(made, head, tag=None, accepted=first)
    assert signature == Signature(HISTORY, "ssh", signing.ALICE)
    checking = Verification(TAG, keys, None, lambda: NOW)
    tag = str(made.references["refs/tags/v1"].target)
    assert checking.check(made, head, tag=tag, accepted="", ref="refs/tags/v1").kind == "ssh"
