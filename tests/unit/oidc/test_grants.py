"""What is sent to a provider, and how a client proves itself there."""

import base64
import json
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from joserfc import jwk, jwt

from reconciler.core.secret import Secret
from reconciler.oidc import grants
from reconciler.oidc.grants import Client
from reconciler.oidc.provider import CredentialFault, ProviderFault
from tests.support.issuer_tokens import signing_key
from tests.unit.oidc.made import ISSUER, NOW, PROVIDER

JTI = bytes(range(16))
VERIFIER = grants.verifier(b"v" * 32)
PUBLIC = Client("cli")
WEB = Client("door", secret=Secret("secret-canary"))
SENT: dict[str, Any] = {"now": NOW, "jti": JTI}
CALLBACK = "https://bind.example/callback"


def fields(form):
    """Return the fields as a server reads them; none comes twice (RFC 6749 3.2)."""
    pairs = parse_qsl(form.body().decode(), keep_blank_values=True, strict_parsing=True)
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


def code_form(client=PUBLIC, provider=PROVIDER):
    sent: dict[str, Any] = {"code": Secret("SplxlOBeZQQYbYS6WxSbIA"), "redirect_uri": CALLBACK}
    return grants.code_form(provider, client, **sent, verifier=VERIFIER, **SENT)


def test_a_browser_is_sent_to_sign_in():
    provider = replace(PROVIDER, authorization_endpoint=f"{ISSUER}/authorize?tenant=a%20b")
    url = grants.authorization_url(
        provider,
        client_id="door",
        redirect_uri=CALLBACK,
        scopes=("openid", "profile"),
        state="a&b=c#d",
        nonce="n",
        challenge=grants.challenge(VERIFIER),
    )
    assert url.startswith(f"{ISSUER}/authorize?")
    assert {name: value for name, (value,) in parse_qs(urlsplit(url).query).items()} == {
        "tenant": "a b",  # RFC 6749 3.1: a query of its own is kept
        "response_type": "code",
        "client_id": "door",
        "redirect_uri": CALLBACK,
        "scope": "openid profile",
        "state": "a&b=c#d",
        "nonce": "n",
        "code_challenge": grants.challenge(VERIFIER),
        "code_challenge_method": "S256",
    }


def test_a_code_is_redeemed_with_the_verifier_and_the_same_callback():
    form = code_form()
    assert form.url == f"{ISSUER}/token"
    assert form.headers()["Content-Type"] == "application/x-www-form-urlencoded"
    assert fields(form) == {
        "grant_type": "authorization_code",
        "code": "SplxlOBeZQQYbYS6WxSbIA",
        "redirect_uri": CALLBACK,
        "code_verifier": VERIFIER.reveal(),
        "client_id": "cli",
    }


def test_a_machine_asks_for_itself():
    form = grants.machine_form(PROVIDER, WEB, scopes=("a", "b"), audience="x", **SENT)
    assert fields(form) == {"grant_type": "client_credentials", "scope": "a b", "audience": "x"}
    bare = grants.machine_form(PROVIDER, WEB, scopes=(), **SENT)
    assert fields(bare) == {"grant_type": "client_credentials"}


def test_a_device_asks_with_pkce():
    asked = grants.device_form(PROVIDER, PUBLIC, scopes=("openid",), challenge="challenge")
    assert asked.url == f"{ISSUER}/device"
    assert fields(asked) == {
        "scope": "openid",
        "code_challenge": "challenge",
        "code_challenge_method": "S256",
        "client_id": "cli",
    }
    polled = grants.device_token_form(
        PROVIDER, PUBLIC, device_code=Secret("GmRh"), verifier=VERIFIER, **SENT
    )
    assert fields(polled) == {  # RFC 8628 3.4
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": "GmRh",
        "code_verifier": VERIFIER.reveal(),
        "client_id": "cli",
    }


def test_a_foreign_token_is_exchanged():
    given = (Secret("eyJ"), "urn:ietf:params:oauth:token-type:jwt")
    form = grants.machine_form(PROVIDER, WEB, subject=given, audience="door", scopes=("a",), **SENT)
    assert fields(form) == {  # RFC 8693 2.1
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": "eyJ",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "audience": "door",
        "scope": "a",
    }


def test_basic_encodes_id_and_secret_as_a_form_does():
    authorization = code_form(Client("a:b c", secret=Secret("p%+ä:&"))).headers()["Authorization"]
    scheme, _, pair = authorization.partition(" ")
    assert scheme == "Basic"
    assert base64.b64decode(pair).decode() == "a%3Ab+c:p%25%2B%C3%A4%3A%26"


def test_a_secret_is_never_in_the_form_and_the_header():
    assert not {"client_id", "client_secret"} & fields(code_form(WEB)).keys()
    form = code_form(WEB, replace(PROVIDER, token_auth_methods=("client_secret_post",)))
    assert fields(form)["client_id"] == "door"
    assert fields(form)["client_secret"] == "secret-canary"
    assert "Authorization" not in form.headers()


def test_basic_comes_before_post():
    both = replace(PROVIDER, token_auth_methods=("client_secret_post", "client_secret_basic"))
    assert "Authorization" in code_form(WEB, both).headers()


def test_a_provider_that_takes_no_secret_is_not_given_it():
    with pytest.raises(ProviderFault):
        code_form(WEB, replace(PROVIDER, token_auth_methods=("private_key_jwt",)))


def test_a_foreign_assertion_proves_the_client():
    sent = fields(code_form(Client("machine", assertion=Secret("eyJ"))))
    assert sent["client_assertion"] == "eyJ"
    assert sent["client_assertion_type"] == (
        "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    )
    assert sent["client_id"] == "machine"
    assert "client_id" not in fields(code_form(Client("", assertion=Secret("eyJ"))))


KEYS = {
    "RSA": ("RS256", (), "RS256"),
    "RSA, PS256 announced": ("RS256", ("PS256", "ES256"), "PS256"),
    "P-256": ("ES256", (), "ES256"),
    "P-384": ("ES384", ("RS256", "ES384"), "ES384"),
    "Ed25519": ("Ed25519", (), "EdDSA"),
    "Ed25519, its newer name announced": ("Ed25519", ("Ed25519",), "Ed25519"),
}


@pytest.mark.parametrize(("kind", "announced", "algorithm"), KEYS.values(), ids=KEYS.keys())
def test_a_private_key_proves_the_client(kind, announced, algorithm):
    key = signing_key("of-a-client", kind)
    client = Client("machine", key=Secret(key.private_pem.decode()))
    sent = fields(code_form(client, replace(PROVIDER, assertion_algorithms=announced)))
    assert sent["client_id"] == "machine"
    public = jwk.import_key(key.public_pem, key.jwk()["kty"])
    header = json.loads(base64.urlsafe_b64decode(sent["client_assertion"].split(".")[0] + "=="))
    assert header == {"typ": "JWT", "alg": algorithm}
    if algorithm == "EdDSA":
        return  # joserfc warns of the name
    read = jwt.decode(sent["client_assertion"], public, algorithms=[algorithm])
    assert read.claims == {  # RFC 7523 3
        "iss": "machine",
        "sub": "machine",
        "aud": ISSUER,  # and nothing else: CVE-2025-27370
        "iat": int(NOW),
        "exp": int(NOW) + 60,
        "jti": "AAECAwQFBgcICQoLDA0ODw",
    }


def test_a_jwk_names_itself_and_its_algorithm():
    key = jwk.RSAKey.generate_key(2048, {"kid": "k", "alg": "PS512"})
    client = Client("machine", key=Secret(json.dumps(key.as_dict(private=True))))
    read = jwt.decode(fields(code_form(client))["client_assertion"], key, algorithms=["PS512"])
    assert read.header == {"typ": "JWT", "alg": "PS512", "kid": "k"}


def text_of(key, **members):
    return json.dumps({**key.as_dict(private=True), **members})


EC_KEY = jwk.ECKey.generate_key("P-256")
BAD_KEYS = {
    "nothing": "",
    "no PEM": "canary",
    "half a PEM": signing_key("of-a-client", "ES256").private_pem.decode()[:90] + "canary",
    "RSA of 1024 bits": signing_key("short", "RS256", 1024).private_pem.decode(),
    "a public key": signing_key("of-a-client", "ES256").public_pem.decode(),
    "a public JWK": json.dumps(EC_KEY.as_dict(private=False)),
    "a JWK to encrypt": text_of(EC_KEY, alg="ECDH-ES"),
    "a JWK with a use that is a number": text_of(EC_KEY, use=7),
    "a shared secret": json.dumps({"kty": "oct", "k": "canary"}),
    "a JWK without a kind": "{}",
    "half a JWK": '{"kty": "canary',
    "a JWK of RSA without its modulus": json.dumps({"kty": "RSA", "d": "canary"}),
    "Ed448": text_of(jwk.OKPKey.generate_key("Ed448")),
    "a curve of Bitcoin": text_of(jwk.ECKey.generate_key("secp256k1")),
}


@pytest.mark.parametrize("text", BAD_KEYS.values(), ids=BAD_KEYS.keys())
def test_a_key_that_cannot_be_used(text):
    with pytest.raises(CredentialFault) as fault:
        code_form(Client("machine", key=Secret(text)))
    assert "canary" not in str(fault.value)
    assert fault.value.__suppress_context__ or fault.value.__context__ is None


def test_a_provider_that_takes_no_such_key():
    client = Client("machine", key=Secret(signing_key("of-a-client", "ES256").private_pem.decode()))
    with pytest.raises(CredentialFault):
        code_form(client, replace(PROVIDER, assertion_algorithms=("RS256",)))


def test_an_assertion_needs_an_id():
    client = Client("machine", key=Secret(signing_key("of-a-client", "ES256").private_pem.decode()))
    with pytest.raises(ValueError, match="16 random bytes"):
        grants.device_form(PROVIDER, client, scopes=(), challenge="c")


def test_an_issuer_without_endpoints_grants_nothing():
    issuer = replace(
        PROVIDER, authorization_endpoint="", token_endpoint="", device_authorization_endpoint=""
    )
    with pytest.raises(ProviderFault):
        code_form(WEB, issuer)
    with pytest.raises(ProviderFault):
        grants.device_form(issuer, PUBLIC, scopes=(), challenge="c")
    with pytest.raises(ProviderFault):
        grants.authorization_url(
            issuer, client_id="c", redirect_uri="r", scopes=(), state="", nonce="", challenge=""
        )


@pytest.mark.parametrize(
    "client", [WEB, Client("c", assertion=Secret("assertion-canary"))], ids=["secret", "assertion"]
)
def test_no_form_shows_its_secrets(client):
    shown = repr(code_form(client))
    for secret in ("canary", VERIFIER.reveal(), "SplxlOBeZQQYbYS6WxSbIA", "Basic"):
        assert secret not in shown
