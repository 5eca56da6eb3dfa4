"""`klutchctl init` and `schema`: the files with which a fleet repository begins."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from klutchctl.exit_codes import ExitCode
from klutchctl.settings import of


class Mode(StrEnum):
    """Who makes binding spaces on the control plane."""

    DIRECT = "Direct"
    APP_CLUSTER_BINDING = "AppClusterBinding"


def init(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="The folder; it is made where absent.")] = Path(),
    name: Annotated[str, typer.Option(metavar="NAME", help="The name of the fleet.")] = "acme",
    live: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="CONTEXT", help="From what is live: a control plane by its context."
        ),
    ] = None,
    app: Annotated[
        list[str] | None,
        typer.Option(
            "--app", metavar="NAME=CONTEXT", help="With --from: an app cluster; repeatable."
        ),
    ] = None,
    mode: Annotated[
        Mode, typer.Option(help="With --from: who makes the binding spaces there.")
    ] = Mode.DIRECT,
) -> int:
    """Write the files with which a fleet repository begins. Overwrites nothing."""
    from klutchctl import scaffold
    from reconciler.core.errors import ConfigError
    from reconciler.fleet.documents.base_model import NAME

    if problem := NAME.problem_of(name):
        raise ConfigError(f"the name {problem}", where="--name")
    apps = _apps(app or [])
    if bool(apps) != (live is not None):
        raise typer.BadParameter("--from and --app need each other")
    if live is None:
        _write(path, scaffold.files(name, schema_text()))
        typer.echo("Name your clusters in clusters/ and controlplanes/, then: klutchctl validate")
        return ExitCode.SUCCESS
    if not _is_context(live):
        raise typer.BadParameter(f"{live!r} cannot stand in a file", param_hint="'--from'")
    from klutchctl.commands import importing

    settings = of(context)
    plane = scaffold.ControlPlane(live, mode.value)
    _write(path, scaffold.live_files(name, schema_text(), plane, apps))
    return importing.run(path, path / "bindings", settings)


def _apps(options: Sequence[str]) -> Mapping[str, str]:
    """Return the contexts of app clusters by their names. Raises typer.BadParameter."""
    from reconciler.fleet.documents.base_model import NAME

    apps: dict[str, str] = {}
    for option in options:
        name, _, context = option.partition("=")
        if NAME.problem_of(name) or not _is_context(context):
            raise typer.BadParameter(f"{option!r} is not NAME=CONTEXT", param_hint="'--app'")
        if name in apps:
            raise typer.BadParameter(f"{name} is there twice", param_hint="'--app'")
        apps[name] = context
    return apps


def _is_context(text: str) -> bool:
    """Tell whether a document can name this context as it is."""
    from reconciler.fleet.documents.base_model import REFERENCE_MARK

    return bool(text) and text.isprintable() and REFERENCE_MARK not in text


def _write(folder: Path, files: Mapping[str, str]) -> None:
    from reconciler.core.errors import ConfigError
    from reconciler.fleet.files import ENTRY_NAMES

    taken = [one for one in sorted({*files, *ENTRY_NAMES}) if _exists(folder / one)]
    if taken:
        raise ConfigError(
            f"already there: {', '.join(taken)}",
            where=str(folder),
            hint="Nothing was written; choose an empty folder",
        )
    for relative, text in files.items():
        target = folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
        typer.echo(f"Wrote {target}")


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def schema(
    file: Annotated[
        Path | None, typer.Argument(help="Write it there instead of printing it.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether FILE is what would be written.")
    ] = False,
) -> int:
    """Print the JSON Schema of the documents of a fleet repository, for editors."""
    if check and file is None:
        raise typer.BadParameter("--check needs a FILE")
    from reconciler.core.errors import ConfigError

    text = schema_text()
    if file is None:
        typer.echo(text, nl=False)
    elif not check:
        file.write_text(text, "utf-8")
    elif not file.is_file() or file.read_text("utf-8") != text:
        hint = f"`klutchctl schema {file}` writes it"
        raise ConfigError("is not the schema of this klutchctl", where=str(file), hint=hint)
    return ExitCode.SUCCESS


def schema_text() -> str:
    """Return the JSON Schema as the text of a file."""
    import json

    from reconciler.fleet.documents.models import schema as generate

    return json.dumps(generate(), indent=2) + "\n"
