"""Checks the documents of an OpenID provider, and takes its endpoints (OpenID Discovery 1.0)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import orjson
from authlib.oidc.discovery import get_well_known_url

from reconciler.core.addresses import is_host, is_loopback, is_visible
from reconciler.oidc.errors import ProviderFault, UnmetDemand
from reconciler.oidc.keys import ALGORITHMS

# What a provider means that does not say which algorithms it signs with (OpenID Core 2).
_UNSAID_ALGORITHMS: Final = ("RS256",)


@dataclass(frozen=True, slots=True)
class Provider:
    """The metadata of a provider, as far as it is used.

    An issuer that only signs, such as a Kubernetes API server, has no endpoints but its keys:
    `authorization_endpoint` and `token_endpoint` are then empty.
    """

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    device_authorization_endpoint: str = ""
    announces_iss: bool = False
    algorithms: tuple[str, ...] = ALGORITHMS
    token_auth_methods: tuple[str, ...] = ("client_secret_basic",)
    grant_types: tuple[str, ...] = ()
    assertion_algorithms: tuple[str, ...] = ()  # of private_key_jwt; empty: not announced


def is_secure(url: str) -> bool:
    """Tell a URL that others cannot read or change on its way: https, or http on loopback."""
    if not is_visible(url) or "\\" in url:  # browsers read a backslash as a slash
        return False
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for a port that is none
    except ValueError:
        return False
    if "@" in parts.netloc or not is_host(parts.hostname or ""):
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts))


def discovery_url(issuer: str) -> str:
    """Return where the document of an issuer is (Discovery 4).

    Raises ProviderFault: not https (but on loopback), user, query or fragment in it.
    """
    if not is_secure(issuer):
        raise ProviderFault(f"issuer {issuer!r}: give an https URL; http is for loopback alone")
    if "?" in issuer or "#" in issuer:
        raise ProviderFault(f"issuer {issuer!r}: an issuer has no query and no fragment")
    return str(get_well_known_url(issuer, external=True))


def provider_of(document: bytes, *, issuer: str) -> Provider:
    """Read the document of a provider.

    Raises ProviderFault: no JSON object, another issuer, an endpoint missing or insecure, no
    algorithm in common; UnmetDemand: pushed requests.
    """
    metadata = _object(document, issuer)
    if metadata.get("issuer") != issuer:
        named = _text(metadata, "issuer")
        raise ProviderFault(f"provider {issuer}: its document is of issuer {named[:200]!r}")
    if metadata.get("require_pushed_authorization_requests") is True:
        raise UnmetDemand(f"provider {issuer}: demands pushed requests (RFC 9126): turn that off")
    authorization = _endpoint(metadata, "authorization_endpoint", issuer)
    device = _endpoint(metadata, "device_authorization_endpoint", issuer)
    grants = bool(authorization or device)
    if authorization:
        _require_code_and_pkce(metadata, issuer)
    return Provider(
        issuer=issuer,
        authorization_endpoint=authorization,
        token_endpoint=_endpoint(metadata, "token_endpoint", issuer, required=grants),
        jwks_uri=_endpoint(metadata, "jwks_uri", issuer, required=True),
        device_authorization_endpoint=device,
        announces_iss=metadata.get("authorization_response_iss_parameter_supported") is True,
        algorithms=_algorithms(metadata, issuer),
        token_auth_methods=_texts(metadata, "token_endpoint_auth_methods_supported")
        or ("client_secret_basic",),
        grant_types=_texts(metadata, "grant_types_supported"),
        assertion_algorithms=_texts(metadata, "token_endpoint_auth_signing_alg_values_supported"),
    )


def _object(document: bytes, issuer: str) -> dict[str, object]:
    try:
        read = orjson.loads(document)
    except orjson.JSONDecodeError:
        raise ProviderFault(f"provider {issuer}: its document is no JSON") from None
    if not isinstance(read, dict):
        raise ProviderFault(f"provider {issuer}: its document is no JSON object")
    return read


def _endpoint(
    metadata: Mapping[str, object], name: str, issuer: str, *, required: bool = False
) -> str:
    url = _text(metadata, name)
    if not url and required:
        raise ProviderFault(f"provider {issuer}: its document has no {name}")
    if url and (not is_secure(url) or "#" in url):
        raise ProviderFault(f"provider {issuer}: its {name} {url[:200]!r} is not secure")
    return url


def _require_code_and_pkce(metadata: Mapping[str, object], issuer: str) -> None:
    """Raises ProviderFault where no code, or none with PKCE by S256, can be had."""
    responses = _texts(metadata, "response_types_supported")
    if responses and "code" not in responses:
        raise ProviderFault(f"provider {issuer}: does not support response_type=code")
    methods = _texts(metadata, "code_challenge_methods_supported")
    if methods and "S256" not in methods:
        raise ProviderFault(f"provider {issuer}: does not support PKCE with S256 (RFC 7636)")


def _algorithms(metadata: Mapping[str, object], issuer: str) -> tuple[str, ...]:
    announced = _texts(metadata, "id_token_signing_alg_values_supported") or _UNSAID_ALGORITHMS
    common = tuple(name for name in ALGORITHMS if name in announced)
    if not common:
        raise ProviderFault(f"provider {issuer}: signs with none of {', '.join(ALGORITHMS)}")
    return common


def _text(metadata: Mapping[str, object], name: str) -> str:
    value = metadata.get(name)
    return value if isinstance(value, str) else ""


def _texts(metadata: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = metadata.get(name)
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()
