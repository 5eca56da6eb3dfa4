"""Texts of fleet repositories, for tests that need one with one thing different."""

from collections.abc import Mapping
from typing import Final

from reconciler.fleet.files import Snapshot

API: Final = "apiVersion: fleet.klutchctl.dev/v1alpha1\n"


def document(kind: str, name: str, spec: str, *, labels: str = "") -> str:
    """Return a document whose `spec` begins in line 4, column 7.

    A Fleet that is no test of it says at the end what holds without a Policy.
    """
    if kind == "Fleet" and spec.endswith("}") and "policies" not in spec:
        spec = spec[:-1] + ("" if spec == "{}" else ", ") + "policies: {default: Allow}}"
    more = f", labels: {labels}" if labels else ""
    return f"{API}kind: {kind}\nmetadata: {{name: {name}{more}}}\nspec: {spec}\n"


def control_plane(name: str = "eu", *, at: str = "", more: str = "") -> str:
    """Return a ControlPlane by its context `at`; `more` goes on in its spec."""
    return document("ControlPlane", name, f"{{access: {{kubeconfigContext: {at or name}}}{more}}}")


def cluster(name: str = "shop", *, at: str = "", plane: str = "eu", more: str = "") -> str:
    """Return a Cluster by its context `at`; `more` goes on in its spec."""
    access = f"access: {{kubeconfigContext: {at or name}}}"
    return document("Cluster", name, f"{{{access}, controlPlane: {plane}{more}}}")


def binding(name: str, *, group: str, plural: str, clusters: str = "shop", more: str = "") -> str:
    """Return a Binding of one resource; `more` goes on in its spec."""
    resources = f"resources: [{{group: {group}, resource: {plural}}}]"
    return document("Binding", name, f"{{{resources}, clusters: {{names: [{clusters}]}}{more}}}")


def one_file(*documents: str) -> str:
    return "---\n".join(documents)


FLEET: Final = document("Fleet", "acme", "{include: ['*/*.yaml']}")
CONTROL_PLANE: Final = document("ControlPlane", "eu", "{access: {kubeconfigContext: cp}}")
ACB_CONTROL_PLANE: Final = document(
    "ControlPlane", "eu", "{access: {kubeconfigContext: cp}, mode: AppClusterBinding}"
)
CLUSTER: Final = document(
    "Cluster", "shop", "{access: {kubeconfigContext: shop}, controlPlane: eu}", labels="{env: prod}"
)
TEMPLATE: Final = document(
    "Template",
    "pg",
    "{resources: [{group: gi.o, resource: pgs}], claims: [{resource: secrets, version: v1,"
    " owner: Provider, names: [a, b]}]}",
)
BINDING: Final = document("Binding", "db", "{template: pg, clusters: {matchLabels: {env: prod}}}")
POLICY: Final = document(
    "Policy",
    "team",
    "{paths: ['bindings/*'], allow: [{templates: [pg], clusters: {matchLabels: {env: prod}}}]}",
)

GOOD: Final[Mapping[str, str]] = {
    "fleet.yaml": FLEET,
    "planes/eu.yaml": CONTROL_PLANE,
    "clusters/shop.yaml": CLUSTER,
    "templates/pg.yaml": TEMPLATE,
    "bindings/db.yaml": BINDING,
}


def tree(changes: Mapping[str, str | bytes | None] = {}, /) -> Snapshot:
    """Return the good repository with some files different, more, or (None) absent."""
    texts = {**GOOD, **changes}
    return Snapshot(
        {
            path: text.encode() if isinstance(text, str) else text
            for path, text in texts.items()
            if text is not None
        },
        "",
    )
