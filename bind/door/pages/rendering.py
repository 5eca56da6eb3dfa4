"""Views as HTML."""

from typing import Final

from bind.door.pages import views
from reconciler.inbound import foreign, templates

_TYPES: Final = {"door.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}
_ENVIRONMENT: Final = templates.environment(
    "bind.door.pages", {"link": foreign.link, "host": foreign.host, "bare": foreign.bare}
)
ASSETS: Final = templates.assets("bind.door.pages", _TYPES)


def home_page(view: views.HomeView) -> str:
    """Return the page where people begin."""
    return _page("home.html", view)


def catalogue_page(view: views.CatalogueView) -> str:
    """Return the page of all offers."""
    return _page("catalogue.html", view)


def offer_page(view: views.OfferView) -> str:
    """Return the page of an offer, and of how to bind it."""
    return _page("offer.html", view)


def resources_page(view: views.ResourcesView) -> str:
    """Return the page to which a CLI's sign-in leads."""
    return _page("resources.html", view)


def consent_page(view: views.ConsentView) -> str:
    """Return the page on which a person agrees to what an offer asks for."""
    return _page("consent.html", view)


def bindings_page(view: views.BindingsView) -> str:
    """Return the page of bindings."""
    return _page("bindings.html", view)


def binding_page(view: views.BindingView) -> str:
    """Return the page of one binding."""
    return _page("binding.html", view)


def error_page(view: views.ErrorView) -> str:
    """Return the page for a request that is refused."""
    return _page("error.html", view)


def _page(
    template: str,
    view: views.HomeView
    | views.CatalogueView
    | views.OfferView
    | views.ResourcesView
    | views.ConsentView
    | views.BindingsView
    | views.BindingView
    | views.ErrorView,
) -> str:
    return _ENVIRONMENT.get_template(template).render(view=view, frame=view.frame)
