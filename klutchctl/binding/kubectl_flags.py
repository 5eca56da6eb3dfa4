"""The flags of the original's `kubectl bind` and `kubectl bind apiservice` (D.1), and our own.

Booleans stand alone or as `--flag=true`; what of them says nothing here is taken all the same.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

from klutchctl.binding import Claims, Rights
from reconciler.controller.flags import Version
from reconciler.core.addresses import proxy_fault
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.kube import host, kubeconfig
from reconciler.kube.connection import BasicAuth, Connection, Credential, Token
from reconciler.kube.kubeconfig import entries, profile
from reconciler.kube.networks import server_fault

_CLIENT: Final = (
    *("--context", "--user", "--server", "--certificate-authority", "--tls-server-name"),
    *("--proxy-url", "--token", "--username", "--password", "--as-uid"),
)
_LOG: Final = (
    *("--vmodule", "--logging-format", "--log-flush-frequency"),
    "--log-text-info-buffer-size",
)
_SWITCHES: Final = (
    *("--insecure-skip-tls-verify", "--disable-compression", "--log-text-split-stream"),
    *("--allow-missing-template-keys", "--show-managed-fields", "--skip-konnector", "--dry-run"),
    *("--downgrade-konnector", "--no-banner", "--no-policy"),
    *("--open-browser", "--device-code", "--exchange", "--wait"),
)
_SHORT: Final = {"-d": "--dry-run=true", "-h": "--help"}
_TRUE: Final = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}
_FORMATS: Final = ("yaml", "json")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Refuse a command line, as the original does: without the usage."""
        raise ConfigError(message)


def parse(arguments: Sequence[str], *, apiservice: bool) -> argparse.Namespace:
    """Return what a command line says. Raises ConfigError; ends the process after --help."""
    parser = _apiservice() if apiservice else _bind()
    said = parser.parse_args(list(map(_written_out, arguments)))
    if said.output not in _FORMATS:
        raise ConfigError("unknown output format; there are yaml and json", where="--output")
    return said


def _written_out(argument: str) -> str:
    """Return a switch with its value: one that stands alone takes no argument after it."""
    argument = _SHORT.get(argument, argument)
    return f"{argument}=true" if argument in _SWITCHES else argument


def _switch(text: str) -> bool:
    value = _TRUE.get(text.lower())
    if value is None:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return value


def _common(command: str, description: str) -> _Parser:
    parser = _Parser(prog=command, description=description, allow_abbrev=False)
    parser.add_argument("--kubeconfig", help="instead of $KUBECONFIG and ~/.kube/config")
    parser.add_argument("-n", "--namespace", help="taken, and of no effect: it is klutch-bind")
    for flag in _CLIENT:
        parser.add_argument(flag, default="", help="of the app cluster")
    for flag in ("--insecure-skip-tls-verify", "--disable-compression"):
        _add(parser, flag, "of the app cluster")
    for flag in (*_LOG, "--template"):
        parser.add_argument(flag, default="", help=argparse.SUPPRESS)
    for flag in ("log-text-split-stream", "allow-missing-template-keys", "show-managed-fields"):
        _add(parser, f"--{flag}", argparse.SUPPRESS)
    parser.add_argument("-v", "--v", default="", help="above 0: details of errors")
    parser.add_argument("--version", nargs=0, action=Version, help="show the version and exit")
    parser.add_argument("-o", "--output", default="yaml", help="of a dry run: yaml or json")
    _add(parser, "--skip-konnector", "install no konnector")
    parser.add_argument("--konnector-image", default="", help="wins over --skip-konnector")
    _add(parser, "--no-policy", "give the konnector rights without an admission policy")
    parser.add_argument(
        "--konnector-rbac",
        type=Rights,
        help="Minimal, or Full as the original's konnector needs it",
    )
    parser.add_argument("--claims", type=Claims, default=Claims.ASK, help="or required, all, none")
    parser.add_argument("--accept", action="append", default=[], help="accept claims on this")
    _add(parser, "--wait", "until what is bound is Ready")
    parser.add_argument("--wait-timeout", type=float, default=120.0, help="seconds of each wait")
    return parser


def _add(parser: argparse.ArgumentParser, flag: str, help_text: str) -> None:
    parser.add_argument(flag, help=help_text, type=_switch, default=False, metavar="BOOL")


def _bind() -> _Parser:
    parser = _common("kubectl bind", "Bind a service of a provider; also: kubectl bind apiservice")
    parser.add_argument("url", nargs="*", help="the provider's, http:// or https://")
    _add(parser, "--dry-run", "print the requests, and bind nothing")
    _add(parser, "--open-browser", "and do not only print the URL")
    _add(parser, "--device-code", "sign in with a browser on another machine")
    _add(parser, "--exchange", "have the identity provider exchange --identity")
    parser.add_argument("--resource", action="append", default=[], help="PLURAL.GROUP")
    parser.add_argument("--callback-port", type=int, default=0)
    parser.add_argument("--ca-file", type=Path, help="authorities for the provider's HTTPS")
    parser.add_argument("--client-id", default="", help="sign in as a machine")
    for name in ("secret", "key", "assertion"):
        parser.add_argument(f"--client-{name}-file", type=Path)
    parser.add_argument("--scope", action="append", default=[])
    parser.add_argument("--issuer", default="", help="the only identity provider to sign in at")
    parser.add_argument("--identity", default="", help="file:F, env:NAME, github, kubernetes:NS/SA")
    return parser


def _apiservice() -> _Parser:
    parser = _common("kubectl bind apiservice", "Bind by an APIServiceExportRequest")
    parser.add_argument("url", nargs="*", help="of a manifest")
    parser.add_argument("-f", "--file", default="", help="a manifest; - is standard input")
    parser.add_argument("--remote-kubeconfig", type=Path, help="a file, of the provider")
    parser.add_argument("--remote-kubeconfig-namespace", default="", help="of a Secret with it")
    parser.add_argument("--remote-kubeconfig-name", default="")
    parser.add_argument("--remote-namespace", default="", help="instead of its context's")
    _add(parser, "--downgrade-konnector", argparse.SUPPRESS)
    _add(parser, "--no-banner", argparse.SUPPRESS)
    return parser


def connection(said: argparse.Namespace) -> Connection:
    """Return the connection to the app cluster. Raises ConfigError."""
    if said.as_uid:
        raise ConfigError("impersonation is not supported", where="--as-uid")
    found = _of_files(said)
    for value, fault, flag in (
        (said.server, server_fault, "--server"),
        (said.proxy_url, proxy_fault, "--proxy-url"),
    ):
        if value and (problem := fault(value)):
            raise ConfigError(problem, where=flag)
    insecure = said.insecure_skip_tls_verify or found.insecure
    return replace(
        found,
        # A context may be of another cluster than this flag.
        name="the app cluster" if said.server else found.name,
        server=said.server.rstrip("/") or found.server,
        credential=_credential(said) or found.credential,
        ca=None if insecure else _authorities(said) or found.ca,
        insecure=insecure,
        tls_server_name=said.tls_server_name or found.tls_server_name,
        proxy=Secret(said.proxy_url) if said.proxy_url else found.proxy,
    )


def _of_files(said: argparse.Namespace) -> Connection:
    home = host.home_directory()
    paths = kubeconfig.search_paths(said.kubeconfig, environ=os.environ, home=home)
    try:
        files = kubeconfig.merged(paths)
    except ConfigError:
        if said.server and not said.kubeconfig:
            return Connection(said.server, said.server)
        raise
    chosen = entries.profile(files, said.context or None)
    if said.user:
        if said.user not in files.users:
            raise ConfigError("there is no such user in the kubeconfig", where="--user")
        chosen = replace(chosen, user=files.users[said.user])
    return profile.connection(
        chosen, name=chosen.context.name, environ=os.environ, read=kubeconfig.read_file
    )


def _credential(said: argparse.Namespace) -> Credential | None:
    if said.token:
        return Token(Secret(said.token))
    if said.username or said.password:
        return BasicAuth(said.username, Secret(said.password))
    return None


def _authorities(said: argparse.Namespace) -> str | None:
    if not said.certificate_authority:
        return None
    path = Path(said.certificate_authority)
    try:
        return kubeconfig.read_file(path).decode("latin-1")
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}"
        raise ConfigError(problem, where="--certificate-authority") from None
