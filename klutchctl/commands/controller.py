"""`klutchctl controller`: keeps clusters in the state of a Git repository, until it is stopped."""

from pathlib import Path
from typing import Annotated, Final

import typer

from klutchctl.entry import awaited
from klutchctl.options import OnOff, Place, checked, flag, option, seconds
from klutchctl.settings import Settings

_POLL: Final = 30.0
_SECONDS: Final = "SECONDS"


def controller(  # noqa: PLR0913, PLR0917 - each is an option
    settings: Settings,
    place: Place,
    flux_source: Annotated[
        str | None,
        option(
            "[KIND/]NAMESPACE/NAME",
            "Read the artifact of a source of Flux, in the cluster of the Lease. KIND: "
            "GitRepository (default), OCIRepository, Bucket, ExternalArtifact.",
        ),
    ] = None,
    require_verified: Annotated[
        bool, flag("--require-verified", "Use --flux-source only while it is SourceVerified.")
    ] = False,
    fleet: Annotated[
        str,
        option(
            "NAME",
            "The name of the fleet; --verify history needs it. Without it, there is no status "
            "until the files are readable.",
        ),
    ] = "",
    poll: Annotated[float, seconds("Pause between looks at the repository.")] = _POLL,
    interval: Annotated[float, seconds("Pause between repairs of drift.", least=1)] = 300.0,
    wait_timeout: Annotated[float, seconds("Limit for each wait for another program.")] = 120.0,
    listen: Annotated[
        str, option("[ADDR]:PORT", 'Address of metrics and probes. "": none.')
    ] = ":9090",
    board: Annotated[
        str, option("ADDR:PORT", 'Address of the board. "": no board.')
    ] = "127.0.0.1:8080",
    board_behind_proxy: Annotated[
        bool, flag("--board-behind-proxy", "An authenticating proxy is in front of --board.")
    ] = False,
    board_host: Annotated[
        list[str] | None, option("NAME", "Host name that the proxy uses; repeatable.")
    ] = None,
    hooks: Annotated[
        str | None, option("[ADDR]:PORT", "Receive webhooks there, at /hooks/NAME.")
    ] = None,
    hook: Annotated[
        list[str] | None,
        option(
            "NAME=PROVIDER:SECRETFILE",
            "A webhook, for a look at once; repeatable. PROVIDER is github, gitlab, "
            "gitea or generic.",
        ),
    ] = None,
    hooks_tls_cert: Annotated[
        Path | None, option("FILE", "Certificate of --hooks, as PEM.")
    ] = None,
    hooks_tls_key: Annotated[Path | None, option("FILE", "Key of --hooks, as PEM.")] = None,
    hooks_plain_http: Annotated[
        bool, flag("--hooks-plain-http", "Without TLS, behind a proxy that ends it.")
    ] = False,
    notify: Annotated[
        Path | None, option("FILE", "File with the receivers of commit states.")
    ] = None,
    control_plane: Annotated[
        list[str] | None, option("NAME", "Only clusters of this control plane; repeatable.")
    ] = None,
    storm: Annotated[
        str, option("REPAIRS/TIME", "Stop repairing an object after so many repairs in this time.")
    ] = "3/1h",
    home_context: Annotated[
        str | None,
        option(
            "NAME",
            "Context of the cluster for its own Lease. Default: the current one, or the pod's "
            "cluster.",
        ),
    ] = None,
    lease_namespace: Annotated[
        str | None, option("NAMESPACE", "Of the Lease. Default: $POD_NAMESPACE, or klutch-bind.")
    ] = None,
    status_namespace: Annotated[
        str | None, option("NAMESPACE", "Of the FleetStatus. Default: that of the Lease.")
    ] = None,
    leader_election: Annotated[
        OnOff, typer.Option(help="off: run without a Lease, if this is the only process.")
    ] = OnOff.ON,
    log_format: Annotated[str, option("text|json", "Form of the log.")] = "text",
) -> int:
    """Apply a Git repository, or a source of Flux, continuously.

    If several processes run, only the holder of the Lease works.
    """
    if place.git is None and flux_source is None:
        raise typer.BadParameter("--git or --flux-source is needed")
    if require_verified and flux_source is None:
        raise typer.BadParameter("--require-verified needs --flux-source")
    from klutchctl.controller import options as parsed
    from klutchctl.controller.sources import of_flux, of_place
    from klutchctl.controller.storms import parse_terms
    from reconciler.controller import process, tracing
    from reconciler.watch.notify import sinks_file

    if log_format not in ("text", "json"):
        raise typer.BadParameter(f"{log_format!r} is not text or json", param_hint="--log-format")
    options = parsed.Options(
        source=of_place(place, poll=poll)
        if flux_source is None
        else of_flux(flux_source, place, poll=poll, verified=require_verified),
        verification=parsed.verification(place, fleet=fleet),
        home=parsed.home(
            settings.environ,
            home_context,
            lease_namespace,
            status_namespace,
            leads=leader_election is OnOff.ON,
        ),
        fleet=fleet,
        shard=tuple(sorted({*(control_plane or ())})),
        interval=interval,
        wait_timeout=wait_timeout,
        storms=checked(parse_terms, storm),
        listen=parsed.address(listen, "--listen"),
        board=parsed.board(board, board_host or (), behind_proxy=board_behind_proxy),
        hooks=parsed.hooks(
            hooks, hook or (), hooks_tls_cert, hooks_tls_key, plain_http=hooks_plain_http
        ),
        sinks=() if notify is None else sinks_file.read(notify),
    )
    from klutchctl.controller import program

    process.to_stderr("json" if log_format == "json" else "text", debug=settings.verbose)
    with tracing.exported(settings.environ, "klutchctl-controller"):
        return awaited(program.run(options, settings))
