"""A fleet of 500 clusters with 20 bindings each, as files: one file a cluster, one a binding."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

CLUSTERS: Final = 500
BINDINGS: Final = 20
CONTROL_PLANE: Final = "cp"
GROUP: Final = "services.example.com"

_API: Final = "apiVersion: fleet.klutchctl.dev/v1alpha1\n"
_REGIONS: Final = ("eu", "us", "ap")


def cluster_names() -> list[str]:
    """Return the names of the app clusters, which are also their kubeconfig contexts."""
    return [f"app-{number:03}" for number in range(CLUSTERS)]


def resources() -> list[str]:
    """Return the plurals of the services; every cluster gets all of them."""
    return [f"service{number:02}instances" for number in range(BINDINGS)]


def files() -> Mapping[str, str]:
    """Return the repository by path, as people would lay it out."""
    return {
        "fleet.yaml": f"""{_API}kind: Fleet
metadata: {{name: bench}}
spec:
  policies: {{default: Deny}}
  include: [clusters/**/*.yaml, templates/*.yaml, bindings/**/*.yaml, policies/*.yaml]
---
{_API}kind: ControlPlane
metadata: {{name: {CONTROL_PLANE}}}
spec: {{access: {{kubeconfigContext: {CONTROL_PLANE}}}, prettyName: Bench}}
""",
        **dict(_clusters()),
        **dict(_services()),
        "policies/teams.yaml": f"""{_API}kind: Policy
metadata: {{name: teams}}
spec:
  paths: ["bindings/**"]
  allow: [{{templates: [{", ".join(resources())}], clusters: {{matchLabels: {{env: prod}}}}}}]
  limits: {{bindingsPerCluster: {BINDINGS}}}
""",
    }


def _clusters() -> Iterable[tuple[str, str]]:
    for number, name in enumerate(cluster_names()):
        region = _REGIONS[number % len(_REGIONS)]
        yield (
            f"clusters/{region}/{name}.yaml",
            f"""{_API}kind: Cluster
metadata:
  name: {name}
  labels: {{env: prod, region: {region}, team: team-{number % 10}}}
spec:
  access: {{kubeconfigContext: {name}}}
  controlPlane: {CONTROL_PLANE}
""",
        )


def _services() -> Iterable[tuple[str, str]]:
    """Every second service hands out Secrets."""
    for number, resource in enumerate(resources()):
        claim = '{group: "", resource: secrets, version: v1, owner: Provider, names: ["*"]}'
        yield (
            f"templates/{resource}.yaml",
            f"""{_API}kind: Template
metadata: {{name: {resource}}}
spec:
  resources: [{{group: {GROUP}, resource: {resource}}}]
  claims: [{claim if number % 2 else ""}]
""",
        )
        yield (
            f"bindings/team-{number % 4}/{resource}.yaml",
            f"""{_API}kind: Binding
metadata: {{name: bind-{number:02}, labels: {{owner: team-{number % 4}}}}}
spec:
  template: {resource}
  clusters:
    matchLabels: {{env: prod}}
    matchExpressions: [{{key: region, operator: In, values: [eu, us, ap]}}]
""",
        )


def write(folder: Path) -> None:
    for path, text in files().items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def kubeconfig(servers: Mapping[str, str], *, ca: str) -> str:
    """Return a kubeconfig with a context per entry of `servers`; `ca` is PEM text in base64."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": name, "cluster": {"server": server, "certificate-authority-data": ca}}
                for name, server in servers.items()
            ],
            "users": [{"name": "operator", "user": {"token": "bench"}}],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": "operator"}} for name in servers
            ],
        },
        indent=1,
    )
