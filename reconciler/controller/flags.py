"""Parses the flags of long-running programs, in the original's forms: `--a=b`, `--on`, `-v=2`.

Whatever is wrong with one is a ConfigError that names it.
"""

import argparse
import math
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias

from reconciler.core.errors import ConfigError

LogFormat: TypeAlias = Literal["text", "json"]

# Of the logging library of the originals; their manifests may give them.
LOGGING: Final = (
    "vmodule",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-json-split-stream",
    "log-text-info-buffer-size",
    "log-text-split-stream",
)
# Who asks for metrics is not known, and they name clusters and spaces: `kubectl port-forward`
# reaches them here, nobody else in the cluster does.
METRICS: Final = ("127.0.0.1", 8082)
METRICS_ADDRESS: Final = "127.0.0.1:8082"
_SERVED: Final = {"probe": "/healthz, /readyz", "metrics": "/metrics"}
KUBECONFIG: Final = "default: $KUBECONFIG, ~/.kube/config, or the pod's own"
_DOCS: Final = "site of the documentation: Events and conditions link to the pages of reasons"
_SWITCHES: Final = frozenset({"log-json-split-stream", "log-text-split-stream"})
_TRUE, _FALSE = ("true", "1", "t", "on"), ("false", "0", "f", "off")
_BOOLEANS: Final = dict.fromkeys(_TRUE, True) | dict.fromkeys(_FALSE, False)


Address: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The settings of every program.

    `context` is one of `kubeconfig`; None: the current one, and the usual files. `probes` and
    `metrics` are addresses, with the host "" all of this machine; None: not served. `workers` is
    for each kind; `qps` and `burst` are limits for each cluster. Events and conditions
    link to the site `docs`. `unserved` are given flags without an effect.
    """

    kubeconfig: str | None = None
    context: str | None = None
    leader_election: bool = True
    probes: Address | None = None
    metrics: Address | None = METRICS
    workers: int
    qps: float
    burst: int
    verbosity: int = 2
    log_format: LogFormat = "text"
    docs: str = ""
    unserved: tuple[str, ...] = ()


class Flag(NamedTuple):
    """A flag, of the type of its default; one of a list may be given again."""

    meaning: str
    metavar: str | None = None
    default: Any = ""


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations, with sections and an example in its help.

    Raises ConfigError.
    """

    _section: argparse._ArgumentGroup | None = None

    def __init__(self, prog: str, description: str, *, example: str) -> None:
        super().__init__(
            prog=prog,
            description=textwrap.fill(description),
            epilog=f"Example:\n  {prog} {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise a ConfigError, as for every other error."""
        raise ConfigError(message, where=self.prog, hint=f"`{self.prog} --help` lists the flags")

    def section(self, title: str, description: str | None = None) -> None:
        """Show the flags that follow below a title."""
        self._section = self.add_argument_group(title, textwrap.fill(description or ""))

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        if self._section is None:
            return super().add_argument(*names, **options)
        return self._section.add_argument(*names, **options)

    def access(self, title: str, default: str = KUBECONFIG) -> None:
        """Begin a section with the flags of a kubeconfig."""
        self.section(title)
        self.add_argument("--kubeconfig", default="", metavar="FILE", help=default)
        self.add_argument("--context", default="", help="default: the current one of that file")

    def switch(self, name: str, *, default: bool, help: str) -> None:
        """Add a flag that is given as `--name`, `--name=true` or `--name=false`."""
        self.add_argument(
            name,
            nargs="?",
            const=True,
            default=default,
            type=_boolean,
            metavar="true|false",
            help=f"{help} (default: {str(default).lower()})",
        )

    def table(self, **rows: Flag) -> None:
        """Add flags, by the names of what they set."""
        for field, (meaning, metavar, default) in rows.items():
            name = f"--{field.replace('_', '-')}"
            if isinstance(default, bool):
                self.switch(name, default=default, help=meaning)
                continue
            known: dict[str, Any] = {"default": default, "metavar": metavar, "help": meaning}
            if isinstance(default, list):
                known["action"] = "append"
            elif default not in (None, ""):
                shown = default if isinstance(default, str) else f"{default:g}"
                known |= {"type": type(default), "help": f"{meaning} (default: {shown})"}
            self.add_argument(name, **known)

    def operation(self, settings: type[Operation], *, probe_address: str) -> None:
        """Add the flags of an Operation, with the defaults of these settings, and --version."""
        self.section("this process")
        flag = self.add_argument
        self.switch("--leader-election", default=True, help="one of several replicas works")
        for name, default in (("probe", probe_address), ("metrics", METRICS_ADDRESS)):
            otherwise = f"{default}; empty: none" if default else "none"
            text = f"{_SERVED[name]} (default: {otherwise})"
            flag(f"--{name}-address", default=default, metavar="[ADDR]:PORT", help=text)
        usual = {one.name: one.default for one in fields(settings)}
        self.table(
            workers=Flag("objects of one kind to reconcile at once", default=usual["workers"]),
            qps=Flag("calls a second to each cluster", default=usual["qps"]),
            burst=Flag("calls to a cluster before --qps applies", default=usual["burst"]),
        )
        flag("-v", "--v", type=int, default=2, metavar="LEVEL", help="4 or more: the debug log")
        flag("--logging-format", choices=("text", "json"), default="text")
        flag("--docs", default="", metavar="URL", help=_DOCS)
        flag("--version", nargs=0, action=Version, help="show the version and exit")
        self.ignore(LOGGING)

    def ignore(self, names: Iterable[str]) -> None:
        """Accept flags, without the dashes, that have no effect; `--help` does not show them."""
        for name in names:
            count = "?" if name in _SWITCHES else None
            const = "true" if name in _SWITCHES else None
            self.add_argument(
                f"--{name}", nargs=count, const=const, default=None, help=argparse.SUPPRESS
            )


class Version(argparse.Action):
    """Prints the version of the program and ends it."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Print the version of the distribution, and raise SystemExit(0)."""
        from importlib import metadata  # it takes as long as all the rest

        print(f"{parser.prog} {metadata.version('klutchctl')}")
        parser.exit()


def operation(given: argparse.Namespace, *, idle: Iterable[str]) -> dict[str, Any]:
    """Return the fields of an Operation. Raises ConfigError.

    `idle` are flags without the dashes, whose default is None, that have no effect.
    """
    return {
        "kubeconfig": given.kubeconfig or None,
        "context": given.context or None,
        "leader_election": given.leader_election,
        "probes": address(given.probe_address, "--probe-address"),
        "metrics": address(given.metrics_address, "--metrics-address"),
        "workers": at_least(1, given.workers, "--workers"),
        "qps": _positive(given.qps, "--qps"),
        "burst": at_least(1, given.burst, "--burst"),
        "verbosity": given.v,
        "log_format": given.logging_format,
        "docs": given.docs,
        "unserved": _given_of((*idle, *LOGGING), given),
    }


def _given_of(names: Iterable[str], parsed: argparse.Namespace) -> tuple[str, ...]:
    given = vars(parsed)
    return tuple(f"--{name}" for name in names if given[name.replace("-", "_")] is not None)


def at_least(least: int, value: int, where: str) -> int:
    """Return the value. Raises ConfigError."""
    if value < least:
        raise ConfigError(f"{value} is less than {least}", where=where)
    return value


def _positive(value: float, where: str) -> float:
    if not 0 < value < math.inf:
        raise ConfigError(f"{value} is not more than 0", where=where)
    return value


def address(text: str, where: str) -> tuple[str, int] | None:
    """Return host and port as `host_and_port` does; the text "" is nowhere. Raises ConfigError."""
    found = host_and_port(text)
    if text and found is None:
        raise ConfigError(f"{text!r} is not ADDR:PORT", where=where)
    return found


def host_and_port(text: str) -> tuple[str, int] | None:
    """Return both parts of `HOST:PORT`, None for another text; the host "" is every address."""
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _BOOLEANS[text.lower()]
