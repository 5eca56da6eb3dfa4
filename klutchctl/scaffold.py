"""The files with which a fleet repository begins. They validate as they are."""

from collections.abc import Mapping
from typing import Final

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


def files(name: str, schema: str) -> dict[str, str]:
    """Return the files of a fleet of this name, by path.

    `schema` is the text of the JSON Schema, which an editor finds by the first line of each file.
    """
    found = {
        path: f"# yaml-language-server: $schema={_way_up(path)}{_SCHEMA}\n{text}"
        for path, text in _FILES.items()
    }
    return {path: text.replace("NAME", name) for path, text in found.items()} | {_SCHEMA: schema}


def _way_up(path: str) -> str:
    return "../" * path.count("/") or "./"
