"""The flags of programs that run for long, written as the originals' are: `--a=b`, `--on`, `-v=2`.

Whatever is wrong with one is a ConfigError that names it.
"""

import argparse
import math
from collections.abc import Iterable
from typing import Final, Literal, NoReturn, TypeAlias

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
METRICS_HELP: Final = f"/metrics (default: {METRICS_ADDRESS}; empty: nowhere)"
_SWITCHES: Final = frozenset({"log-json-split-stream", "log-text-split-stream"})
_BOOLEANS: Final = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations. Raises ConfigError."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Say it as every other error is said."""
        raise ConfigError(message, hint=f"`{self.prog} --help` lists the flags")

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

    def version(self) -> None:
        """Add --version."""
        self.add_argument("--version", nargs=0, action=_Version, help="show the version and exit")

    def ignore(self, names: Iterable[str]) -> None:
        """Accept flags, without the dashes, that have no effect; `--help` does not show them."""
        for name in names:
            count = "?" if name in _SWITCHES else None
            const = "true" if name in _SWITCHES else None
            self.add_argument(
                f"--{name}", nargs=count, const=const, default=None, help=argparse.SUPPRESS
            )


class _Version(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        from importlib import metadata  # it takes as long as all the rest

        print(f"{parser.prog} {metadata.version('klutchctl')}")
        parser.exit()


def given_of(names: Iterable[str], parsed: argparse.Namespace) -> tuple[str, ...]:
    """Return which of these flags, whose default is None, were given."""
    given = vars(parsed)
    return tuple(f"--{name}" for name in names if given[name.replace("-", "_")] is not None)


def at_least(least: int, value: int, where: str) -> int:
    """Return the value. Raises ConfigError."""
    if value < least:
        raise ConfigError(f"{value} is less than {least}", where=where)
    return value


def positive(value: float, where: str) -> float:
    """Return the value, which is finite. Raises ConfigError."""
    if not 0 < value < math.inf:
        raise ConfigError(f"{value} is not more than 0", where=where)
    return value


def address(text: str, where: str) -> tuple[str, int] | None:
    """Return host and port of `HOST:PORT`; the host "" is every address, the text "" is nowhere.

    Raises ConfigError.
    """
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
        raise ConfigError(f"{text!r} is not ADDR:PORT", where=where)
    return host.removeprefix("[").removesuffix("]"), int(port)


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _BOOLEANS[text.lower()]
