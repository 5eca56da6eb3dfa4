"""Renders health rules of our objects and claims, for Argo CD and Flux.

Argo CD has no kstatus, and Flux calls an object without a status current. The rules are files in
deploy/health: Lua for Argo CD, CEL for Flux.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Final

import typer
import yaml

from klutchctl.render import manifests
from reconciler.api.fleet_status import FLEET_GROUP
from reconciler.api.osb import OSB_GROUP
from reconciler.core import keys

_FOLDER: Final = Path(__file__).parents[1] / "deploy" / "health"
EVERY: Final = "*"
_CLAIM: Final = re.compile(r"([A-Za-z][A-Za-z0-9]*|\*)\.[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class HealthRule:
    """The rule for a kind of an API group, EVERY for all of it; `name` is that of its files."""

    group: str
    kind: str
    name: str = "claim"


_BINDINGS: Final = (
    *("APIServiceBinding", "APIServiceExport", "APIServiceExportRequest"),
    *("AppClusterBinding", "ClusterBinding"),
)
OURS: Final = (
    HealthRule(FLEET_GROUP, "FleetStatus", "fleet"),
    *(HealthRule(keys.KLUTCH_GROUP, kind, "binding") for kind in _BINDINGS),
    HealthRule(OSB_GROUP, "ServiceBroker", "binding"),
)


def text(tool: str, kinds: Iterable[str]) -> str:
    """Return health rules of argocd or flux for our kinds and these. Raises typer.BadParameter."""
    if tool not in _TOOLS:
        raise typer.BadParameter(
            f"{tool!r} is not one of {', '.join(_TOOLS)}", param_hint="'--for'"
        )
    known = {(one.group, one.kind) for one in OURS}
    claims = dict.fromkeys(map(rule_of_claim, kinds))
    return _TOOLS[tool](tuple(one for one in claims if (one.group, one.kind) not in known))


def rule_of_claim(text: str) -> HealthRule:
    """Read KIND.GROUP or *.GROUP. Raises typer.BadParameter."""
    if not _CLAIM.fullmatch(text):
        raise typer.BadParameter(f"{text!r} is not KIND.GROUP", param_hint="'--kind'")
    kind, _, group = text.partition(".")
    return HealthRule(group, kind)


def _argocd(claims: tuple[HealthRule, ...]) -> str:
    """Return a patch of ConfigMap argocd-cm. It knows wildcards for groups in this form alone."""
    common = (_FOLDER / "conditions.lua").read_text("utf-8")
    rules = "".join(
        f'"{one.group}/{one.kind}":\n  health.lua: |\n'
        + indent(common + (_FOLDER / f"{one.name}.lua").read_text("utf-8"), "    ")
        for one in (*OURS, *claims)
    )
    return f"data:\n  resource.customizations: |\n{indent(rules, '    ')}"


def _flux(claims: tuple[HealthRule, ...]) -> str:
    """Return a patch of a Kustomization, in which versions are not compared."""
    known = yaml.safe_load((_FOLDER / "flux.yaml").read_text("utf-8"))
    exprs = [
        {
            "apiVersion": f"{one.group}/{'v1' if one in claims else keys.API_VERSION}",
            **({} if one.kind == EVERY else {"kind": one.kind}),
            "inProgress": known["inProgress"],
            **known[one.name],
        }
        for one in (*OURS, *claims)
    ]
    return "\n".join(manifests.yaml_lines({"spec": {"healthCheckExprs": exprs}})) + "\n"


_TOOLS: Final = {"argocd": _argocd, "flux": _flux}
