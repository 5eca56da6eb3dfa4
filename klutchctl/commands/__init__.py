"""The commands, a module for each verb. Here: the form of their help."""

from collections.abc import Mapping
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

from klutchctl.entry import ExitCode, codes_help

_HEADINGS: Final[Mapping[str, str]] = {
    "Source of the files": "git git_ca oci artifact ref verify allowed_signers gpg_keys repository"
    " flux_source require_verified",
    "Clusters": "clusters selector allow_unreachable control_plane",
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
_GROUPS: Final = ("Files of a fleet", "Look at clusters", "Change clusters", "This machine")
FILES, LOOK, CHANGE, MACHINE = _GROUPS  # of commands


def end_of_help(example: str, codes: Mapping[ExitCode, str], also: str = "") -> str:
    """Return the end of a command's help. `also`: the global options that it heeds."""
    also = also and f"Also here, as all of `klutchctl --help`: {also}.\n\n"
    return f"\b\nExample:\n  klutchctl {example}\n\n{also}{codes_help(codes)}"


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
        for heading in _GROUPS if ctx.parent is None else ():
            with formatter.section(heading):
                named = ((one, self.commands[one]) for one in self.list_commands(ctx))
                of = [one for one in named if getattr(one[1], "rich_help_panel", "") == heading]
                formatter.write_dl([(name, one.get_short_help_str(60)) for name, one in of])
        if ctx.parent is not None:
            self.format_commands(ctx, formatter)
