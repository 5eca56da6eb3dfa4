"""The files with which a fleet repository begins. They validate as they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klutchctl.render import manifests
from reconciler.core.manifest import JSON

_API_VERSION: Final = "apiVersion: fleet.klutchctl.dev/v1alpha1\n"

_SCHEMA: Final = "fleet.schema.json"
_FILES: Final[Mapping[str, str]] = {
    "fleet.yaml": f"""{_API_VERSION}kind: Fleet
metadata: {{name: NAME}}
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
""",
    "controlplanes/main.yaml": f"""# Where services run.
{_API_VERSION}kind: ControlPlane
metadata: {{name: main}}
spec:
  access: {{kubeconfigContext: control-plane}}
  mode: Direct
""",
    "clusters/app-1.yaml": f"""# Where services are used.
{_API_VERSION}kind: Cluster
metadata:
  name: app-1
  labels: {{env: test, team: team-a}}
spec:
  access: {{kubeconfigContext: app-1}}
  controlPlane: main
""",
    "templates/postgresql.yaml": f"""# A service, and the most that it may touch in an app cluster.
{_API_VERSION}kind: Template
metadata: {{name: postgresql}}
spec:
  resources:
    - {{group: anynines.com, resource: postgresqlinstances}}
  claims:
    - {{group: "", resource: secrets, version: v1, owner: Provider}}
""",
    "bindings/team-a/postgresql.yaml": f"""# A service in some clusters.
{_API_VERSION}kind: Binding
metadata:
  name: team-a-postgresql
  labels: {{owner: team-a}}
spec:
  template: postgresql
  clusters:
    matchLabels: {{team: team-a}}
""",
    "policies/team-a.yaml": f"""# What the bindings of a team may do.
{_API_VERSION}kind: Policy
metadata: {{name: team-a}}
spec:
  paths: [bindings/team-a/**]
  allow:
    - templates: [postgresql]
      clusters:
        matchLabels: {{team: team-a}}
""",
}


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A control plane that is there: its kubeconfig context, and who makes its binding spaces."""

    context: str
    mode: str


def files(name: str, schema: str) -> dict[str, str]:
    """Return the files of a fleet of this name, by path.

    `schema` is the text of the JSON Schema, which an editor finds by the first line of each file.
    """
    return _finished({path: text.replace("NAME", name) for path, text in _FILES.items()}, schema)


def live_files(
    name: str, schema: str, plane: ControlPlane, apps: Mapping[str, str]
) -> dict[str, str]:
    """Return the files of a fleet whose clusters are there already, without any Binding.

    `apps` are the kubeconfig contexts of the app clusters by their names.
    """
    patterns = ("controlplanes", "clusters", "templates", "bindings/**", "policies")
    include: list[JSON] = [{"glob": f"{one}/*.yaml", "optional": True} for one in patterns]
    # What is live is imported as it is, and no Policy knows of it yet.
    spec: dict[str, JSON] = {
        "include": include,
        "policies": {"default": "Allow"},
        "prune": {"mode": "report"},
    }
    at: dict[str, JSON] = {"access": {"kubeconfigContext": plane.context}, "mode": plane.mode}
    texts = {
        "fleet.yaml": _document("Fleet", name, spec),
        "controlplanes/main.yaml": _document("ControlPlane", "main", at),
    }
    for app, context in apps.items():
        access = {"kubeconfigContext": context}
        spec = {"access": access, "controlPlane": "main"}
        texts[f"clusters/{app}.yaml"] = _document("Cluster", app, spec)
    return _finished(texts, schema)


def _document(kind: str, name: str, spec: Mapping[str, JSON]) -> str:
    content: dict[str, JSON] = {"kind": kind, "metadata": {"name": name}, "spec": spec}
    return _API_VERSION + "\n".join(manifests.yaml_lines(content)) + "\n"


def _finished(texts: Mapping[str, str], schema: str) -> dict[str, str]:
    """Return the files with the line by which an editor finds the schema, and the schema."""
    headed = {
        path: f"# yaml-language-server: $schema={_way_up(path)}{_SCHEMA}\n{text}"
        for path, text in texts.items()
    }
    return headed | {_SCHEMA: schema}


def _way_up(path: str) -> str:
    return "../" * path.count("/") or "./"
