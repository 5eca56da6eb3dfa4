"""What the door offers: each template whose CRD is there."""

from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.core.manifest import Manifest
from reconciler.core.refs import GroupResource


@dataclass(frozen=True, slots=True)
class Offer:
    """A template that counts, and its CRD.

    `scope` is `Cluster` or `Namespaced`; `claims` are the permission claims of the template as the
    wire has them; `versions` the served versions, the newest first.
    """

    namespace: str
    name: str
    resource: GroupResource
    kind: str
    singular: str
    scope: str
    title: str = ""
    description: str = ""
    docs_url: str = ""
    claims: Sequence[Manifest] = ()
    versions: Sequence[str] = ()
