"""Where documents of providers are, and which of them can be used."""

import json

import pytest

from reconciler.oidc.provider import (
    ALGORITHMS,
    ProviderFault,
    discovery_url,
    is_secure,
    provider_of,
)

ISSUER = "https://id.example/realms/a"
DOCUMENT = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "jwks_uri": f"{ISSUER}/jwks",
    "response_types_supported": ["code", "id_token"],
    "subject_types_supported": ["public"],
    "id_token_signing_alg_values_supported": ["RS256", "ES256", "HS256", "none"],
}


def read(**changes):
    document = {name: v for name, v in {**DOCUMENT, **changes}.items() if v is not None}
    return provider_of(json.dumps(document).encode(), issuer=ISSUER)


WELL_KNOWN = {
    "https://id.example": "https://id.example/.well-known/openid-configuration",
    "https://id.example/": "https://id.example/.well-known/openid-configuration",
    "https://id.example/realms/a": ("https://id.example/realms/a/.well-known/openid-configuration"),
    "http://127.0.0.1:8080": "http://127.0.0.1:8080/.well-known/openid-configuration",
    "http://[::1]:8080/x/": "http://[::1]:8080/x/.well-known/openid-configuration",
}


@pytest.mark.parametrize(("issuer", "url"), WELL_KNOWN.items())
def test_discovery_url(issuer, url):
    assert discovery_url(issuer) == url


NO_ISSUERS = (
    "",
    "id.example",
    "http://id.example",
    "https://id.example?tenant=a",
    "https://id.example/?",
    "https://id.example#a",
    "https://me:pw@id.example",
    "ftp://id.example",
    "https://",
)


@pytest.mark.parametrize("issuer", NO_ISSUERS)
def test_no_issuer(issuer):
    with pytest.raises(ProviderFault):
        discovery_url(issuer)


SECURE = {
    "https://id.example": True,
    "https://id.example:8443/a?b=c": True,
    "http://localhost:8080": True,
    "http://127.0.0.1": True,
    "http://127.9.9.9:1": True,
    "http://[::1]:8080": True,
    "http://id.example": False,
    "http://localhost.evil": False,
    "http://localhost@evil": False,
    "https://localhost@evil": False,
    "http://evil/localhost": False,
    "http://[::2]": False,
    "http://0.0.0.0": False,
    "http://127.0.0.1.evil": False,
    "https:///a": False,
    "//id.example": False,
    "javascript:alert(1)": False,
    "https://id.example\\@evil": False,
    "https://id.example/\r\nSet-Cookie: a": False,
    "https://id.example/a b": False,
    "https://id.ex\u00e4mple": False,
    "https://id.example:port": False,
    "https://id.example:99999": False,
    "https://[id.example": False,
    "": False,
}


@pytest.mark.parametrize(("url", "secure"), SECURE.items())
def test_secure_url(url, secure):
    assert is_secure(url) is secure


REFUSED = {
    "another issuer": {"issuer": "https://id.example/realms/b"},
    "the issuer with a slash": {"issuer": f"{ISSUER}/"},
    "the issuer in another case": {"issuer": ISSUER.upper()},
    "no issuer": {"issuer": None},
    "an issuer that is a list": {"issuer": [ISSUER]},
    "pushed requests demanded (RFC 9126)": {"require_pushed_authorization_requests": True},
    "no keys": {"jwks_uri": None},
    "keys over http": {"jwks_uri": "http://id.example/jwks"},
    "keys that are a number": {"jwks_uri": 7},
    "no token endpoint": {"token_endpoint": None},
    "a token endpoint over http": {"token_endpoint": "http://id.example/token"},
    "a token endpoint with a fragment": {"token_endpoint": f"{ISSUER}/token#a"},
    "a sign-in over http": {"authorization_endpoint": "http://id.example/authorize"},
    "a sign-in that is a script": {"authorization_endpoint": "javascript:alert(1)"},
    "a device grant over http": {"device_authorization_endpoint": "http://id.example/d"},
    "no code": {"response_types_supported": ["id_token"]},
    "PKCE by `plain` alone": {"code_challenge_methods_supported": ["plain"]},
    "no signature": {"id_token_signing_alg_values_supported": ["none"]},
    "shared secrets alone": {"id_token_signing_alg_values_supported": ["HS256", "HS512"]},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED.keys())
def test_refused(changes):
    read()
    with pytest.raises(ProviderFault):
        read(**changes)


@pytest.mark.parametrize("body", [b"", b"[]", b'"a"', b"<html>", b"{", b"\xff\xfe", b"null"])
def test_no_document(body):
    with pytest.raises(ProviderFault):
        provider_of(body, issuer=ISSUER)


def test_what_is_read():
    provider = read(
        device_authorization_endpoint=f"{ISSUER}/device",
        authorization_response_iss_parameter_supported=True,
        token_endpoint_auth_methods_supported=["client_secret_post", 7],
        grant_types_supported=["authorization_code"],
        token_endpoint_auth_signing_alg_values_supported=["ES256"],
        code_challenge_methods_supported=["plain", "S256"],
    )
    assert (provider.issuer, provider.jwks_uri) == (ISSUER, f"{ISSUER}/jwks")
    assert provider.authorization_endpoint == f"{ISSUER}/authorize"
    assert provider.token_endpoint == f"{ISSUER}/token"
    assert provider.device_authorization_endpoint == f"{ISSUER}/device"
    assert provider.announces_iss
    assert provider.algorithms == ("RS256", "ES256")
    assert provider.token_auth_methods == ("client_secret_post",)
    assert provider.grant_types == ("authorization_code",)
    assert provider.assertion_algorithms == ("ES256",)


def test_what_is_not_said():
    provider = read(
        id_token_signing_alg_values_supported=None,
        response_types_supported=None,
        authorization_response_iss_parameter_supported="true",
    )
    assert provider.algorithms == ("RS256",)
    assert provider.token_auth_methods == ("client_secret_basic",)
    assert not provider.announces_iss
    assert provider.device_authorization_endpoint == ""


def test_an_issuer_of_workloads_has_keys_alone():
    provider = read(
        authorization_endpoint=None, token_endpoint=None, response_types_supported=["id_token"]
    )
    assert (provider.authorization_endpoint, provider.token_endpoint) == ("", "")
    assert provider.jwks_uri


def test_discovery_never_widens_the_algorithms():
    everything = [*ALGORITHMS, "none", "HS256", "HS384", "HS512", "ES256K", "Ed448"]
    assert read(id_token_signing_alg_values_supported=everything).algorithms == ALGORITHMS
