"""ClusterBinding: one app cluster as its provider sees it (protocol-bind A.6).

There is one in each binding space, named `cluster`.
"""

from typing import Final

from reconciler.core.keys import API_VERSION, KLUTCH_GROUP
from reconciler.core.refs import Kind

CLUSTER_BINDING: Final = Kind(KLUTCH_GROUP, API_VERSION, "ClusterBinding", "clusterbindings")
