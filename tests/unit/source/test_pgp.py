"""Signatures of GPG: which are accepted, and that no error of the library shows."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pygit2
import pysequoia
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.errors import HostError
from reconciler.source import verification
from reconciler.source.signature import Refused, Signature, Unverified, VerificationMode
from reconciler.source.verification import Verification
from tests.support.signing import signed_commit

GPG = Path(__file__).parent / "gpg"
CONTENT = b"tree 1\n\nx"
ALICE = pysequoia.Tsk.generate("Alice <alice@acme.example>")
MALLORY = pysequoia.Tsk.generate("Mallory")
NOW = datetime.now(UTC)


def sign(content=CONTENT, key=ALICE):
    return pysequoia.sign(key.signer(), content, mode=pysequoia.SignatureMode.DETACHED)


def public(*keys):
    return b"".join(str(key.extract_certificate()).encode() for key in keys)


ARMOR, LISTED = sign(), verification.keys(public(ALICE))


def refusal(armor, listed=None, *, content=CONTENT, now=NOW):
    with pytest.raises(Refused) as caught:
        verification.verify(armor, content, listed or LISTED, now=now)
    assert "\n" not in caught.value.why
    return caught.value.why


def test_a_listed_key_over_its_content():
    listed = verification.keys(public(MALLORY, ALICE))
    fingerprint = ALICE.extract_certificate().fingerprint.upper()
    assert verification.verify(sign(), CONTENT, listed, now=NOW) == fingerprint
    assert "a listed GPG key over this content" in refusal(sign(), listed, content=b"other")


def test_a_key_that_is_not_listed():
    assert "is not one of a listed GPG key" in refusal(sign(key=MALLORY))


def test_a_key_that_reached_its_end():
    key = pysequoia.Tsk.generate("Bob", validity_seconds=3_600)
    listed, armor = verification.keys(public(key)), sign(key=key)
    assert verification.verify(armor, CONTENT, listed, now=NOW)
    assert "was valid until 2" in refusal(armor, listed, now=NOW + timedelta(hours=2))


def test_a_key_that_was_revoked_before_or_after_it_signed():
    certificate = ALICE.extract_certificate()
    revoked = bytes(certificate) + bytes(certificate.revoke(ALICE.certifier()))
    assert "is not one of a listed GPG key" in refusal(sign(), verification.keys(revoked))
    # By GnuPG: signed in February, "superseded" in March.
    armor = (GPG / "signature.asc").read_bytes()
    alive = verification.keys((GPG / "alive.asc").read_bytes())
    assert verification.verify(armor, CONTENT, alive, now=NOW).startswith("107B139635C40F59")
    listed = verification.keys((GPG / "revoked.asc").read_bytes())
    assert "is by a GPG key that was revoked" in refusal(armor, listed)


# Of a key that each process makes anew, so the cases have names.
HOSTILE = {
    "two": (sign() * 2, "is not one signature of GPG"),
    "text": (b"x", "is not one signature of GPG"),
    "cut short": (sign()[:100], "is not one signature of GPG"),
    "text behind": (sign() + b"x", "is not one signature of GPG"),
    "of nobody": (sign().replace(b"\n\nw", b"\n\nx"), "a listed GPG key"),
    "too long": (sign() + b"x" * 70_000, "has more than 64 KiB"),
}


@pytest.mark.parametrize(("armor", "why"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_signatures(armor, why):
    assert why in refusal(armor)


@given(st.binary(max_size=200), st.integers(0, 150), st.integers(0, 150))
def test_any_bytes_are_refused_in_words(noise, start, end):
    assert refusal(ARMOR[: 40 + start] + b"%" + noise + ARMOR[40 + end :], LISTED)


def test_a_defect_of_the_library_refuses_too(monkeypatch):
    class PanicException(BaseException):
        """As Rust panics reach Python."""

    def panic(**_given):
        raise PanicException("backtrace of 100 lines")

    monkeypatch.setattr(pysequoia, "verify", panic)
    assert "backtrace" not in refusal(ARMOR)


@pytest.mark.parametrize("text", [b"", b"garbage", sign()])
def test_lists_of_keys_that_are_none(text):
    with pytest.raises(Refused, match=r"is no list of public keys of GPG|lists no key"):
        verification.keys(text)


class _Signer:
    def sign(self, content):
        return sign(content)


def test_a_commit(tmp_path):
    repository = pygit2.init_repository(tmp_path / "fleet.git", bare=True)
    (tmp_path / "keys").write_bytes(public(ALICE))
    head = signed_commit(repository, {"a": b"x"}, _Signer())
    checking = Verification(VerificationMode.HEAD, None, tmp_path / "keys", lambda: NOW)
    fingerprint = ALICE.extract_certificate().fingerprint.upper()
    found = checking.check(repository, head, tag=None, accepted="")
    assert found == Signature(VerificationMode.HEAD, "gpg", fingerprint)
    (tmp_path / "keys").write_bytes(public(MALLORY))
    with pytest.raises(Unverified, match="its signature is not one of a listed GPG key"):
        checking.check(repository, head, tag=None, accepted="")
    (tmp_path / "signers").write_text("")
    checking = Verification(VerificationMode.HEAD, tmp_path / "signers", None, lambda: NOW)
    with pytest.raises(Unverified, match="its signature cannot be checked: there is no --gpg-keys"):
        checking.check(repository, head, tag=None, accepted="")


def test_without_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pysequoia", None)
    with pytest.raises(HostError, match=r"Install klutchctl\[gpg\]"):
        Verification(VerificationMode.HEAD, None, tmp_path / "keys", lambda: NOW)
