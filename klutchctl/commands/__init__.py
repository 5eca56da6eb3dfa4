"""The commands, a module for each verb. Here: the form of their help."""

from collections.abc import Mapping
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

from klutchctl.entry import ExitCode, codes_help

_HEADINGS: Final[Mapping[str, str]] = {
    "Source of the files": "git git_ca oci artifact ref verify allowed_signers gpg_keys repository"
    " flux_source require_verified",
    "Clusters": "cluster selector allow_unreachable control_plane",
    "Connections": "kubeconfig parallelism qps burst timeout connect_timeout"
    " deny_networks allow_networks",
    "Sign-in": "no_browser callback_port device_code client_id client_secret_file"
    " client_key_file client_assertion_file scope identity exchange issuer",
    "Permission claims": "claims accept",
    "Konnector": "skip_konnector konnector_image konnector_rbac no_policy",
    "Metrics, board and log": "listen board board_behind_proxy board_host log_format",
    "Webhooks and notifications": "hooks hook hooks_tls_cert hooks_tls_key hooks_plain_http notify",
    "Lease and status": "home_context lease_namespace status_namespace leader_election",
}
_HEADING_OF: Final = {
    name: heading for heading, names in _HEADINGS.items() for name in names.split()
}
_COMMANDS: Final[Mapping[str, str]] = {
    "Files of a fleet": "init validate render import catalog schema",
    "Look at clusters": "plan diff drift show status why board snapshot doctor explain",
    "Change clusters": "apply controller release bind",
    "This machine": "sandbox completion version",
}
EXAMPLES: Final[Mapping[str, str]] = {
    "init": "init ~/fleet --name acme --control-plane eu --app shop-1 --team shop",
    "validate": "validate --base origin/main",
    "render": "render --cluster shop-1",
    "plan": "plan --out fleet.plan",
    "diff": "diff --base origin/main -o markdown",
    "apply": "apply fleet.plan --wait",
    "controller": "controller --git https://git.example.com/fleet.git --ref main",
    "drift": "drift --detailed-exitcode",
    "why": "why shop-1/shop-databases",
    "bind": "bind https://bind.example.org --context shop-1",
    "board": "board --listen 127.0.0.1:8080",
    "catalog": "catalog broker.yaml --credentials keys.yaml",
    "import": "import --out imported",
    "release": "release shop-1/shop-databases",
    "show": "show fleet.plan",
    "snapshot": "snapshot --out live.json",
    "status": "status --watch",
    "doctor": "doctor --for plan",
    "schema": "schema fleet.schema.json",
    "completion": "completion bash",
    "explain": "explain MassDeletion",
    "version": "version --verbose",
    "up": "sandbox up --app-clusters 2 --services --programs",
    "down": "sandbox down --delete",
    "status of a sandbox": "sandbox status --name foundry",
}


def end_of_help(example: str, codes: Mapping[ExitCode, str], also: str = "") -> str:
    """Return the end of a command's help. `example`: a key of EXAMPLES; `also`: global options."""
    also = also and f"Also here, as all of `klutchctl --help`: {also}.\n\n"
    return f"\b\nExample:\n  klutchctl {EXAMPLES[example]}\n\n{also}{codes_help(codes)}"


def _write(command: TyperCommand | TyperGroup, context: Any, formatter: Any) -> None:
    parts: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for one in command.get_params(context):
        kind = "Arguments" if one.param_type_name == "argument" else "Options"
        if record := one.get_help_record(context):
            parts.setdefault(_HEADING_OF.get(one.name or "", kind), []).append(record)
    for heading, records in parts.items():
        if records:
            with formatter.section(heading):
                formatter.write_dl(records)


class Command(TyperCommand):
    """Shows its options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write(self, ctx, formatter)


class Group(TyperGroup):
    """Shows its options and its commands in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write(self, ctx, formatter)
        for heading, names in _COMMANDS.items() if ctx.parent is None else ():
            with formatter.section(heading):
                found = ((one, self.get_command(ctx, one)) for one in names.split())
                formatter.write_dl([(one, c.get_short_help_str(60)) for one, c in found if c])
        if ctx.parent is not None:
            self.format_commands(ctx, formatter)
