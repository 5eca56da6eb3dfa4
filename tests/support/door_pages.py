"""Views of every page of the front door: plain ones, and hostile ones."""

from dataclasses import replace
from typing import Final

from bind.door.catalogue import Offer
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
SENTENCES = (
    views.ClaimSentence(
        0,
        'The provider wants to write secrets objects (apiVersion: "v1") on your cluster.\n'
        "Created objects will be recreated upon deletion. Accepting this Permission is optional.",
        required=False,
    ),
    views.ClaimSentence(
        1,
        'The provider wants to read configmaps objects (apiVersion: "v1") which are referenced '
        'with:\n\t- name: "settings"\non your cluster.\n'
        "Accepting this Permission is required in order to proceed.",
        required=True,
    ),
)
RESULT = views.Result(
    "klutchctl bind https://bind.example.org --resource databases.shop.example --claims none "
    "--accept configmaps",
    "apiVersion: fleet.klutchctl.dev/v1alpha1\nkind: Template\nmetadata: {name: databases}\n",
    ("A remark.",),
)
CONDITIONS = (
    views.ConditionRow("Ready", "False", "HeartbeatTimeout", "No heartbeat", "2026-11-25T10:00Z"),
    views.ConditionRow("Healthy", "True", "", "", "2026-11-25T10:00Z"),
    views.ConditionRow("SecretValid", "Unknown", "", "", "2026-11-25T10:00Z"),
)
_BOUND: Final[tuple[tuple[str, tuple[str, ...], str, views.Shape, str], ...]] = (
    ("4ceiSrw8", ("databases.shop.example", "queues.shop.example"), "Ready", "good", "12 s ago"),
    ("9bbk2Lx1", (), "Waiting", "waiting", "never"),
    ("m2Pq77ab", ("databases.shop.example",), "Not ready", "bad", "40 s ago"),
    ("zz81kWqe", ("queues.shop.example",), "No heartbeat", "silent", "3 d ago"),
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
    )
    for cid, services, word, shape, heartbeat in _BOUND
)
OFFERS = (
    views.OfferRow(
        "PostgreSQL database",
        "Database",
        "databases.shop.example",
        "Namespaced",
        ("secrets", "configmaps"),
        True,
        "/ui/offers/services/databases",
    ),
    views.OfferRow(
        "Queue",
        "Queue",
        "queues.shop.example",
        "Namespaced",
        (),
        False,
        "/ui/offers/services/queues",
    ),
)


def card(offer: Offer = DATABASES, path: str = "/bind", plural: str = "") -> views.Card:
    """Return a card whose link is as the original's."""
    plural, group = plural or offer.resource.plural, offer.resource.group
    href = f"{path}?s=abc&resource={plural}&group={group}"
    return views.Card(offer.singular, group, offer.scope, plural, href, offer.title)


def every() -> dict[str, str]:
    """Return every page in each of its states, by a path that says which."""
    target = "http://localhost:40123/callback"
    cards = [card(), card(plural="queues")]
    consent = views.ConsentView(
        DATABASES, SENTENCES, "c", "/consent?s=abc", target, cid="4ceiSrw8", frame=FRAME
    )
    offer = views.OfferView(
        DATABASES, SENTENCES, "c", "/ui/offers/services/databases", True, frame=CATALOGUE
    )
    return {
        "home-out": views.html(views.HomeView("/ui/sign-in", views.Frame("Shop Inc"))),
        "home-in": views.html(views.HomeView("", FRAME)),
        "catalogue": views.html(views.CatalogueView(OFFERS, 2, frame=CATALOGUE)),
        "catalogue-none": views.html(views.CatalogueView((), 2, "xyz", CATALOGUE)),
        "catalogue-empty": views.html(views.CatalogueView((), 0, frame=CATALOGUE)),
        "offer": views.html(offer),
        "offer-result": views.html(
            views.OfferView(
                DATABASES,
                SENTENCES,
                "c",
                "/ui/offers/services/databases",
                True,
                chosen=(1,),
                result=RESULT,
                frame=CATALOGUE,
            )
        ),
        "offer-forbidden": views.html(
            views.OfferView(DATABASES, (), "c", "/x", may_bind=False, frame=CATALOGUE)
        ),
        "resources": views.html(
            views.ResourcesView(cards, "4ceiSrw8", target, signed_in=True, frame=FRAME)
        ),
        "resources-empty": views.html(views.ResourcesView((), "4ceiSrw8", target, signed_in=True)),
        "resources-out": views.html(
            views.ResourcesView((), "", "", signed_in=False, sign_in_hint="Run it again")
        ),
        "consent": views.html(consent),
        "consent-dry": views.html(replace(consent, dry_run=True)),
        "consent-problem": views.html(
            views.ConsentView(
                DATABASES,
                SENTENCES,
                "c",
                "/consent?s=abc",
                target,
                "The service needs configmaps",
                chosen=(0,),
                frame=FRAME,
            )
        ),
        "bindings": views.html(views.BindingsView(ROWS, frame=BINDINGS)),
        "bindings-all": views.html(views.BindingsView(ROWS, True, BINDINGS)),
        "bindings-none": views.html(views.BindingsView((), frame=BINDINGS)),
        "binding": views.html(
            views.BindingView(ROWS[2], ("kubectl delete x", "kubectl delete y"), BINDINGS)
        ),
        "error": views.html(
            views.ErrorView(403, "Forbidden", "You may not bind this", "Ask", "req-1", FRAME)
        ),
        "error-bare": views.html(views.ErrorView(500, "Error", "x", "", "", views.Frame(ui=False))),
    }
