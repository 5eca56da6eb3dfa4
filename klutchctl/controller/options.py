"""The options of `klutchctl controller`, as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from klutchctl.controller.sources import Followed
from klutchctl.controller.storms import Terms as StormTerms
from klutchctl.options import Place, checked
from reconciler.controller import flags
from reconciler.controller.tasks import now_here
from reconciler.core.names import KLUTCH_NAMESPACE
from reconciler.source.signature import VerificationMode
from reconciler.source.verification import Verification
from reconciler.tls import TlsFiles
from reconciler.watch.notify.sinks_file import Sink

if TYPE_CHECKING:
    from klutchctl.web.hooks.receiver import Hook


@dataclass(frozen=True, slots=True)
class Home:
    """The cluster that the controller keeps its own objects in.

    `context` is one of the kubeconfig, None its current one, or the pod's cluster. `lease` is the
    namespace of the Lease, None for no election, and `status` that of the FleetStatus.
    """

    context: str | None
    lease: str | None
    status: str


@dataclass(frozen=True, slots=True)
class BoardOptions:
    """The address of the board; `hosts` are the names of a proxy in front."""

    address: flags.Address
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HookOptions:
    """The address of the receiver, and its webhooks."""

    address: flags.Address
    tls: TlsFiles | None
    hooks: "tuple[Hook, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a controller. Times are in seconds; an address None is nowhere.

    `fleet` is the name that the fleet has to have, "" for any. `shard`: the control planes that it
    is about, () for all.
    """

    source: Followed
    verification: Verification
    home: Home
    fleet: str
    shard: tuple[str, ...]
    interval: float
    wait_timeout: float
    storms: StormTerms
    listen: flags.Address | None
    board: BoardOptions | None
    hooks: HookOptions | None
    sinks: tuple[Sink, ...]


def address(text: str, where: str) -> flags.Address | None:
    """Return host and port of an option. Raises typer.BadParameter."""
    return checked(lambda one: flags.address(one, where), text)


def verification(place: Place, *, fleet: str | None = None) -> Verification:
    """Return how the commits of a place are verified.

    A history goes on from what the FleetStatus of `fleet` keeps, None without a controller. By a
    name of the files, an old commit that has another one would have no history to be held against.
    Raises typer.BadParameter, ConfigError and HostError.
    """
    known = [mode.value for mode in VerificationMode]
    if place.verify not in known:
        message = f"{place.verify!r} is not one of {', '.join(known)}"
        raise typer.BadParameter(message, param_hint="'--verify'")
    mode = VerificationMode(place.verify)
    if mode is VerificationMode.HISTORY and not fleet:
        message = (
            "the last accepted commit is kept by the name of the fleet, which the repository must "
            "not choose. Give --fleet NAME"
            if fleet is not None
            else "only a controller keeps the last accepted commit"
        )
        raise typer.BadParameter(message, param_hint="'--verify history'")
    return Verification(mode, place.allowed_signers, place.gpg_keys, now=now_here)


def home(
    environ: Mapping[str, str],
    context: str | None,
    lease: str | None,
    status: str | None,
    *,
    leads: bool,
) -> Home:
    """Return the place of the controller's own objects: its own namespace by default."""
    own = lease or environ.get("POD_NAMESPACE") or KLUTCH_NAMESPACE
    return Home(context, own if leads else None, status or own)


def board(text: str, hosts: Sequence[str], *, behind_proxy: bool) -> BoardOptions | None:
    """Return where the board is served, None for nowhere. Raises typer.BadParameter."""
    found = address(text, "--board")
    if found is None:
        return None
    from klutchctl.web.board.server import reached_by_others

    reached_by_others(
        found, behind_proxy=behind_proxy, option="--board", permit="--board-behind-proxy"
    )
    return BoardOptions(found, tuple(hosts))


def hooks(
    text: str | None,
    described: Sequence[str],
    certificate: Path | None,
    key: Path | None,
    *,
    plain_http: bool = False,
) -> HookOptions | None:
    """Return the webhooks that are received, None for none. Raises typer.BadParameter."""
    if text is None and not described:
        return None
    if text is None or not described:
        raise typer.BadParameter("--hooks and --hook belong together")
    from klutchctl.web.hooks import receiver

    found = address(text, "--hooks")
    if found is None:
        raise typer.BadParameter("nowhere is no address", param_hint="'--hooks'")
    tls = checked(
        lambda host: receiver.tls_of(host, certificate, key, plain_http=plain_http), found[0]
    )
    return HookOptions(found, tls, checked(receiver.parse_hooks, described))
