"""The command lines of `kubectl bind` and `kubectl bind apiservice`: Klutch's (D.1), and our own.

Flags, texts and exit codes are those of protocol-bind.md D. `klutchctl bind` has more exit codes.
Booleans stand alone or as `--flag=true`. Flags without a meaning here are accepted, and ignored.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

from klutchctl.binding import Claims, Rights
from klutchctl.binding.job import Flags, Job, Source, bound, browser, printed
from klutchctl.binding.konnector import usual_rights
from klutchctl.binding.progress import Progress
from klutchctl.binding.run import Asked, Way, resource_of
from klutchctl.entry import awaited, leaves, sentence
from klutchctl.render.terminal import visible_lines
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
        raise ConfigError(message, where=self.prog)


def code(arguments: list[str]) -> int:
    """Run the command line of a process, and return its exit code."""
    try:
        return run(arguments)
    except SystemExit as ended:  # after --help, and it is yet to be written out
        return int(ended.code or 0)
    except KeyboardInterrupt:
        return 1


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code, 0 or 1. Errors go to stderr."""
    try:
        _run(list(arguments))
    except BrokenPipeError:
        raise
    except Exception as error:
        for leaf in leaves(error):
            print(f"Error: {visible_lines(sentence(leaf))}", file=sys.stderr)
        return 1
    return 0


def _run(arguments: list[str]) -> None:
    apiservice = arguments[:1] == ["apiservice"]
    flags = parse(arguments[1:] if apiservice else arguments, apiservice=apiservice)
    if len(flags.url) > 1 if apiservice else not flags.url:
        parse(["--help"], apiservice=apiservice)
    (_bind_apiservice if apiservice else _bind_url)(flags)


def _bind_url(flags: argparse.Namespace) -> None:
    if not flags.url[0].startswith(("http://", "https://")):
        raise ConfigError(f"unknown argument: {flags.url[0]}", where="kubectl bind")
    way = Flags.of(vars(flags)).way(browser() if flags.open_browser else None)
    text = awaited(printed(_job(flags, way), flags.output))
    if not flags.dry_run:
        print(file=sys.stderr)
    print(text, end="")


def _bind_apiservice(flags: argparse.Namespace) -> None:
    source = Source(
        manifest=flags.file,
        url=flags.url[0] if flags.url else "",
        kubeconfig=flags.remote_kubeconfig,
        secret=(flags.remote_kubeconfig_namespace, flags.remote_kubeconfig_name),
        namespace=flags.remote_namespace,
    )
    source.require()
    text = awaited(bound(_job(flags, Way()), source))
    print(file=sys.stderr)
    print(text, end="")


def _job(flags: argparse.Namespace, way: Way) -> Job:
    asked = Asked(
        url=flags.url[0] if flags.url else "",
        way=way,
        issuer=getattr(flags, "issuer", ""),
        resources=tuple(map(resource_of, getattr(flags, "resource", ()))),
        skip_konnector=flags.skip_konnector,
        konnector_image=flags.konnector_image,
        no_policy=flags.no_policy,
        rights=flags.konnector_rbac or usual_rights(flags.konnector_image),
        dry_run=getattr(flags, "dry_run", False),
        wait=flags.wait_timeout,
        ready=flags.wait,
    )
    return Job(
        asked=asked,
        connection=connection(flags),
        progress=Progress(),
        claims=flags.claims,
        accept=flags.accept,
        ca_file=getattr(flags, "ca_file", None),
    )


def parse(arguments: Sequence[str], *, apiservice: bool) -> argparse.Namespace:
    """Parse a command line. Raises ConfigError; ends the process after --help."""
    parser = _apiservice() if apiservice else _bind()
    flags = parser.parse_args(list(map(_written_out, arguments)))
    if flags.output not in _FORMATS:
        raise ConfigError("unknown output format; there are yaml and json", where="--output")
    return flags


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
    flag = parser.add_argument
    flag("--kubeconfig", help="use this file, not $KUBECONFIG or ~/.kube/config")
    flag("-n", "--namespace", help="no effect: the namespace is always klutch-bind")
    for name in _CLIENT:
        flag(name, default="", help="as in kubectl, for the app cluster")
    for name in (*_LOG, "--template"):
        flag(name, default="", help=argparse.SUPPRESS)
    for name in ("--insecure-skip-tls-verify", "--disable-compression"):
        _add(parser, name, "as in kubectl, for the app cluster")
    for name in ("log-text-split-stream", "allow-missing-template-keys", "show-managed-fields"):
        _add(parser, f"--{name}", argparse.SUPPRESS)
    flag("-v", "--v", default="", help="above 0: print details of errors")
    flag("--version", nargs=0, action=Version, help="show the version and exit")
    flag("-o", "--output", default="yaml", help="format of a dry run: yaml or json")
    flag("--konnector-image", default="", help="install this image, even with --skip-konnector")
    flag("--konnector-rbac", type=Rights, help="Minimal, or Full for Klutch's own konnector")
    flag("--claims", type=Claims, default=Claims.ASK, help="ask (default), required, all or none")
    flag("--accept", action="append", default=[], help="accept claims on RESOURCE[.GROUP]")
    for name, text in (
        ("--skip-konnector", "install no konnector"),
        ("--no-policy", "do not limit the konnector by an admission policy"),
        ("--wait", "wait until the service is Ready"),
    ):
        _add(parser, name, text)
    flag("--wait-timeout", type=float, default=120.0, help="seconds for each wait")
    return parser


def _add(parser: argparse.ArgumentParser, name: str, help_text: str) -> None:
    parser.add_argument(name, help=help_text, type=_switch, default=False, metavar="BOOL")


def _bind() -> _Parser:
    parser = _common("kubectl bind", "Bind a service of a provider; also: kubectl bind apiservice")
    flag = parser.add_argument
    flag("url", nargs="*", help="address of the provider: http:// or https://")
    for name, text in (
        ("--dry-run", "print the requests, and write nothing"),
        ("--open-browser", "open the browser; otherwise only print the URL"),
        ("--device-code", "sign in with a browser on another machine"),
        ("--exchange", "exchange the token of --identity at the identity provider"),
    ):
        _add(parser, name, text)
    flag("--resource", action="append", default=[], help="service to bind: PLURAL.GROUP")
    flag("--callback-port", type=int, default=0, help="port for the answer of a sign-in")
    flag("--ca-file", type=Path, help="CA of the provider, as PEM")
    flag("--client-id", default="", help="sign in as a machine")
    for name in ("secret", "key", "assertion"):
        flag(f"--client-{name}-file", type=Path, help=f"file with the {name} of the client")
    flag("--scope", action="append", default=[], help="scope to ask for; repeatable")
    flag("--issuer", default="", help="the only identity provider that may sign you in")
    flag("--identity", default="", help="token: file:F, env:NAME, github, kubernetes:NS/SA")
    return parser


def _apiservice() -> _Parser:
    parser = _common("kubectl bind apiservice", "Bind a service by an APIServiceExportRequest")
    flag = parser.add_argument
    flag("url", nargs="*", help="address of the request's manifest")
    flag("-f", "--file", default="", help="file with the request; - is standard input")
    flag("--remote-kubeconfig", type=Path, help="kubeconfig of the provider")
    for name, text in (("namespace", "namespace of a Secret with it"), ("name", "its name")):
        flag(f"--remote-kubeconfig-{name}", default="", help=text)
    flag("--remote-namespace", default="", help="namespace of the request at the provider")
    for name in ("--downgrade-konnector", "--no-banner"):
        _add(parser, name, argparse.SUPPRESS)
    return parser


def connection(flags: argparse.Namespace) -> Connection:
    """Return the connection to the app cluster. Raises ConfigError."""
    if flags.as_uid:
        raise ConfigError("impersonation is not supported", where="--as-uid")
    found = _of_files(flags)
    for value, fault, flag in (
        (flags.server, server_fault, "--server"),
        (flags.proxy_url, proxy_fault, "--proxy-url"),
    ):
        if value and (problem := fault(value)):
            raise ConfigError(problem, where=flag)
    insecure = flags.insecure_skip_tls_verify or found.insecure
    return replace(
        found,
        # A context may be of another cluster than this flag.
        name="the app cluster" if flags.server else found.name,
        server=flags.server.rstrip("/") or found.server,
        credential=_credential(flags) or found.credential,
        ca=None if insecure else _authorities(flags) or found.ca,
        insecure=insecure,
        tls_server_name=flags.tls_server_name or found.tls_server_name,
        proxy=Secret(flags.proxy_url) if flags.proxy_url else found.proxy,
    )


def _of_files(flags: argparse.Namespace) -> Connection:
    home = host.home_directory()
    paths = kubeconfig.search_paths(flags.kubeconfig, environ=os.environ, home=home)
    try:
        files = kubeconfig.merged(paths)
    except ConfigError:
        if flags.server and not flags.kubeconfig:
            return Connection(flags.server, flags.server)
        raise
    chosen = entries.profile(files, flags.context or None)
    if flags.user:
        if flags.user not in files.users:
            raise ConfigError("there is no such user in the kubeconfig", where="--user")
        chosen = replace(chosen, user=files.users[flags.user])
    return profile.connection(
        chosen, name=chosen.context.name, environ=os.environ, read=kubeconfig.read_file
    )


def _credential(flags: argparse.Namespace) -> Credential | None:
    if flags.token:
        return Token(Secret(flags.token))
    if flags.username or flags.password:
        return BasicAuth(flags.username, Secret(flags.password))
    return None


def _authorities(flags: argparse.Namespace) -> str | None:
    if not flags.certificate_authority:
        return None
    path = Path(flags.certificate_authority)
    try:
        return kubeconfig.read_file(path).decode("latin-1")
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}"
        raise ConfigError(problem, where="--certificate-authority") from None
