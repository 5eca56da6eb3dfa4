"""Views of every page of the front door: plain ones, and hostile ones."""

from typing import Final

from bind.door import pages
from bind.door.catalogue import Offer
from reconciler.core.refs import GroupResource

FRAME = pages.Frame("Shop Inc", "oidc:alice@example.org", "csrf-1")
CATALOGUE = pages.Frame("Shop Inc", "oidc:alice@example.org", "csrf-1", "catalogue")
BINDINGS = pages.Frame("Shop Inc", "oidc:alice@example.org", "csrf-1", "bindings")
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
    pages.ClaimSentence(
        0,
        'The provider wants to write secrets objects (apiVersion: "v1") on your cluster.\n'
        "Created objects will be recreated upon deletion. Accepting this Permission is optional.",
        required=False,
    ),
    pages.ClaimSentence(
        1,
        'The provider wants to read configmaps objects (apiVersion: "v1") which are referenced '
        'with:\n\t- name: "settings"\non your cluster.\n'
        "Accepting this Permission is required in order to proceed.",
        required=True,
    ),
)
RESULT = pages.Result(
    "klutchctl bind https://bind.example.org --resource databases.shop.example --claims none "
    "--accept configmaps",
    "apiVersion: fleet.klutchctl.dev/v1alpha1\nkind: Template\nmetadata: {name: databases}\n",
    ("A remark.",),
)
CONDITIONS = (
    pages.ConditionRow("Ready", "False", "HeartbeatTimeout", "No heartbeat", "2026-11-25T10:00Z"),
    pages.ConditionRow("Healthy", "True", "", "", "2026-11-25T10:00Z"),
    pages.ConditionRow("SecretValid", "Unknown", "", "", "2026-11-25T10:00Z"),
)
_BOUND: Final[tuple[tuple[str, tuple[str, ...], str, pages.Shape, str], ...]] = (
    ("4ceiSrw8", ("databases.shop.example", "queues.shop.example"), "Ready", "good", "12 s ago"),
    ("9bbk2Lx1", (), "Waiting", "waiting", "never"),
    ("m2Pq77ab", ("databases.shop.example",), "Not ready", "bad", "40 s ago"),
    ("zz81kWqe", ("queues.shop.example",), "No heartbeat", "silent", "3 d ago"),
)
ROWS = tuple(
    pages.BindingRow(
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
    pages.OfferRow(
        "PostgreSQL database",
        "Database",
        "databases.shop.example",
        "Namespaced",
        ("secrets", "configmaps"),
        True,
        "/ui/offers/services/databases",
    ),
    pages.OfferRow(
        "Queue",
        "Queue",
        "queues.shop.example",
        "Namespaced",
        (),
        False,
        "/ui/offers/services/queues",
    ),
)


def card(offer: Offer = DATABASES, path: str = "/bind", plural: str = "") -> pages.Card:
    """Return a card whose link is as the original's."""
    plural, group = plural or offer.resource.plural, offer.resource.group
    href = f"{path}?s=abc&resource={plural}&group={group}"
    return pages.Card(offer.singular, group, offer.scope, plural, href, offer.title)


def every() -> dict[str, str]:
    """Return every page in each of its states, by a path that says which."""
    target = "http://localhost:40123/callback"
    cards = [card(), card(plural="queues")]
    consent = pages.ConsentView(
        DATABASES, SENTENCES, "c", "/consent?s=abc", target, cid="4ceiSrw8", frame=FRAME
    )
    offer = pages.OfferView(
        DATABASES, SENTENCES, "c", "/ui/offers/services/databases", True, frame=CATALOGUE
    )
    return {
        "home-out": pages.home_page(pages.HomeView("/ui/sign-in", pages.Frame("Shop Inc"))),
        "home-in": pages.home_page(pages.HomeView("", FRAME)),
        "catalogue": pages.catalogue_page(pages.CatalogueView(OFFERS, 2, frame=CATALOGUE)),
        "catalogue-none": pages.catalogue_page(pages.CatalogueView((), 2, "xyz", CATALOGUE)),
        "catalogue-empty": pages.catalogue_page(pages.CatalogueView((), 0, frame=CATALOGUE)),
        "offer": pages.offer_page(offer),
        "offer-result": pages.offer_page(
            pages.OfferView(
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
        "offer-forbidden": pages.offer_page(
            pages.OfferView(DATABASES, (), "c", "/x", may_bind=False, frame=CATALOGUE)
        ),
        "resources": pages.resources_page(
            pages.ResourcesView(cards, "4ceiSrw8", target, signed_in=True, frame=FRAME)
        ),
        "resources-empty": pages.resources_page(
            pages.ResourcesView((), "4ceiSrw8", target, signed_in=True)
        ),
        "resources-out": pages.resources_page(
            pages.ResourcesView((), "", "", signed_in=False, sign_in_hint="Run it again")
        ),
        "consent": pages.consent_page(consent),
        "consent-problem": pages.consent_page(
            pages.ConsentView(
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
        "bindings": pages.bindings_page(pages.BindingsView(ROWS, frame=BINDINGS)),
        "bindings-all": pages.bindings_page(pages.BindingsView(ROWS, True, BINDINGS)),
        "bindings-none": pages.bindings_page(pages.BindingsView((), frame=BINDINGS)),
        "binding": pages.binding_page(
            pages.BindingView(ROWS[2], ("kubectl delete x", "kubectl delete y"), BINDINGS)
        ),
        "error": pages.error_page(
            pages.ErrorView(403, "Forbidden", "You may not bind this", "Ask", "req-1", FRAME)
        ),
        "error-bare": pages.error_page(
            pages.ErrorView(500, "Error", "x", "", "", pages.Frame(ui=False))
        ),
    }
