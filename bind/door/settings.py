"""The flags of the front door, as one value (protocol-bind.md B.1, and our own)."""

import argparse
import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from reconciler.controller import flags
from reconciler.controller.flags import Flag
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret

Authorization: TypeAlias = Literal["Authenticated", "SubjectAccessReview", "Rules"]
Network: TypeAlias = IPv4Network | IPv6Network

PRETTY_NAME: Final = "Example Backend"  # the original's
_CALLBACK: Final = "/callback"
_AUTHORIZATIONS: Final = ("Authenticated", "SubjectAccessReview", "Rules")
_FLAGS: Final = {
    "namespace_prefix": Flag("prefix of the names of new binding spaces", "TEXT", "cluster"),
    "external_address": Flag(
        "address of the API server in kubeconfigs for konnectors: https://...", "URL"
    ),
    "external_ca_file": Flag("certificate authority of that API server", "FILE"),
    "external_server_name": Flag("name in its certificate", "TEXT"),
    "oidc_issuer_url": Flag("the identity provider", "URL"),
    "oidc_issuer_client_id": Flag("client of klutch-bind at that provider", "ID"),
    "oidc_client_secret_file": Flag("file with the secret of that client", "FILE"),
    "oidc_callback_url": Flag("redirect URL of that client: https://HOST/callback", "URL"),
    "oidc_authorize_url": Flag(
        "first URL of a sign-in of a CLI (default: beside the callback)", "URL"
    ),
    "oidc_ca_file": Flag("certificate authority of the provider", "FILE"),
    "oidc_scopes": Flag("scopes of a sign-in", "TEXT", "openid profile email"),
    "oidc_username_claim": Flag("claim with the name of a user", "CLAIM", "sub"),
    "oidc_groups_claim": Flag("claim with the groups of a user", "CLAIM", "groups"),
    "oidc_prefix": Flag("prefix of the names of users and groups", "TEXT", "oidc:"),
    "public_url": Flag("URL of this front door (default: the callback's origin)", "URL"),
    "cli_client_id": Flag("public client of CLIs, for the device grant", "ID"),
    "authorization": Flag(
        "users that may bind: " + " | ".join(_AUTHORIZATIONS), "TEXT", "Authenticated"
    ),
    "access_file": Flag(
        "file with further issuers, and the rules of --authorization=Rules", "FILE"
    ),
    "listen_address": Flag("address of the front door", "ADDR:PORT", "127.0.0.1:8080"),
    "tls_cert_file": Flag("certificate of the front door; read again when it changes", "FILE"),
    "tls_key_file": Flag("key of that certificate", "FILE"),
    "allowed_redirect": Flag(
        "URL that may get answers, besides loopback addresses; repeatable", "URL", []
    ),
    "trusted_proxies": Flag("proxies with a believed X-Forwarded-For", "CIDR[,CIDR]", []),
    "pretty_name": Flag(
        f"name of the provider, for its users (default: {PRETTY_NAME})", "TEXT", None
    ),
    "max_spaces_per_subject": Flag("app clusters that one identity may bind", "NUMBER", 50),
    "ui": Flag("pages for people", default=True),
    "accept_cli_audience": Flag(
        "also accept ID tokens for --cli-client-id alone; a malicious door can relay them",
        default=False,
    ),
}
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_VISIBLE: Final = re.compile(r"[!-\[\]-~]+")  # and no backslash, which browsers read as a slash
# Other users of the machine can read arguments. So the original's flags for secrets are accepted,
# and their help only names the file for the secret.
_HIDDEN: Final = (
    "oidc-issuer-client-secret",
    "cookie-signing-key",
    "cookie-encryption-key",
    "listen-ip",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorSettings:
    """The settings of a backend's front door.

    `callback` is the whole URL that the provider knows, `public` the origin of the door, and
    `authorize` where CLIs begin. `cookie_key` is b"" where a Secret holds the keys.
    """

    issuer: str
    client_id: str
    client_secret: Secret
    callback: str
    public: str
    authorize: str
    ca_file: Path | None = None
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    username_claim: str = "sub"
    groups_claim: str = "groups"
    prefix: str = "oidc:"
    cli_client_id: str = ""
    accept_cli_audience: bool = False
    konnector_image: str = ""
    authorization: Authorization = "Authenticated"
    access_file: Path | None = None
    allowed_redirects: tuple[str, ...] = ()
    trusted_proxies: tuple[Network, ...] = ()
    most_spaces: int = 50
    ui: bool = True
    namespace_prefix: str = "cluster-"
    pretty_name: str = ""
    external_address: str = ""
    external_ca: str = ""
    external_server_name: str = ""
    cookie_key: bytes = field(default=b"", repr=False)
    listen: tuple[str, int] = ("127.0.0.1", 8080)
    tls: tuple[Path, Path] | None = None

    @property
    def audiences(self) -> tuple[str, ...]:
        """The audiences of bearer tokens. Another door may relay one for the client alone."""
        clients = (self.cli_client_id,) if self.accept_cli_audience else ()
        return (self.public, *filter(None, clients))


def add(parser: flags.Parser) -> None:
    """Add the flags of the front door to those of the backend."""
    parser.section("front door", "Served only with --oidc-issuer-url.")
    parser.table(**_FLAGS)
    for name in _HIDDEN:
        parser.add_argument(f"--{name}", default="", help=argparse.SUPPRESS)
    parser.add_argument("--listen-port", type=int, default=0, help=argparse.SUPPRESS)


def of(given: argparse.Namespace) -> DoorSettings | None:
    """Return the settings of the door; None where no flag of a provider opens it.

    Reads the files of secrets and CAs. Raises ConfigError.
    """
    by_name = vars(given)
    if not _is_opened(by_name):
        return None
    for name in ("oidc-issuer-client-id", "oidc-issuer-url", "oidc-callback-url"):
        if not by_name[name.replace("-", "_")]:
            raise ConfigError("is needed for the front door", where=f"--{name}")
    callback = _url(given.oidc_callback_url, "--oidc-callback-url")
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(callback))
    public = _origin(given.public_url, "--public-url") if given.public_url else origin
    return DoorSettings(
        issuer=_url(given.oidc_issuer_url, "--oidc-issuer-url"),
        client_id=given.oidc_issuer_client_id,
        client_secret=_client_secret(given),
        callback=_routed(callback),
        public=public,
        authorize=_url(given.oidc_authorize_url or f"{origin}/authorize", "--oidc-authorize-url"),
        ca_file=Path(given.oidc_ca_file) if given.oidc_ca_file else None,
        scopes=_scopes(given.oidc_scopes),
        username_claim=_filled(given.oidc_username_claim, "--oidc-username-claim"),
        groups_claim=given.oidc_groups_claim,
        prefix=given.oidc_prefix,
        cli_client_id=_public_client(given),
        accept_cli_audience=given.accept_cli_audience,
        konnector_image=given.konnector_image,
        authorization=_authorization(given),
        access_file=Path(given.access_file) if given.access_file else None,
        allowed_redirects=tuple(_redirect(one) for one in given.allowed_redirect),
        trusted_proxies=_networks(given.trusted_proxies),
        most_spaces=flags.at_least(1, given.max_spaces_per_subject, "--max-spaces-per-subject"),
        ui=given.ui,
        **_spaces(given),
        cookie_key=_cookie_key(given),
        listen=_listen(given),
        tls=_tls(given),
    )


def _is_opened(given: Mapping[str, object]) -> bool:
    """Return whether any flag of a provider was given: without the others it is an error."""
    usual = {name: flag.default for name, flag in _FLAGS.items() if name.startswith("oidc_")}
    usual["oidc_issuer_client_secret"] = ""
    return any(given.get(name) != text for name, text in usual.items())


def _public_client(given: argparse.Namespace) -> str:
    """Return the client of CLIs. That of browsers is none: its tokens would be taken as theirs."""
    if given.cli_client_id and given.cli_client_id == given.oidc_issuer_client_id:
        hint = "make a public client for CLIs at the provider"
        raise ConfigError(f"is that of --oidc-issuer-client-id: {hint}", where="--cli-client-id")
    return str(given.cli_client_id)


def _redirect(text: str) -> str:
    url = _url(text, "--allowed-redirect")
    if not url.startswith("https://") and urlsplit(url).hostname not in _LOOPBACK:
        problem = "credentials go there, so it has to begin with https://"
        raise ConfigError(f"{text!r}: {problem}", where="--allowed-redirect")
    return url


def _origin(text: str, where: str) -> str:
    url = _url(text, where)
    if urlsplit(url).path not in ("", "/") or urlsplit(url).query:
        raise ConfigError(f"{text!r} has a path, and the door is at / of its host", where=where)
    return url.rstrip("/")


def _spaces(given: argparse.Namespace) -> dict[str, str]:
    """Return the names of spaces, and the address for kubeconfigs."""
    address = given.external_address
    if address and not address.startswith("https://"):
        raise ConfigError("does not begin with https://", where="--external-address")
    prefix = _filled(given.namespace_prefix, "--namespace-prefix")
    if given.pretty_name is not None:
        _filled(given.pretty_name, "--pretty-name")
    ca = _read(given.external_ca_file, "--external-ca-file") if given.external_ca_file else b""
    return {
        "namespace_prefix": prefix if prefix.endswith("-") else f"{prefix}-",
        "pretty_name": given.pretty_name or "",
        "external_address": address,
        "external_ca": ca.decode("utf-8", "replace"),
        "external_server_name": given.external_server_name,
    }


def _client_secret(given: argparse.Namespace) -> Secret:
    file, text = given.oidc_client_secret_file, given.oidc_issuer_client_secret
    if bool(file) == bool(text):
        raise ConfigError(
            "name the file with the client's secret", where="--oidc-client-secret-file"
        )
    if file:
        text = _read(file, "--oidc-client-secret-file").decode("utf-8", "replace").strip()
    return Secret(_filled(text, "--oidc-client-secret-file"))


def _authorization(given: argparse.Namespace) -> Authorization:
    chosen = {one.lower(): one for one in _AUTHORIZATIONS}.get(given.authorization.lower())
    if chosen is None:
        expected = ", ".join(_AUTHORIZATIONS)
        raise ConfigError(
            f"{given.authorization!r} is not one of {expected}", where="--authorization"
        )
    if chosen == "Rules" and not given.access_file:
        raise ConfigError("is needed for --authorization=Rules", where="--access-file")
    return cast("Authorization", chosen)


def _cookie_key(given: argparse.Namespace) -> bytes:
    """Return one key made of both, b"" for none. Each is held against its own length (F14)."""
    signing = _key(given.cookie_signing_key, (32, 64), "--cookie-signing-key")
    return signing + _key(given.cookie_encryption_key, (16, 24, 32), "--cookie-encryption-key")


def _key(text: str, lengths: tuple[int, ...], where: str) -> bytes:
    if not text:
        return b""
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        raise ConfigError("is not base64", where=where) from None
    if len(key) not in lengths:
        expected = " or ".join(map(str, lengths))
        raise ConfigError(f"has {len(key)} bytes, not {expected}", where=where)
    return key


def _listen(given: argparse.Namespace) -> tuple[str, int]:
    if given.listen_ip:
        return given.listen_ip, given.listen_port
    if given.listen_port:
        raise ConfigError("has no effect alone: use --listen-address", where="--listen-port")
    address = flags.address(given.listen_address, "--listen-address")
    if address is None:
        raise ConfigError("is empty, and the front door has to listen", where="--listen-address")
    return address


def _tls(given: argparse.Namespace) -> tuple[Path, Path] | None:
    cert, key = given.tls_cert_file, given.tls_key_file
    if bool(cert) != bool(key):
        missing = "--tls-key-file" if cert else "--tls-cert-file"
        raise ConfigError("is missing: TLS takes a certificate and its key", where=missing)
    return (Path(cert), Path(key)) if cert else None


def _networks(given: list[str]) -> tuple[Network, ...]:
    texts = [one.strip() for text in given for one in text.split(",") if one.strip()]
    return tuple(_parsed(ip_network, one, "--trusted-proxies") for one in texts)


def _parsed(parse: Callable[[str], Network], text: str, where: str) -> Network:
    try:
        return parse(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a network such as 10.0.0.0/8", where=where) from None


def _url(text: str, where: str) -> str:
    try:
        parts = urlsplit(text)
        good = parts.scheme in {"https", "http"} and bool(parts.hostname) and not parts.fragment
        good = good and "@" not in parts.netloc and _VISIBLE.fullmatch(text) is not None
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"{text!r} is not a URL such as https://bind.example.org", where=where)
    return text


def _routed(callback: str) -> str:
    if urlsplit(callback).path != _CALLBACK:
        raise ConfigError(f"its path is not {_CALLBACK}", where="--oidc-callback-url")
    return callback


def _scopes(text: str) -> tuple[str, ...]:
    scopes = tuple(text.replace(",", " ").split())
    if "openid" not in scopes:
        raise ConfigError("lacks openid, so tokens would name no user", where="--oidc-scopes")
    return scopes


def _filled(text: str, where: str) -> str:
    if not text:
        raise ConfigError("is empty", where=where)
    return text


def _read(path: str, where: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", where=where) from None
