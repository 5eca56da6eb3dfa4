"""Which requests are webhooks of a Git host that holds the secret."""

import pytest

from klutchctl.web.hooks.decide import UNPROVEN, Accepted, Provider, decide
from reconciler.core.secret import Secret
from tests.support.fake_clock import FakeClock
from tests.support.webhooks import BODY, KEY, SECOND, SIGNING_TOKEN, generic, github, mac, signature

GITHUB, GITLAB, GITEA, GENERIC = Provider
SHA1 = {"x-hub-signature": f"sha1={mac(algorithm='sha1')}"}


def verdict(provider, headers, body=BODY, secret=KEY):
    given = {name.lower(): value for name, value in headers.items()}
    return decide(provider, given, body, Secret(secret), FakeClock().now())


def hub(value):
    return {"x-hub-signature-256": value}


GENUINE = {
    "GitHub's": (GITHUB, github(), KEY),
    "GitHub's, with SHA-1 beside": (GITHUB, github() | SHA1, KEY),
    "Gitea's": (GITEA, {"x-gitea-signature": mac()}, KEY),
    "Forgejo's": (GITEA, {"x-forgejo-signature": mac(), "x-gitea-signature": "0" * 64}, KEY),
    "GitLab's by its token": (GITLAB, {"x-gitlab-token": KEY}, KEY),
    "GitLab's token that is not ASCII": (GITLAB, {"x-gitlab-token": "ü" * 16}, "ü" * 16),
    "GitLab's with a signing token": (GITLAB, generic(), SIGNING_TOKEN),
    "a standard one": (GENERIC, generic(), SIGNING_TOKEN),
    "a standard one with a key as it is": (GENERIC, generic(), KEY),
    "five minutes old": (GENERIC, generic(second=SECOND - 300), KEY),
    "of a clock that is five minutes ahead": (GENERIC, generic(second=SECOND + 300), KEY),
    "one of two signatures fits": (
        GENERIC,
        generic() | {"webhook-signature": f"v1,AAAA {signature()} v1a,xyz"},
        KEY,
    ),
}


@pytest.mark.parametrize(("provider", "headers", "secret"), GENUINE.values(), ids=GENUINE.keys())
def test_genuine(provider, headers, secret):
    assert isinstance(verdict(provider, headers, secret=secret), Accepted)
    assert verdict(provider, headers, secret=f"{secret}BBBB") == UNPROVEN


FORGED = {
    "nothing": (GITHUB, {}, KEY),
    "SHA-1 alone": (GITHUB, SHA1, KEY),
    "SHA-1 in the place of SHA-256": (GITHUB, hub(f"sha1={mac(algorithm='sha1')}"), KEY),
    "without its prefix": (GITHUB, hub(mac()), KEY),
    "another prefix": (GITHUB, hub(f"sha512={mac()}"), KEY),
    "hex that is too short": (GITHUB, hub(f"sha256={mac()[:-1]}"), KEY),
    "hex that is too long": (GITHUB, hub(f"sha256={mac()}0"), KEY),
    "no hex": (GITHUB, hub(f"sha256={'é' * 64}"), KEY),
    "digits of another script": (GITHUB, hub(f"sha256={mac()[:-1]}\u0664"), KEY),
    "a header that came twice": (GITHUB, hub(f"sha256={mac()}, sha256={mac()}"), KEY),
    "a line after it": (GITHUB, hub(f"sha256={mac()}\n"), KEY),
    "a body that was changed": (GITHUB, github(BODY + b" "), KEY),
    "another key": (GITHUB, github(key="another key that is long"), KEY),
    "another provider's": (GITEA, github(), KEY),
    "Forgejo's forged, Gitea's good": (
        GITEA,
        {"x-forgejo-signature": "0" * 64, "x-gitea-signature": mac()},
        KEY,
    ),
    "no token": (GITLAB, {}, KEY),
    "an empty token": (GITLAB, {"x-gitlab-token": ""}, KEY),
    "half a token": (GITLAB, {"x-gitlab-token": KEY[:-1]}, KEY),
    "a signing token sent in the clear": (GITLAB, {"x-gitlab-token": SIGNING_TOKEN}, SIGNING_TOKEN),
    "stale": (GENERIC, generic(second=SECOND - 301), KEY),
    "of the future": (GENERIC, generic(second=SECOND + 301), KEY),
    "a time that is no number": (GENERIC, generic(second="now"), KEY),
    "a time of another script": (GENERIC, generic(second="١٧٦٧٢٢٥٦٠٠"), KEY),
    "a negative time": (GENERIC, generic(second=-SECOND), KEY),
    "a time without end": (GENERIC, generic(second="9" * 400), KEY),
    "another time than was signed": (
        GENERIC,
        generic() | {"webhook-timestamp": str(SECOND + 1)},
        KEY,
    ),
    "another id than was signed": (GENERIC, generic() | {"webhook-id": "id2"}, KEY),
    "no id": (GENERIC, generic(""), KEY),
    "an id that takes a part of what is signed": (
        GENERIC,
        {
            "webhook-id": f"id1.{SECOND}",
            "webhook-timestamp": str(SECOND + 1),
            "webhook-signature": signature(f"id1.{SECOND}", SECOND + 1),
        },
        KEY,
    ),
    "no version": (GENERIC, generic() | {"webhook-signature": signature()[3:]}, KEY),
    "a version that we do not know": (
        GENERIC,
        generic() | {"webhook-signature": signature().replace("v1", "v2")},
        KEY,
    ),
    "no signature": (GENERIC, generic() | {"webhook-signature": ""}, KEY),
    "a signature that is not ASCII": (GENERIC, generic() | {"webhook-signature": "v1,é"}, KEY),
}


@pytest.mark.parametrize(("provider", "headers", "secret"), FORGED.values(), ids=FORGED.keys())
def test_forged(provider, headers, secret):
    assert verdict(provider, headers, secret=secret) == UNPROVEN


def test_a_replay_is_known_by_what_is_signed():
    """GitHub signs its body alone, so that its id of a delivery proves nothing."""
    first = verdict(GITHUB, github() | {"X-GitHub-Delivery": "1"})
    assert first == verdict(GITHUB, github() | {"X-GitHub-Delivery": "2"})
    assert first != verdict(GITHUB, github(b"{}"), b"{}")
    again = verdict(GENERIC, generic("id1", SECOND + 60))
    assert again == verdict(GENERIC, generic("id1"))  # a sender that tries again signs anew
    assert again != verdict(GENERIC, generic("id2"))
    token = {"x-gitlab-token": KEY}
    assert verdict(GITLAB, token | {"idempotency-key": "1"}) != verdict(GITLAB, token)
    assert verdict(GITLAB, token) == verdict(GITLAB, token)
