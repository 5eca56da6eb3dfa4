"""Plans built by hand: one of everything, and the shapes that outputs get wrong."""

from dataclasses import replace

from reconciler.api import API_SERVICE_BINDING, API_SERVICE_EXPORT_REQUEST
from reconciler.core.decision import FieldChange
from reconciler.core.errors import Origin
from reconciler.core.refs import DEPLOYMENT, NAMESPACE, SECRET, Ref
from reconciler.fleet.values import UnitKey
from reconciler.planning import changes
from reconciler.planning.planfile import identified

CONTROL_PLANE = "control-plane/eu"
SPACE = "cluster-abcdefghij"
COMMIT = "4c1e9d2f00112233445566778899aabbccddeeff"


def key(resource, cluster="shop-eu-1"):
    return UnitKey(cluster, "anynines.com", resource)


def request(unit):
    return Ref(CONTROL_PLANE, API_SERVICE_EXPORT_REQUEST, SPACE, unit.name)


def binding(unit):
    return Ref(unit.cluster, API_SERVICE_BINDING, "klutch-bind", unit.name)


def change(action, subject, ref, **more):
    return changes.Change(more.pop("cluster", "shop-eu-1"), subject, ref, action, **more)


ORDERS = key("postgresqlinstances")
ORDERS_ORIGIN = Origin("bindings/team-a/orders-db.yaml", 3, 1)
REPORTS = key("searchinstances")
CACHE = key("redisinstances")

CHANGES = (
    change(
        changes.Action.CREATE,
        "orders-db",
        request(ORDERS),
        reason="new",
        origin=ORDERS_ORIGIN,
        unit=ORDERS,
        after={
            "apiVersion": "klutch.anynines.com/v1alpha1",
            "kind": "APIServiceExportRequest",
            "metadata": {"name": ORDERS.name, "namespace": SPACE},
        },
    ),
    change(
        changes.Action.CREATE,
        "orders-db",
        binding(ORDERS),
        reason="new",
        origin=ORDERS_ORIGIN,
        unit=ORDERS,
    ),
    change(
        changes.Action.UPDATE,
        "konnector",
        Ref("shop-eu-1", DEPLOYMENT, "klutch-bind", "konnector"),
        reason="image 1.3.2 -> 1.4.0",
        origin=Origin("clusters/eu/shop-eu-1.yaml", 9, 5),
        before="88ad5e0288ad5e02",
        uid="6f1c9c0e-5a4e-4c1a-9a7e-2f0b2d1f9f11",
        fields=(
            FieldChange("/spec/template/spec/containers/konnector/image", "k:1.3.2", "k:1.4.0"),
            FieldChange("/spec/template/spec/containers/konnector/args", None, ["-v", "2"]),
        ),
    ),
    change(
        changes.Action.REPLACE,
        "reports",
        request(REPORTS),
        reason="request: parameters 3f1c09ab -> 88ad5e02 (export and data untouched;"
        " this backend may ignore parameters)",
        origin=Origin("bindings/reports.yaml", 7, 1),
        unit=REPORTS,
        steps=(
            changes.Step(changes.Verb.DELETE, request(REPORTS), "the old request"),
            changes.Step(changes.Verb.CREATE, request(REPORTS)),
        ),
    ),
    change(
        changes.Action.RELEASE,
        "old-cache",
        binding(CACHE),
        reason="no longer selected: 3 redisinstances stay, sync stops",
        unit=CACHE,
    ),
    change(
        changes.Action.NOOP, "space", Ref(CONTROL_PLANE, NAMESPACE, "", SPACE), reason="in sync"
    ),
    change(
        changes.Action.ADOPT,
        "space",
        Ref(CONTROL_PLANE, NAMESPACE, "", "cluster-x7r2p"),
        cluster="shop-eu-2",
        reason="taken over as it is: ownership labels are added",
        origin=Origin("clusters/eu/shop-eu-2.yaml", 1, 1),
    ),
    change(
        changes.Action.UPDATE,
        "space",
        Ref(CONTROL_PLANE, SECRET, "cluster-x7r2p", "kubeconfig"),
        cluster="shop-eu-2",
        reason="differs",
        after={
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "kubeconfig"},
            "data": {"kubeconfig": "(known after apply)"},
        },
        fields=(FieldChange("/data/kubeconfig", "0123456789abcdef", "fedcba9876543210"),),
    ),
    change(
        changes.Action.DELETE,
        "old-queue",
        binding(key("messaginginstances", "shop-eu-2")),
        cluster="shop-eu-2",
        reason="no longer selected, deletionPolicy Delete, no instance exists",
        unit=key("messaginginstances", "shop-eu-2"),
    ),
    change(
        changes.Action.BLOCKED,
        "orders-db",
        binding(key("postgresqlinstances", "shop-eu-2")),
        cluster="shop-eu-2",
        reason="the control plane offers no template for postgresqlinstances.anynines.com",
        origin=ORDERS_ORIGIN,
        unit=key("postgresqlinstances", "shop-eu-2"),
    ),
    change(
        changes.Action.UNKNOWN,
        "orders-db",
        binding(key("postgresqlinstances", "edge-3")),
        cluster="edge-3",
        reason="the cluster was not read",
        origin=ORDERS_ORIGIN,
        unit=key("postgresqlinstances", "edge-3"),
    ),
)


def widened(cluster, **more):
    claim = changes.WidenedClaim(
        unit=key("servicebindings", cluster),
        binding="orders-db",
        claim="secrets",
        before="names [orders-creds]",
        after="all",
        origin=ORDERS_ORIGIN,
    )
    return replace(claim, **more)


EVERYTHING = changes.Plan(
    fleet="acme",
    revision=f"{COMMIT}+dirty",
    digest="0f" * 32,
    changes=CHANGES,
    sections={"shop-eu-1": "eu", "shop-eu-2": "eu", "edge-3": "eu"},
    widened=(
        widened("shop-eu-1"),
        widened("shop-eu-2"),
        widened("shop-eu-3"),
        widened("shop-eu-4"),
        widened("shop-eu-5"),
        widened("shop-eu-1", claim="configmaps", before="nothing"),
    ),
    held=(
        changes.Tripped(
            "max-deletes",
            "3 units would be released, replaced or deleted, and 1 may be: none is; raise the"
            " budget in the files or take smaller steps",
            ("shop-eu-1", "shop-eu-2"),
        ),
        changes.Tripped("suspended", "moving"),
    ),
    unseen=(
        changes.UnseenCluster(
            "edge-3", "connect timeout 10s", "Is the VPN up? `klutchctl doctor` tells"
        ),
    ),
    warnings=("shop-eu-1/servicebindings.anynines.com: configmaps is offered, not accepted",),
    clusters_total=4,
)

# What somebody who may name things would try on the readers of a plan.
HOSTILE_TEXT = "\x1b[2Jx\r\n```\n- delete\n</code><img src=x>@team |**b**| [a](http://e) \u202etxt"
HOSTILE = replace(
    EVERYTHING,
    fleet=HOSTILE_TEXT,
    revision=HOSTILE_TEXT,
    changes=tuple(
        replace(
            one,
            subject=HOSTILE_TEXT,
            reason=HOSTILE_TEXT,
            cluster=HOSTILE_TEXT,
            ref=replace(one.ref, name=HOSTILE_TEXT, namespace=HOSTILE_TEXT),
            origin=Origin(HOSTILE_TEXT, 1, 1),
            fields=tuple(
                replace(field, path=f"{field.path}~{HOSTILE_TEXT}") for field in one.fields
            ),
            steps=tuple(replace(step, note=HOSTILE_TEXT) for step in one.steps),
        )
        for one in CHANGES
    ),
    sections={HOSTILE_TEXT: HOSTILE_TEXT},
    widened=tuple(
        replace(one, binding=HOSTILE_TEXT, claim=HOSTILE_TEXT, before=HOSTILE_TEXT)
        for one in EVERYTHING.widened
    ),
    held=(changes.Tripped(HOSTILE_TEXT, HOSTILE_TEXT, (HOSTILE_TEXT,)),),
    unseen=(changes.UnseenCluster(HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT),),
    warnings=(HOSTILE_TEXT,),
)

PLANS = {
    "everything": identified(EVERYTHING),
    "nothing-to-do": identified(
        changes.Plan(
            fleet="acme",
            revision="",
            digest="0f" * 32,
            changes=tuple(replace(one, action=changes.Action.NOOP) for one in CHANGES[:2]),
            sections={"shop-eu-1": "eu"},
            clusters_total=2,
        )
    ),
    "clusters-unread": identified(
        replace(
            EVERYTHING,
            revision=COMMIT,
            changes=(),
            widened=(),
            held=(),
            warnings=(),
            unseen=tuple(
                changes.UnseenCluster(f"edge-{number}", "403 on secrets", "grant it")
                for number in range(5)
            ),
            clusters_total=9,
        )
    ),
    "hostile": identified(HOSTILE),
}
