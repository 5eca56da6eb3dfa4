"""What a snapshot answers beforehand."""

from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.core import keys
from reconciler.core.live import Address, ClusterState, Live, Questions, Unavailable, instances
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, NAMESPACE, Ref
from reconciler.observe.read_scope import follow_up_reads
from tests.support import fleets

FLEET = fleets.fleet()


def named(*names: str) -> tuple[Manifest, ...]:
    return tuple({"metadata": {"name": name, "namespace": "s"}} for name in names)


def test_every_bound_service_is_counted_and_the_export_of_every_unit_is_read() -> None:
    labels = {keys.FLEET: FLEET.name, keys.CLUSTER: "old"}
    left: Manifest = {"metadata": {"labels": labels, "annotations": {keys.ACCESS: "context/old"}}}
    plane = ClusterState(
        "u",
        Address("", ""),
        {
            API_SERVICE_EXPORT: named("databases.shop.example", "caches.shop.example"),
            NAMESPACE: (left,),
        },
    )
    app = ClusterState(
        "v",
        Address("", ""),
        {
            CRD: named("databases.shop.example", "queues.shop.example", "other.example"),
            API_SERVICE_BINDING: named("queues.shop.example", "gone.shop.example"),
        },
    )

    asked = follow_up_reads(FLEET, Live({"eu": plane}, {"shop": app}, {"old": app}))

    databases, queues = (instances("shop.example", name) for name in ("databases", "queues"))
    assert asked == Questions(
        in_use=frozenset(
            (cluster, kind) for cluster in ("shop", "old") for kind in (databases, queues)
        ),
        bodies=frozenset(
            {Ref("control-plane/eu", API_SERVICE_EXPORT, "s", "databases.shop.example")}
        ),
    )


def test_nothing_is_asked_of_what_is_unseen() -> None:
    lost = Unavailable("no connection")
    assert follow_up_reads(FLEET, Live({"eu": lost}, {"shop": lost})) == Questions()
