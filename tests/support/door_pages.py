"""Views of every page of the front door: plain ones, and hostile ones."""

from dataclasses import replace
from typing import Any, Final

from bind.door.catalogue import Offer
from bind.door.handlers.walk import claims_of
from bind.door.pages import views
from reconciler.core.refs import GroupResource

FRAME = views.Frame("Shop Inc", "oidc:alice@example.org", "csrf-1")
CATALOGUE = views.Frame("Shop Inc", "oidc:alice@example.org", "csrf-1", "catalogue")
BINDINGS = views.Frame("Shop Inc", "oidc:alice@example.org", "csrf-1", "bindings")
DATABASES = Offer(
    "services",
    "databases",
    GroupResource("shop.example", "databases"),
    "Database",
    "database",
    "Namespaced",
    "PostgreSQL database",
    "A database of your own, with a role that owns it.\n\nBackups are made each night.",
    "https://docs.shop.example/databases",
    (
        {"group": "", "resource": "secrets", "version": "v1", "selector": {"owner": "Provider"}},
        {
            "group": "",
            "resource": "configmaps",
            "version": "v1",
            "required": True,
            "selector": {"owner": "Consumer"},
        },
    ),
    ("v1", "v1beta1"),
)
CLAIMS = claims_of(DATABASES)
RESULT = views.Result(
    "klutchctl bind https://bind.example.org --resource databases.shop.example --claims none "
    "--accept configmaps",
    "kubectl bind https://bind.example.org/export",
    "apiVersion: fleet.klutchctl.dev/v1alpha1\nkind: Template\nmetadata: {name: databases}\n",
    ("A remark.",),
)
CONDITIONS = (
    views.ConditionRow("Ready", "False", "HeartbeatTimeout", "No heartbeat", "5m ago", "bad"),
    views.ConditionRow("Healthy", "True", "", "", "2d ago", "good"),
    views.ConditionRow("SecretValid", "Unknown", "", "", "2d ago"),
)
LOOK = "In your cluster: kubectl -n klutch-bind get deployment konnector"
WHY = "Its conditions have the reason."
_BOUND: Final[tuple[tuple[str, str, tuple[str, ...], str, views.Shape, str, str], ...]] = (
    (
        *("4ceiSrw8", "prod-eu", ("databases.shop.example", "queues.shop.example")),
        *("Ready", "good", "12s ago", ""),
    ),
    ("9bbk2Lx1", "", (), "Waiting for the konnector", "waiting", "never", LOOK),
    ("m2Pq77ab", "", ("databases.shop.example",), "Not ready", "bad", "40s ago", WHY),
    ("zz81kWqe", "lab", ("queues.shop.example",), "No heartbeat", "silent", "3d ago", LOOK),
)
ROWS = tuple(
    views.BindingRow(
        f"cluster-{cid}",
        cid,
        "alice",
        services,
        word,
        shape,
        heartbeat,
        f"/ui/bindings/cluster-{cid}",
        CONDITIONS,
        name,
        step,
    )
    for cid, name, services, word, shape, heartbeat, step in _BOUND
)
QUEUES = replace(
    DATABASES,
    name="queues",
    resource=GroupResource("shop.example", "queues"),
    kind="Queue",
    title="Queue",
    description="",
)
OFFERS = (
    views.OfferRow(DATABASES, ("secrets", "configmaps"), True, "/ui/offers/services/databases"),
    views.OfferRow(QUEUES, (), False, "/ui/offers/services/queues"),
)


def every() -> dict[str, str]:
    """Return every page in each of its states, by a path that says which."""
    target = "http://localhost:40123/callback"
    link = "/bind?s=abc&resource={0.plural}&group={0.group}"  # as the original's
    cards = [
        views.Card(one, link.format(one.resource), claims_of(one)) for one in (DATABASES, QUEUES)
    ]
    form: Any = {"offer": DATABASES, "claims": CLAIMS, "csrf": "c"}
    asked: Any = {**form, "action": "/consent?s=abc", "target": target, "frame": FRAME}
    consent = views.ConsentView(**asked, cid="4ceiSrw8", called="prod-eu")
    chosen: Any = {**form, "action": "/ui/offers/services/databases", "frame": CATALOGUE}
    offer = views.OfferView(**chosen, may_bind=True)
    return {
        "home-out": views.html(views.HomeView("/ui/sign-in", frame=views.Frame("Shop Inc"))),
        "home-in": views.html(views.HomeView("", OFFERS, FRAME)),
        "catalogue": views.html(views.CatalogueView(OFFERS, 2, frame=CATALOGUE)),
        "catalogue-equal": views.html(views.CatalogueView(OFFERS[:1], 1, frame=CATALOGUE)),
        "catalogue-none": views.html(views.CatalogueView((), 2, "xyz", CATALOGUE)),
        "catalogue-empty": views.html(views.CatalogueView((), 0, frame=CATALOGUE)),
        "offer": views.html(offer),
        "offer-result": views.html(replace(offer, chosen=(1,), result=RESULT)),
        "offer-forbidden": views.html(replace(offer, claims=(), may_bind=False)),
        "resources": views.html(
            views.ResourcesView(cards, "4ceiSrw8", target, signed_in=True, frame=FRAME)
        ),
        "resources-empty": views.html(views.ResourcesView((), "4ceiSrw8", target, signed_in=True)),
        "resources-out": views.html(views.ResourcesView((), "", "", signed_in=False)),
        "consent": views.html(consent),
        "consent-dry": views.html(replace(consent, dry_run=True)),
        "consent-problem": views.html(
            replace(consent, problem="The service needs configmaps", chosen=(0,))
        ),
        "bindings": views.html(views.BindingsView(ROWS, frame=BINDINGS)),
        "bindings-all": views.html(views.BindingsView(ROWS, True, BINDINGS)),
        "bindings-none": views.html(views.BindingsView((), frame=BINDINGS)),
        "binding": views.html(
            views.BindingView(ROWS[2], ("kubectl delete x", "kubectl delete y"), BINDINGS)
        ),
        "error": views.html(
            views.ErrorView(
                403, "You may not do that here", "You may not bind this", "Ask", "req-1", FRAME
            )
        ),
        "error-bare": views.html(views.ErrorView(500, "Error", "x", "", "", views.Frame(ui=False))),
    }
