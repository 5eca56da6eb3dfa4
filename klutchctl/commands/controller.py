"""`klutchctl controller`: keeps clusters in the state of a Git repository, until it is stopped."""

from pathlib import Path
from typing import Annotated, Final

import typer

from klutchctl.settings import OnOff, Place, of, with_place

_POLL: Final = 30.0
_SECONDS: Final = "SECONDS"


@with_place
def controller(  # noqa: PLR0913, PLR0917 - each is an option
    context: typer.Context,
    place: Place,
    flux_source: Annotated[
        str | None,
        typer.Option(
            metavar="[KIND/]NAMESPACE/NAME",
            help="Read the artifact of a source of Flux, in the cluster of the Lease. KIND: "
            "GitRepository (default), OCIRepository, Bucket, ExternalArtifact.",
        ),
    ] = None,
    require_verified: Annotated[
        bool,
        typer.Option(
            "--require-verified", help="Use --flux-source only while it is SourceVerified."
        ),
    ] = False,
    fleet: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The name of the fleet; --verify history needs it. Without it, there is no status "
            "until the files are readable.",
        ),
    ] = "",
    poll: Annotated[
        float,
        typer.Option(
            min=0.1, max=86_400, metavar=_SECONDS, help="Pause between looks at the repository."
        ),
    ] = _POLL,
    interval: Annotated[
        float,
        typer.Option(min=1, max=86_400, metavar=_SECONDS, help="Pause between repairs of drift."),
    ] = 300.0,
    wait_timeout: Annotated[
        float,
        typer.Option(
            min=0.1, max=86_400, metavar=_SECONDS, help="Limit for each wait for another program."
        ),
    ] = 120.0,
    listen: Annotated[
        str, typer.Option(metavar="[ADDR]:PORT", help='Address of metrics and probes. "": none.')
    ] = ":9090",
    board: Annotated[
        str, typer.Option(metavar="ADDR:PORT", help='Address of the board. "": no board.')
    ] = "127.0.0.1:8080",
    board_behind_proxy: Annotated[
        bool,
        typer.Option(
            "--board-behind-proxy", help="An authenticating proxy is in front of --board."
        ),
    ] = False,
    board_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host name that the proxy uses; repeatable."),
    ] = None,
    hooks: Annotated[
        str | None,
        typer.Option(metavar="[ADDR]:PORT", help="Receive webhooks there, at /hooks/NAME."),
    ] = None,
    hook: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PROVIDER:SECRETFILE",
            help="A webhook, for a look at once; repeatable. PROVIDER is github, gitlab, "
            "gitea or generic.",
        ),
    ] = None,
    hooks_tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate of --hooks, as PEM.")
    ] = None,
    hooks_tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Key of --hooks, as PEM.")
    ] = None,
    hooks_plain_http: Annotated[
        bool, typer.Option("--hooks-plain-http", help="Without TLS, behind a proxy that ends it.")
    ] = False,
    notify: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the receivers of commit states.")
    ] = None,
    control_plane: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only clusters of this control plane; repeatable."),
    ] = None,
    storm: Annotated[
        str,
        typer.Option(
            metavar="REPAIRS/TIME",
            help="Stop repairing an object after so many repairs in this time.",
        ),
    ] = "3/1h",
    home_context: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Context of the cluster for its own Lease. Default: the current one, or the pod's "
            "cluster.",
        ),
    ] = None,
    lease_namespace: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE", help="Of the Lease. Default: $POD_NAMESPACE, or klutch-bind."
        ),
    ] = None,
    status_namespace: Annotated[
        str | None,
        typer.Option(metavar="NAMESPACE", help="Of the FleetStatus. Default: that of the Lease."),
    ] = None,
    leader_election: Annotated[
        OnOff, typer.Option(help="off: run without a Lease, if this is the only process.")
    ] = OnOff.ON,
    log_format: Annotated[str, typer.Option(metavar="text|json", help="Form of the log.")] = "text",
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

    settings = of(context)
    if log_format not in ("text", "json"):
        raise typer.BadParameter(f"{log_format!r} is not text or json", param_hint="--log-format")
    options = parsed.Options(
        source=of_place(place, poll=poll)
        if flux_source is None
        else of_flux(flux_source, place, poll=poll, verified=require_verified),
        trust=parsed.trust(place, fleet=fleet),
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
        storms=parsed.checked(parse_terms, storm),
        listen=parsed.address(listen, "--listen"),
        board=parsed.board(board, board_host or (), behind_proxy=board_behind_proxy),
        hooks=parsed.hooks(
            hooks, hook or (), hooks_tls_cert, hooks_tls_key, plain_http=hooks_plain_http
        ),
        sinks=() if notify is None else sinks_file.read(notify),
    )
    import uvloop

    from klutchctl.controller import program

    process.to_stderr("json" if log_format == "json" else "text", debug=settings.verbose)
    with tracing.exported(settings.environ, "klutchctl-controller"):
        return uvloop.run(program.run(options, settings))
