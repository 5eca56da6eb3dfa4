"""Writes the first files of a fleet repository. They are valid as they are."""

from collections.abc import Mapping
from string import Template
from typing import Final

from klutchctl.render import manifests
from reconciler.core.manifest import JSON
from reconciler.fleet.base_model import NAME

_API_VERSION: Final = "apiVersion: fleet.klutchctl.dev/v1alpha1\n"

_SCHEMA: Final = "fleet.schema.json"
_FLEET: Final = f"""{_API_VERSION}kind: Fleet
metadata: {{name: $fleet}}
spec:
  include:
    - controlplanes/*.yaml
    - clusters/**/*.yaml
    - templates/*.yaml
    - bindings/**/*.yaml
    - policies/*.yaml
  policies: {{default: Deny}} # what no Policy has a path for
  prune:
    mode: report # show what left the files; `auto` also releases it
    maxDeletes: 5 # if more left the files at once, none of it is released
"""
_PLANE: Final = f"""# Where services run.
{_API_VERSION}kind: ControlPlane
metadata: {{name: $plane}}
spec:
  access: {{kubeconfigContext: $context}}
  mode: Direct
"""
_CLUSTER: Final = f"""# Where services are used.
{_API_VERSION}kind: Cluster
metadata:
  name: $app
  labels: {{env: test, team: $team}}
spec:
  access: {{kubeconfigContext: $context}}
  controlPlane: $plane
"""
_TEMPLATE: Final = f"""# A service, and the most that it may touch in an app cluster.
{_API_VERSION}kind: Template
metadata: {{name: postgresql}}
spec:
  resources:
    - {{group: anynines.com, resource: postgresqlinstances}}
    - {{group: anynines.com, resource: servicebindings}} # it offers the claim
  claims: # the provider's Secrets with credentials come down, and none goes up
    - {{group: "", resource: secrets, version: v1, owner: Provider, names: ["*"]}}
"""
_BINDING: Final = f"""# A service in some clusters.
{_API_VERSION}kind: Binding
metadata:
  name: $name
  labels: {{owner: $team}}
spec:
  template: postgresql
  clusters:
    matchLabels: {{team: $team}}
"""
_POLICY: Final = f"""# What the bindings of a team may do.
{_API_VERSION}kind: Policy
metadata: {{name: $team}}
spec:
  paths: [$paths]
  allow:
    - templates: [postgresql]
      clusters:
        matchLabels: {{team: $team}}
"""


def files(
    schema: str, *, fleet: str, plane: str, context: str, apps: Mapping[str, str], team: str
) -> dict[str, str]:
    """Return the files of a fleet with these names, by path.

    `schema` is the text of the JSON Schema, which an editor finds by the first line of each file.
    `plane` is the name of the control plane and `context` its kubeconfig context, `apps` the
    contexts of the app clusters by their names.
    """
    texts = {
        "fleet.yaml": _filled(_FLEET, fleet=fleet),
        f"controlplanes/{plane}.yaml": _filled(_PLANE, plane=plane, context=context),
        "templates/postgresql.yaml": _TEMPLATE,
        f"bindings/{team}/postgresql.yaml": _filled(_BINDING, team=team, name=f"{team}-postgresql"),
        f"policies/{team}.yaml": _filled(_POLICY, team=team, paths=f"bindings/{team}/**"),
    }
    for app, its in apps.items():
        text = _filled(_CLUSTER, app=app, context=its, plane=plane, team=team)
        texts[f"clusters/{app}.yaml"] = text
    return _finished(texts, schema)


def _filled(text: str, **names: str) -> str:
    """Fill in names, in quotes where YAML takes them for something else: `on`, `12`."""
    quoted = {key: manifests.yaml_text(name) for key, name in names.items()}
    return Template(text).substitute(quoted)


def name_of(context: str, otherwise: str) -> str:
    """Return the name of a kubeconfig context, where it can be one."""
    return otherwise if NAME.problem_of(context) else context


def live_files(
    schema: str, *, fleet: str, context: str, mode: str, apps: Mapping[str, str]
) -> dict[str, str]:
    """Return the files of a fleet whose clusters are there already, without any Binding.

    The control plane, which makes binding spaces in this `mode`, is called as its kubeconfig
    context, where that is a name. `schema` and `apps` are as for `files`.
    """
    own = name_of(context, "main")
    patterns = ("controlplanes", "clusters", "templates", "bindings/**", "policies")
    include: list[JSON] = [{"glob": f"{one}/*.yaml", "optional": True} for one in patterns]
    # What is live is imported as it is, and no Policy knows of it yet.
    spec: dict[str, JSON] = {
        "include": include,
        "policies": {"default": "Allow"},
        "prune": {"mode": "report", "maxDeletes": 5},
    }
    at: dict[str, JSON] = {"access": {"kubeconfigContext": context}, "mode": mode}
    texts = {
        "fleet.yaml": _document("Fleet", fleet, spec),
        f"controlplanes/{own}.yaml": _document("ControlPlane", own, at),
    }
    for app, its in apps.items():
        spec = {"access": {"kubeconfigContext": its}, "controlPlane": own}
        texts[f"clusters/{app}.yaml"] = _document("Cluster", app, spec)
    return _finished(texts, schema)


def _document(kind: str, name: str, spec: Mapping[str, JSON]) -> str:
    content: dict[str, JSON] = {"kind": kind, "metadata": {"name": name}, "spec": spec}
    return _API_VERSION + "\n".join(manifests.yaml_lines(content)) + "\n"


def _finished(texts: Mapping[str, str], schema: str) -> dict[str, str]:
    """Return the files with the line by which an editor finds the schema, and the schema."""
    headed = {
        path: f"# yaml-language-server: $schema={'../' * path.count('/') or './'}{_SCHEMA}\n{text}"
        for path, text in texts.items()
    }
    return headed | {_SCHEMA: schema}
