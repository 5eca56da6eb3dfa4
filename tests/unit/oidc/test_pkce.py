"""Proof keys (RFC 7636)."""

import pytest

from reconciler.core.secret import Secret
from reconciler.oidc import grants

# RFC 7636, appendix B.
OCTETS = bytes.fromhex("7418dfb49799e0254ffa607dd8adbbba16d4254d69d6bff05b58055853848d79")
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_the_example_of_the_rfc():
    assert grants.verifier(OCTETS) == Secret(VERIFIER)
    assert grants.challenge(Secret(VERIFIER)) == CHALLENGE
    assert grants.matches(CHALLENGE, Secret(VERIFIER))


def test_a_verifier_needs_32_bytes():
    with pytest.raises(ValueError, match="32"):
        grants.verifier(OCTETS[:31])


NO_MATCHES = {
    "another verifier": (CHALLENGE, VERIFIER[:-1] + "l"),
    "no verifier": (CHALLENGE, ""),
    "the verifier with a line break": (CHALLENGE, VERIFIER + "\n"),
    "`plain`: the verifier as challenge": (VERIFIER, VERIFIER),
    "the challenge as verifier": (CHALLENGE, CHALLENGE),
    "no challenge": ("", VERIFIER),
    "neither": ("", ""),
    "a verifier of 42 characters": (grants.challenge(Secret("a" * 42)), "a" * 42),
    "a verifier of 129 characters": (grants.challenge(Secret("a" * 129)), "a" * 129),
    "a verifier beyond ASCII": (CHALLENGE, "ä" * 43),
    "a challenge beyond ASCII": ("ä" * 43, VERIFIER),
}


@pytest.mark.parametrize(("challenge", "verifier"), NO_MATCHES.values(), ids=NO_MATCHES.keys())
def test_no_match(challenge, verifier):
    assert not grants.matches(challenge, Secret(verifier))


def test_a_verifier_of_128_characters_counts():
    longest = Secret("-._~" * 32)
    assert grants.matches(grants.challenge(longest), longest)


@pytest.mark.parametrize("text", ["", "a" * 42, "a" * 44, CHALLENGE + "\n", CHALLENGE[:-1] + "="])
def test_no_challenge(text):
    assert grants.is_challenge(CHALLENGE)
    assert not grants.is_challenge(text)
