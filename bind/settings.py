"""The flags of `klutch-bind`, as one value (protocol-bind.md B.1, and our own).

Flags of the original that belong to its web pages are accepted, so that its manifests start this
program; `unserved` names those that were given and have no effect.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, TypeAlias, cast

from reconciler.blueprints.export import Isolation, Scope
from reconciler.core import names
from reconciler.core.errors import ConfigError

LogFormat: TypeAlias = Literal["text", "json"]

_SCOPES: Final = {"namespaced": "Namespaced", "cluster": "Cluster"}
_ISOLATIONS: Final = {"prefixed": "Prefixed", "namespaced": "Namespaced", "none": "None"}
# What the original deploys where nothing is said (F48).
DEFAULT_IMAGE: Final = names.konnector_image("v1.4.0")
# What only the web pages of the original need.
_WEB: Final = (
    "namespace-prefix",
    "pretty-name",
    "external-address",
    "external-ca-file",
    "external-server-name",
    "oidc-issuer-client-id",
    "oidc-issuer-client-secret",
    "oidc-issuer-url",
    "oidc-callback-url",
    "oidc-authorize-url",
    "cookie-signing-key",
    "cookie-encryption-key",
    "listen-address",
    "listen-ip",
    "listen-port",
    "tls-cert-file",
    "tls-key-file",
    "testing-auto-select",
)
# Of the logging library of the original.
_LOGGING: Final = (
    "vmodule",
    "log-flush-frequency",
    "log-text-split-stream",
    "log-text-info-buffer-size",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one backend runs. `probes` is where health and metrics are served; None: nowhere."""

    kubeconfig: str | None = None
    context: str | None = None
    consumer_scope: Scope = "Namespaced"
    isolation: Isolation = "Prefixed"
    control_plane_mode: bool = False
    konnector_image: str = DEFAULT_IMAGE
    allow_cross_namespace_secrets: bool = False
    export_grace: timedelta = timedelta(minutes=10)
    drain_deadline: timedelta = timedelta(minutes=10)
    leader_election: bool = True
    lease_namespace: str = ""
    probes: tuple[str, int] | None = None
    workers: int = 4
    qps: float = 100.0
    burst: int = 300
    verbosity: int = 2
    log_format: LogFormat = "text"
    unserved: tuple[str, ...] = ()


def parse(arguments: Sequence[str]) -> Settings:
    """Return the settings that these arguments say.

    Raises ConfigError for a wrong one, and SystemExit(0) after --help and --version.
    """
    given = _parser().parse_args(list(arguments))
    unserved = tuple(
        f"--{name}" for name in (*_WEB, *_LOGGING) if getattr(given, _dest(name)) is not None
    )
    return Settings(
        kubeconfig=given.kubeconfig or None,
        context=given.context or None,
        consumer_scope=cast("Scope", _one_of(given.consumer_scope, _SCOPES, "--consumer-scope")),
        isolation=cast(
            "Isolation",
            _one_of(given.cluster_scoped_isolation, _ISOLATIONS, "--cluster-scoped-isolation"),
        ),
        control_plane_mode=given.control_plane_mode,
        konnector_image=given.konnector_image,
        allow_cross_namespace_secrets=given.allow_cross_namespace_secrets,
        export_grace=_seconds(given.export_grace, "--export-grace"),
        drain_deadline=_seconds(given.drain_deadline, "--drain-deadline"),
        leader_election=given.leader_election,
        lease_namespace=given.lease_namespace,
        probes=_address(given.probe_address),
        workers=_at_least(1, given.workers, "--workers"),
        qps=_positive(given.qps, "--qps"),
        burst=_at_least(1, given.burst, "--burst"),
        verbosity=given.v,
        log_format=given.logging_format,
        unserved=unserved,
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override] # raises, as NoReturn asks
        """Say it as every other error is said."""
        raise ConfigError(message, hint="`klutch-bind --help` lists the flags")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="klutch-bind",
        description="The backend of Klutch on a control plane: binding spaces, rights, exports.",
        allow_abbrev=False,
    )
    text = parser.add_argument
    text("--kubeconfig", default="", help="file; else $KUBECONFIG, ~/.kube/config, or the pod's")
    text("--context", default="", help="context of the kubeconfig")
    text("--consumer-scope", default="Namespaced", help="Namespaced or Cluster")
    text("--cluster-scoped-isolation", default="Prefixed", help="Prefixed, Namespaced or None")
    _switch(parser, "--control-plane-mode", default=False, help="serve AppClusterBindings")
    text("--konnector-image", default=DEFAULT_IMAGE, help="of konnectors that this backend deploys")
    _switch(
        parser,
        "--allow-cross-namespace-secrets",
        default=False,
        help="let an AppClusterBinding name a Secret of any namespace, without its grant",
    )
    text("--export-grace", type=float, default=600, metavar="SECONDS", help=_GRACE)
    text("--drain-deadline", type=float, default=600, metavar="SECONDS", help=_DRAIN)
    _switch(parser, "--leader-election", default=True, help="one of several replicas works")
    text("--lease-namespace", default="", help="of the leader's Lease; else the pod's own")
    text("--probe-address", default="", metavar="ADDR:PORT", help="/healthz, /readyz, /metrics")
    text("--workers", type=int, default=4, help="objects of one kind that are worked on at once")
    text("--qps", type=float, default=100.0, help="calls a second")
    text("--burst", type=int, default=300, help="calls before --qps holds")
    text("-v", "--v", type=int, default=2, metavar="LEVEL", help="from 4 on: the debug log")
    text("--logging-format", choices=("text", "json"), default="text")
    for name in (*_WEB, *_LOGGING):
        text(f"--{name}", default=None, help=argparse.SUPPRESS)
    return parser


_GRACE: Final = "an export outlives its CRD by so long"
_DRAIN: Final = "after which a deletion that does not get on is reported"


def _switch(parser: argparse.ArgumentParser, name: str, *, default: bool, help: str) -> None:
    """Add a flag that is given as `--name`, `--name=true` or `--name=false`."""
    parser.add_argument(
        name,
        nargs="?",
        const=True,
        default=default,
        type=_boolean,
        metavar="true|false",
        help=f"{help} (default: {str(default).lower()})",
    )


def _boolean(text: str) -> bool:
    values = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return values[text.lower()]


def _dest(name: str) -> str:
    return name.replace("-", "_")


def _one_of(text: str, known: dict[str, str], where: str) -> str:
    if text.lower() not in known:
        expected = " or ".join(known.values())
        raise ConfigError(f"{text!r} is not {expected}", where=where)
    return known[text.lower()]


def _seconds(value: float, where: str) -> timedelta:
    if not 0 <= value <= 86_400 * 365:
        raise ConfigError(f"{value} is not a number of seconds within a year", where=where)
    return timedelta(seconds=value)


def _at_least(least: int, value: int, where: str) -> int:
    if value < least:
        raise ConfigError(f"{value} is less than {least}", where=where)
    return value


def _positive(value: float, where: str) -> float:
    if not 0 < value < math.inf:
        raise ConfigError(f"{value} is not more than 0", where=where)
    return value


def _address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"{text!r} is not ADDR:PORT", where="--probe-address")
    return host.removeprefix("[").removesuffix("]"), int(port)
