"""`klutchctl bind`: binds a service in an app cluster, by a sign-in at a front door."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klutchctl.binding import Claims, Rights
from klutchctl.entry import ExitCode, awaited
from klutchctl.options import flag, option, seconds
from klutchctl.settings import Settings

if TYPE_CHECKING:
    from klutchctl.binding.job import Job
    from reconciler.core.refs import GroupResource
    from reconciler.kube.connection import Connection

CODES: Final = {
    ExitCode.DENIED: "the provider, its identity provider or the API server refused",
    ExitCode.HELD_BACK: "you did not agree, or nobody signed in",
    ExitCode.UNHEALTHY: "not Ready in time",
}


class Format(StrEnum):
    """The format of a dry run."""

    YAML = "yaml"
    JSON = "json"


def bind(  # noqa: PLR0913, PLR0917 - each is an option
    settings: Settings,
    url: Annotated[str, typer.Argument(help="The provider: its base URL, or .../export.")],
    resource: Annotated[
        list[str] | None,
        option("PLURAL.GROUP", "The service to bind; repeatable. Without it, you choose."),
    ] = None,
    app: Annotated[
        str | None, option("CONTEXT", "The app cluster. Default: the current context.", "--context")
    ] = None,
    ca_file: Annotated[
        Path | None, option("FILE", "Certificate authorities of the provider.")
    ] = None,
    no_browser: Annotated[
        bool, flag("--no-browser", "Print the URL, and open no browser.")
    ] = False,
    callback_port: Annotated[
        int, option("PORT", "Port for the sign-in's answer; 0: any.", min=0, max=65_535)
    ] = 0,
    device_code: Annotated[
        bool, flag("--device-code", "Sign in with a browser on another machine.")
    ] = False,
    client_id: Annotated[str, option("ID", "Sign in as a machine.")] = "",
    client_secret_file: Annotated[Path | None, option("FILE", "The secret of --client-id.")] = None,
    client_key_file: Annotated[
        Path | None, option("FILE", "Key for private_key_jwt, as PEM or JWK.")
    ] = None,
    client_assertion_file: Annotated[
        Path | None, option("FILE", "A JWT, such as a Kubernetes token.")
    ] = None,
    scope: Annotated[list[str] | None, option("SCOPE", "Scope to ask for; repeatable.")] = None,
    identity: Annotated[
        str,
        option(
            "SOURCE",
            "A machine's token: file:FILE, env:NAME, github, or kubernetes:NAMESPACE/ACCOUNT.",
        ),
    ] = "",
    exchange: Annotated[
        bool, flag("--exchange", "Exchange that token at the identity provider (RFC 8693).")
    ] = False,
    issuer: Annotated[
        str,
        option(
            "URL",
            "The only identity provider that may get your credential, or sign you in by device"
            " code. Without it, the front door names one, and a malicious door could name its"
            " own.",
        ),
    ] = "",
    claims: Annotated[
        Claims, typer.Option(help="Accept these permission claims; ask: decide about each.")
    ] = Claims.ASK,
    accept: Annotated[
        list[str] | None,
        option("RESOURCE[.GROUP]", "Accept permission claims on this kind; repeatable."),
    ] = None,
    skip_konnector: Annotated[bool, flag("--skip-konnector", "Install no konnector.")] = False,
    konnector_image: Annotated[
        str, option("IMAGE", "Image to install. Default: the one of the provider.")
    ] = "",
    konnector_rbac: Annotated[
        Rights, typer.Option(help="Rights of the konnector. Klutch's own konnector needs Full.")
    ] = Rights.MINIMAL,
    no_policy: Annotated[
        bool, flag("--no-policy", "Do not limit the konnector by an admission policy.")
    ] = False,
    dry_run: Annotated[bool, flag("--dry-run", "Print the requests; write nothing.")] = False,
    output: Annotated[
        Format, typer.Option("--output", "-o", help="Format of a dry run.")
    ] = Format.YAML,
    write: Annotated[
        Path | None,
        option(
            "FILE", "Bind nothing. Write a file for a fleet, for the clusters of --cluster or -l."
        ),
    ] = None,
    force: Annotated[bool, flag("--force", "With --write: overwrite FILE.")] = False,
    wait_timeout: Annotated[float, seconds("For each wait in the app cluster.", least=0.0)] = 120.0,
    no_wait: Annotated[bool, flag("--no-wait", "Do not wait until the service is Ready.")] = False,
) -> int:
    """Bind a service of a provider in an app cluster.

    The first bind also installs the konnector.
    """
    given = {**locals()}
    from klutchctl.binding.job import Flags, Job, browser, printed
    from klutchctl.binding.progress import Progress
    from klutchctl.binding.run import Asked

    way = Flags.of(given).way(browser())
    if write is None and (settings.clusters or settings.selector is not None or force):
        raise typer.BadParameter("--cluster, --selector and --force go with --write")
    asked = Asked(
        url=url,
        way=way,
        issuer=issuer,
        resources=tuple(map(_resource, resource or [])),
        skip_konnector=skip_konnector,
        konnector_image=konnector_image,
        no_policy=no_policy,
        rights=konnector_rbac,
        dry_run=dry_run or write is not None,
        wait=wait_timeout,
        ready=not no_wait,
    )
    job = Job(
        asked=asked,
        connection=_app_cluster(settings, app),
        progress=Progress(),
        claims=claims,
        accept=accept or [],
        ca_file=ca_file,
        networks=settings.surroundings().networks,
    )
    if write is not None:
        awaited(_written(job, write, settings, force=force))
    else:
        typer.echo(awaited(printed(job, output.value)), nl=False)
    return ExitCode.SUCCESS


def _resource(text: str) -> "GroupResource":
    """Parse --resource. Raises typer.BadParameter."""
    from reconciler.core.refs import GroupResource

    plural, _, group = text.partition(".")
    if not plural or not group:
        raise typer.BadParameter(f"{text!r} is not PLURAL.GROUP", param_hint="'--resource'")
    return GroupResource(group, plural)


def _app_cluster(settings: Settings, context: str | None) -> "Connection":
    from reconciler.kube import kubeconfig

    around = settings.surroundings()
    return kubeconfig.load(around.kubeconfigs, environ=around.environ, context=context)


async def _written(job: "Job", file: Path, settings: Settings, *, force: bool) -> None:
    from klutchctl.binding import fleet_file
    from klutchctl.binding.app_cluster import Seen

    target = fleet_file.opened(file, settings, force=force)
    async with job.bind() as bind:
        agreed = bind.agreed(await bind.dry_run(), Seen(None))
    path = target.write([(wanted, claims or ()) for wanted, claims in agreed], settings)
    job.progress.report("wrote", path=str(path))
