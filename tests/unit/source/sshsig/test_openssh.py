"""The real OpenSSH: its signatures are accepted, ours are by it, and both decide alike."""

import re
import shutil
import subprocess
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from reconciler.source.signature import Refused
from reconciler.source.sshsig import parse, verify
from tests.support import signing
from tests.support.signing import ALICE, ed25519

pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs ssh-keygen")
CONTENT = b"tree 1\n\nx"
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


def ours(armor, allowed, principal=ALICE):
    try:
        verify(armor, CONTENT, parse(allowed), principal=principal, times=(NOW,))
    except Refused:
        return False
    return True


@pytest.fixture
def openssh(tmp_path):
    def decides(armor, allowed, principal=ALICE):
        (tmp_path / "allowed").write_bytes(allowed)
        (tmp_path / "sig").write_bytes(armor)
        command = ["ssh-keygen", "-Y", "verify", "-f", "allowed", "-I", principal, "-n", "git"]
        command += ["-s", "sig", "-O", f"verify-time={NOW:%Y%m%d%H%M%S}Z"]
        done = subprocess.run(command, input=CONTENT, cwd=tmp_path, capture_output=True)
        return done.returncode == 0

    return decides


TYPES = [["ed25519"], ["ecdsa", "-b256"], ["ecdsa", "-b384"], ["ecdsa", "-b521"], ["rsa", "-b2048"]]


@pytest.mark.parametrize("kind", TYPES, ids=" ".join)
def test_what_openssh_signs(tmp_path, kind):
    make = ["ssh-keygen", "-q", "-t", *kind, "-N", "", "-f", "key"]
    subprocess.run(make, cwd=tmp_path, check=True)
    allowed = f"{ALICE} ".encode() + (tmp_path / "key.pub").read_bytes()
    for digest in ("sha256", "sha512"):
        sign = ["ssh-keygen", "-Y", "sign", "-f", "key", "-n", "git", "-O", f"hashalg={digest}"]
        done = subprocess.run(sign, input=CONTENT, cwd=tmp_path, capture_output=True, check=True)
        assert ours(done.stdout, allowed)


SIGNERS = {
    "ed25519": ed25519(),
    "ecdsa": signing.ecdsa(ec.SECP384R1()),
    "sk ed25519": signing.security_key(),
    "sk ecdsa": signing.security_ecdsa(),
}


@pytest.mark.parametrize("signer", SIGNERS.values(), ids=SIGNERS.keys())
def test_what_is_signed_by_hand_here_is_accepted_by_openssh(signer, openssh):
    assert openssh(signer.sign(CONTENT), f"{ALICE} {signer.line}\n".encode())


@pytest.mark.parametrize("signer", SIGNERS.values(), ids=SIGNERS.keys())
def test_a_refusal_names_the_key_as_openssh_does(signer, tmp_path):
    (tmp_path / "key.pub").write_text(signer.line)
    show = ["ssh-keygen", "-l", "-f", "key.pub"]
    named = subprocess.run(show, cwd=tmp_path, capture_output=True, check=True, text=True).stdout
    allowed = f"{ALICE} {signing.ecdsa(ec.SECP256R1()).line}".encode()
    with pytest.raises(Refused, match=re.escape(named.split()[1])):
        verify(signer.sign(CONTENT), CONTENT, parse(allowed), principal=ALICE, times=(NOW,))


KEY, OTHER = ed25519().line, ed25519(2).line
LISTS = [
    (f"{ALICE} {KEY}", ALICE, True),
    (f"{ALICE} {OTHER}\n{ALICE} {KEY} x", ALICE, True),
    (f"{ALICE} {OTHER}", ALICE, False),
    (f"*@acme.example,!alice@* {KEY}", ALICE, False),
    (f"*@acme.example,!bob@* {KEY}", ALICE, True),
    (f"?lice@acme.example {KEY}", ALICE, True),
    (f"ALICE@acme.example {KEY}", ALICE, False),
    (f'"{ALICE}" namespaces="file,git" {KEY}', ALICE, True),
    (f'{ALICE} namespaces="file" {KEY}', ALICE, False),
    (f'{ALICE} namespaces="file" {KEY}\n{ALICE} {KEY}', ALICE, True),
    (f'{ALICE} valid-before="20261126115959Z" {KEY}', ALICE, False),
    (f'{ALICE} valid-before="20261126120000Z" {KEY}', ALICE, True),
    (f'{ALICE} valid-after="20261126120000Z" {KEY}', ALICE, True),
    (f'{ALICE} valid-after="202611261201Z" {KEY}', ALICE, False),
    (f"{ALICE} cert-authority {KEY}", ALICE, False),
    (f"{ALICE} namespaces=git {KEY}", ALICE, False),
    (f'{ALICE} namespaces="git", {KEY}', ALICE, False),
    (f'{ALICE} namespaces="git",namespaces="git" {KEY}', ALICE, False),
    (f"{ALICE} unknown {KEY}", ALICE, False),
]


@pytest.mark.parametrize(("allowed", "principal", "expected"), LISTS)
def test_lists_mean_what_they_mean_to_openssh(allowed, principal, expected, openssh):
    armor, text = ed25519().sign(CONTENT), f"{allowed}\n".encode()
    assert ours(armor, text, principal) is openssh(armor, text, principal) is expected


@pytest.mark.parametrize(
    "parts",
    [{"namespace": b"file"}, {"reserved": b"x"}, {"digest": "sha1"}, {"magic": b"SSHSIX"}],
    ids=str,
)
def test_what_is_wrong_here_is_wrong_there(parts, openssh):
    armor, allowed = ed25519().sign(CONTENT, **parts), f"{ALICE} {KEY}\n".encode()
    assert ours(armor, allowed) is openssh(armor, allowed) is False
