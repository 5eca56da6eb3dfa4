"""Checks the documents of an OpenID provider: endpoints (OpenID Discovery 1.0), keys (RFC 7517).

The faults of a provider, of its answers, and of a token stand first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import orjson
from authlib.oidc.discovery import get_well_known_url
from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from joserfc.util import urlsafe_b64decode

from reconciler.core.addresses import is_host, is_loopback, is_visible
from reconciler.core.errors import KlutchError


class ProviderFault(KlutchError):
    """The provider's own document cannot be used; its operator or its URL is at fault."""


class UnmetDemand(ProviderFault):
    """A provider demands what none of our clients does. That does not pass by itself."""


class GrantRefused(KlutchError):
    """A provider refused a grant (RFC 6749 5.2). `error` is its code, such as `access_denied`."""

    def __init__(self, error: str, description: str = "") -> None:
        self.error, self.description = error, description
        super().__init__(f"{error}: {description}" if description else error)


class TokenRefused(KlutchError):
    """A token proves nothing here. `reason` is one word for audit lines, such as `expired`."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class CredentialFault(KlutchError):
    """A credential of ours, such as a private key, cannot be used; its file is at fault."""


class UnknownKey(TokenRefused):
    """The key that signed the token is not in the key set: a newer key set may have it."""


# No `none`, and no HS: its key would be the public one (RFC 8725 2.1).
ALGORITHMS: Final[tuple[str, ...]] = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
)

_CURVES_OF: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_EDWARDS: Final = ("Ed25519", "EdDSA")


def kind_of(algorithm: str) -> str:
    """Return the kind of key of one of `ALGORITHMS`: `RSA` or a curve."""
    return "Ed25519" if algorithm in _EDWARDS else _CURVES_OF.get(algorithm, "RSA")


def is_same(algorithm: str, other: str) -> bool:
    """Compare two algorithms; EdDSA by an Ed25519 key has two names."""
    return algorithm == other or (algorithm in _EDWARDS and other in _EDWARDS)


_MOST_KEYS: Final = 100
_MOST_FITTING: Final = 8  # a signature costs its check by each
_RSA_BITS: Final = range(2048, 8192 + 1)
_CURVES: Final = ("P-256", "P-384", "P-521")
# What makes a public key; nothing else of a JWK is given on, neither `d` nor `x5u`.
_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("kty", "n", "e"),
    "EC": ("kty", "crv", "x", "y"),
    "OKP": ("kty", "crv", "x"),
}


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that can check signatures. `kind` is `RSA` or a curve; `algorithm` may be empty."""

    id: str
    algorithm: str
    kind: str
    key: Key = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of a provider that can be used."""

    keys: tuple[PublicKey, ...]

    def fitting(self, algorithm: str, key_id: str) -> tuple[PublicKey, ...]:
        """Return the keys that can have made a signature, 8 at most; any id where none is given."""
        found = (
            key
            for key in self.keys
            if key_id in ("", key.id)
            and key.kind == kind_of(algorithm)
            and (not key.algorithm or is_same(key.algorithm, algorithm))
        )
        return tuple(found)[:_MOST_FITTING]


def keys_of(document: bytes) -> KeySet:
    """Read a key set; keys that cannot be used here are dropped (RFC 7517 5).

    Raises ProviderFault: no JSON object with a list `keys`.
    """
    try:
        read = orjson.loads(document)
    except orjson.JSONDecodeError:
        raise ProviderFault("the key set is no JSON") from None
    listed = read.get("keys") if isinstance(read, dict) else None
    if not isinstance(listed, list):
        raise ProviderFault("the key set has no list `keys`")
    read_keys = (_public_key(jwk) for jwk in listed[:_MOST_KEYS] if isinstance(jwk, dict))
    return KeySet(tuple(key for key in read_keys if key is not None))


def rsa_bits(jwk: Mapping[str, object]) -> int:
    """Return the length of an RSA modulus; joserfc only warns of short ones. Raises ValueError."""
    modulus = jwk.get("n")
    if not isinstance(modulus, str):
        raise ValueError("an RSA key has no modulus")
    return int.from_bytes(urlsafe_b64decode(modulus.encode())).bit_length()


def _public_key(jwk: Mapping[str, object]) -> PublicKey | None:
    key_id, algorithm = jwk.get("kid", ""), jwk.get("alg", "")
    if not isinstance(key_id, str) or not isinstance(algorithm, str) or not _may_verify(jwk):
        return None
    try:
        key = _imported(jwk)
    except (JoseError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if key is None:
        return None
    kind = "RSA" if isinstance(key, RSAKey) else str(jwk["crv"])
    return PublicKey(key_id, algorithm, kind, key)


def _may_verify(jwk: Mapping[str, object]) -> bool:
    operations = jwk.get("key_ops", ["verify"])
    return (
        jwk.get("use", "sig") == "sig"
        and jwk.get("alg", "") in ("", *ALGORITHMS)
        and isinstance(operations, list)
        and "verify" in operations
    )


def _imported(jwk: Mapping[str, object]) -> Key | None:
    """Return the public key, or None for a kind that signs no token here."""
    kind = jwk.get("kty")
    members = _MEMBERS.get(kind, ()) if isinstance(kind, str) else ()
    public: dict[str, str | list[str]] = {
        name: value for name in members if isinstance(value := jwk.get(name), str)
    }
    if kind == "RSA" and rsa_bits(public) in _RSA_BITS:
        return RSAKey.import_key(public)
    if kind == "EC" and public.get("crv") in _CURVES:
        return ECKey.import_key(public)
    return OKPKey.import_key(public) if kind == "OKP" and public.get("crv") == "Ed25519" else None


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
    """Return whether a URL is safe from others on its way: https, or http on loopback."""
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
        named = text_of(metadata, "issuer")
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
    url = text_of(metadata, name)
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


def text_of(metadata: Mapping[str, object], name: str) -> str:
    value = metadata.get(name)
    return value if isinstance(value, str) else ""


def _texts(metadata: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = metadata.get(name)
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()
