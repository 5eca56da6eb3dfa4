"""Signatures of SSH: which are accepted, and why others are not."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from reconciler.source import sshsig
from reconciler.source.signature import Refused
from reconciler.source.sshsig import verify
from tests.support import signing
from tests.support.signing import ALICE, Signer, armored, ed25519, mpint, string

CONTENT = b"tree 1\n\nx"
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
RSA = signing.rsa_key()
GOOD = {
    "ed25519": ed25519(),
    "ecdsa 256": signing.ecdsa(ec.SECP256R1()),
    "ecdsa 384": signing.ecdsa(ec.SECP384R1()),
    "ecdsa 521": signing.ecdsa(ec.SECP521R1()),
    "sk ed25519": signing.security_key(),
    "sk ecdsa, also verified": signing.security_ecdsa(flags=5),
    "rsa 512": RSA,
    "rsa 256": Signer("ssh-rsa", RSA.private, b"rsa-sha2-256"),
}


def listed(signer, options="", principals="*@acme.example"):
    return sshsig.parse(f"{principals} {options} {signer.line} comment\n".encode())


def check(armor, signers, *, content=CONTENT, principal=ALICE, times=(NOW,)):
    verify(armor, content, signers, principal=principal, times=times)


def refusal(armor, signers, **other):
    with pytest.raises(Refused) as caught:
        check(armor, signers, **other)
    return caught.value.why


@pytest.mark.parametrize("signer", GOOD.values(), ids=GOOD.keys())
@pytest.mark.parametrize("digest", ["sha256", "sha512"])
def test_a_signature_of_a_listed_key_is_accepted_over_its_content_only(signer, digest):
    armor = signer.sign(CONTENT, digest=digest)
    check(armor, listed(signer))
    assert "does not fit its content" in refusal(armor, listed(signer), content=CONTENT + b"y")


@pytest.mark.parametrize("signer", GOOD.values(), ids=GOOD.keys())
def test_a_signature_by_another_key_under_the_name_of_a_listed_one(signer):
    forged = Signer(signer.kind, signing.rsa_key().private, signer.name)
    if signer.kind != "ssh-rsa":
        private = signer.private
        is_curve = isinstance(private, ec.EllipticCurvePrivateKey)
        other = ec.derive_private_key(6, private.curve) if is_curve else ed25519(2).private
        forged = Signer(signer.kind, other, signer.name)
    armor = armored(forged.blob_of(CONTENT).replace(string(forged.blob), string(signer.blob), 1))
    assert "does not fit its content" in refusal(armor, listed(signer))


REFUSED = {
    "another namespace": (ed25519(), {"namespace": b"file"}, "for namespace 'file', not for 'git'"),
    "md5": (ed25519(), {"digest": "md5"}, "a digest by 'md5', not sha256 or sha512"),
    "sha1": (ed25519(), {"digest": "sha1"}, "a digest by 'sha1'"),
    "wrong magic": (ed25519(), {"magic": b"SSHSIX"}, "is no SSH signature inside its armor"),
    "version 2": (ed25519(), {"version": 2}, "is of version 2, and only 1 is known"),
    "a reserved field": (ed25519(), {"reserved": b"x"}, "uses a field that is reserved"),
    "nobody touched": (signing.security_key(flags=0), {}, "a security key without a touch"),
    "nobody touched, ecdsa": (signing.security_ecdsa(flags=4), {}, "without a touch"),
    "SHA-1 by RSA": (Signer("ssh-rsa", RSA.private, b"ssh-rsa"), {}, "is made with 'ssh-rsa', not"),
    "another algorithm": (
        Signer("ssh-ed25519", ed25519().private, b"ssh-ed448"),
        {},
        "is made with 'ssh-ed448', and its key is of type ssh-ed25519",
    ),
}


@pytest.mark.parametrize(("signer", "parts", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_a_signature_that_is_refused(signer, parts, why):
    assert why in refusal(signer.sign(CONTENT, **parts), listed(signer))


def test_a_key_that_is_not_listed():
    stranger = ed25519(2)
    found = refusal(stranger.sign(CONTENT), listed(ed25519()))
    assert found == f"is by a key that is not listed: {stranger.fingerprint}"


def test_an_rsa_signature_that_begins_with_zeros_that_were_left_out():
    for turn in range(2_000):
        content = CONTENT + str(turn).encode()
        blob = RSA.blob_of(content)
        at = len(blob) - 256
        if blob[at] == 0:
            inner = string(b"rsa-sha2-512") + string(blob[at + 1 :])
            short = blob[: at - 4 - len(string(b"rsa-sha2-512")) - 4] + string(inner)
            check(armored(short), listed(RSA), content=content)
            return
    pytest.fail("no signature began with a zero")


BLOB = ed25519().blob_of(CONTENT)
HOSTILE = {
    "nothing": (b"", "does not begin and end"),
    "no end": (signing.BEGIN + b"AAAA\n", "does not begin and end"),
    "one line": (signing.BEGIN.rstrip(), "does not begin and end"),
    "two signatures": (armored(BLOB) * 2, "something else than base64"),
    "text after it": (armored(BLOB) + b"x", "does not begin and end"),
    "no base64": (signing.BEGIN + b"%%%%\n" + signing.END, "something else than base64"),
    "empty": (armored(b""), "is cut short"),
    "10 MB": (armored(bytes(10_000_000)), "has more than 16 KiB"),
    "more after it": (armored(BLOB + b"x"), "contains more than belongs there"),
    "a length beyond the end": (armored(BLOB[:10] + b"\xff" * 4 + BLOB[14:]), "is cut short"),
    "more after the number": (
        armored(BLOB[: -len(string(ed25519().raw(b"")))] + string(ed25519().raw(b"") + b"x")),
        "contains more than belongs there",
    ),
}


@pytest.mark.parametrize(("armor", "why"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_bytes(armor, why):
    assert why in refusal(armor, listed(ed25519()))


def test_a_signature_that_is_cut_anywhere():
    signers = listed(ed25519())
    assert all(refusal(armored(BLOB[:length]), signers) for length in range(len(BLOB)))


ECDSA = GOOD["ecdsa 256"]
NUMBERS = {
    "zero": (mpint(0), "not in its shortest form"),
    "negative": (string(b"\xff"), "not positive"),
    "idle zeros": (string(b"\0\1"), "not in its shortest form"),
    "no bytes": (string(b""), "not positive"),
    "as large as can be": (string(b"\x7f" * 5_000), "does not fit its content"),
}


@pytest.mark.parametrize(("r", "why"), NUMBERS.values(), ids=NUMBERS.keys())
def test_numbers_in_a_signature_of_ecdsa(r, why):
    inner = string(ECDSA.name) + string(r + mpint(1))
    blob = ECDSA.blob_of(CONTENT)
    start = blob.index(string(b"sha512")) + len(string(b"sha512"))
    assert why in refusal(armored(blob[:start] + string(inner)), listed(ECDSA))


@given(st.binary(max_size=300), st.integers(0, len(BLOB)), st.integers(0, len(BLOB)))
def test_any_bytes_are_refused_in_words(noise, start, end):
    for blob in (noise, BLOB[:start] + noise + BLOB[end:]):
        for armor in (blob, armored(blob)):
            if blob != BLOB:
                assert refusal(armor, listed(ed25519()))


DAY = timedelta(days=1)
LINES = {
    "in time": ('valid-after="20261126Z",valid-before="20261127Z"', (NOW,), ""),
    "to the second": ('valid-before="202611261200Z"', (NOW,), ""),
    "after the end, now": (
        'valid-before="20261125Z"',
        (NOW - 9 * DAY, NOW),
        f"is by a key of '{ALICE}' that was valid before 2026-11-25T00:00:00+00:00: SHA256:",
    ),
    "after the end, then": ('valid-before="20261127Z"', (NOW + 9 * DAY, NOW), "was valid before"),
    "before the start": (
        'valid-after="20261120Z"',
        (NOW - 9 * DAY, NOW),
        f"is by a key of '{ALICE}' that is valid only after 2026-11-20T00:00:00+00:00: SHA256:",
    ),
    "seconds": ('valid-before="20261126115959Z"', (NOW,), "before 2026-11-26T11:59:59+00:00"),
    "namespaces": ('namespaces="file,git"', (NOW,), ""),
    "namespaces by pattern": ('NAMESPACES="g?t"', (NOW,), ""),
    "other namespaces": ('namespaces="file"', (NOW,), "may not sign in namespace 'git'"),
    "not this namespace": ('namespaces="*,!git"', (NOW,), "may not sign in namespace 'git'"),
}


@pytest.mark.parametrize(("options", "times", "why"), LINES.values(), ids=LINES.keys())
def test_options_of_a_key(options, times, why):
    armor, signers = ed25519().sign(CONTENT), listed(ed25519(), options)
    if why:
        assert why in refusal(armor, signers, times=times)
    else:
        check(armor, signers, times=times)


def test_a_stranger_may_not_use_the_key_of_another():
    found = refusal(ed25519().sign(CONTENT), listed(ed25519()), principal="mallory@x\x1b[2J")
    key = ed25519().fingerprint
    assert found == f"is by a key that is not one of 'mallory@x\\x1b[2J': {key}"
    found = refusal(ed25519().sign(CONTENT), listed(ed25519()), principal="m" * 254)
    assert found == f"is by a key that is not one of '{'m' * 80}...': {key}"


def test_one_line_of_several_that_lets_the_key_sign_is_enough():
    signers = listed(ed25519(), 'namespaces="file"') + listed(ed25519())
    check(ed25519().sign(CONTENT), signers)
    assert refusal(ed25519().sign(CONTENT), signers[:1])
