"""Handles the pages for people below `/ui/`, and their files below `/assets/`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeAlias
from urllib.parse import quote

from bind.door import choices, sessions
from bind.door.audit import Subject
from bind.door.catalogue import Offer
from bind.door.handlers import answers
from bind.door.handlers.services import Services
from bind.door.handlers.sign_in import SignIn
from bind.door.handlers.walk import claims_of, form_of, places_of
from bind.door.identity import Refused, owner_key
from bind.door.pages import views
from bind.door.sessions import Visit, Wish
from reconciler.blueprints import consent
from reconciler.web.requests import Handler, Request, Response

_FRESH: Final = 60  # seconds for which a session's last use is not written again
_LONGEST_QUERY: Final = 200
_AT_HOME: Final = 3  # services on the first page
_ASSET: Final = (("Cache-Control", "public, max-age=3600"), ("X-Content-Type-Options", "nosniff"))

_Page: TypeAlias = Callable[["_Visitor"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class _Visitor:
    """A signed-in person, and the request."""

    request: Request
    visit: Visit
    frame: views.Frame


class Ui:
    """Answers `/ui/...` and `/assets/...`."""

    def __init__(self, services: Services, sign_in: SignIn) -> None:
        self._services, self._sign_in = services, sign_in

    def routes(self) -> Mapping[str, Mapping[str, Handler]]:
        """Return the handlers by path and method. They raise Refused."""
        offer = {"GET": self._page(self._offer), "POST": self._page(self._chosen)}
        return {
            "/ui/": {"GET": self._home},
            "/ui/sign-in": {"GET": lambda request: self._sign_in.begin(request, Wish())},
            "/ui/sign-out": {"POST": self._page(self._sign_out)},
            "/ui/catalogue": {"GET": self._page(self._catalogue)},
            "/ui/offers/{namespace}/{name}": offer,
            "/ui/bindings": {"GET": self._page(self._bindings)},
            "/ui/bindings/{space}": {"GET": self._page(self._binding)},
            "/assets/{name}": {"GET": self._asset},
        }

    async def _home(self, request: Request) -> Response:
        visit = await self._services.visit(request)
        if visit is None:
            return self._answer(views.HomeView("/ui/sign-in", frame=self._services.frame))
        self._services.count_look(visit.identity)
        offers = sorted(await self._services.views().offers(), key=_together)[:_AT_HOME]
        rows = [views.OfferRow(offer, (), None, _path(offer)) for offer in offers]
        return self._answer(views.HomeView("", rows, await self._frame(visit)))

    async def _sign_out(self, visitor: _Visitor) -> Response:
        await self._form(visitor, _SIGN_OUT)
        self._services.audit.note("sign-out", visitor.request, Subject(visitor.visit.identity))
        return answers.redirect("/ui/", status=303, cookies=(self._services.ui_cookie(""),))

    async def _catalogue(self, visitor: _Visitor) -> Response:
        self._services.count_look(visitor.visit.identity)
        query = visitor.request.query.get("q", "").strip()[:_LONGEST_QUERY]
        offers = await self._services.views().offers()
        found = sorted(filter(partial(_matches, query=query), offers), key=_together)
        rows = [await self._row(visitor.visit, offer) for offer in found]
        frame = replace(visitor.frame, here="catalogue")
        return self._answer(views.CatalogueView(rows, len(offers), query, frame))

    async def _row(self, visit: Visit, offer: Offer) -> views.OfferRow:
        asks = sorted({consent.claim_key(claim) for claim in offer.claims})
        may_bind = await self._services.authorizer.may_bind(visit.identity, offer)
        return views.OfferRow(offer, asks, may_bind, _path(offer))

    async def _offer(self, visitor: _Visitor) -> Response:
        return self._answer(await self._view(visitor, await self._found(visitor)))

    async def _chosen(self, visitor: _Visitor) -> Response:
        """Answer how an offer is bound with the choices of the form. Nothing is made."""
        offer = await self._found(visitor)
        form = await self._form(visitor, _path(offer))
        chosen = places_of(form.get("claim", []), len(offer.claims))
        view = replace(await self._view(visitor, offer), chosen=chosen)
        missing = consent.required_rejected(offer.claims, chosen)
        if missing:
            problem = f"The service needs {', '.join(missing)}. Accept it to continue"
            return self._answer(replace(view, problem=problem), status=422)
        result = choices.result(offer, chosen, url=self._services.settings.public)
        return self._answer(replace(view, result=result))

    async def _view(self, visitor: _Visitor, offer: Offer) -> views.OfferView:
        path = _path(offer)
        return views.OfferView(
            offer=offer,
            claims=claims_of(offer),
            csrf=await self._token(visitor.visit, path),
            action=path,
            may_bind=await self._services.authorizer.may_bind(visitor.visit.identity, offer),
            frame=replace(visitor.frame, here="catalogue"),
        )

    async def _found(self, visitor: _Visitor) -> Offer:
        """Return the offer that a path names. Raises Refused."""
        parts = visitor.request.parts
        place = parts["namespace"], parts["name"]
        for offer in await self._services.views().offers():
            if (offer.namespace, offer.name) == place:
                return offer
        raise Refused("not_found", "There is no such offer", reason="template")

    async def _bindings(self, visitor: _Visitor) -> Response:
        everybody, bound = await self._seen(visitor)
        view = views.BindingsView(
            [self._shown(visitor, one) for one in bound],
            everybody,
            replace(visitor.frame, here="bindings"),
        )
        return self._answer(view)

    async def _binding(self, visitor: _Visitor) -> Response:
        _, bound = await self._seen(visitor)
        for one in bound:
            if one.space == visitor.request.parts["space"]:
                frame = replace(visitor.frame, here="bindings")
                view = views.BindingView(self._shown(visitor, one), choices.unbind(one), frame)
                return self._answer(view)
        raise Refused("not_found", "You have no such binding", reason="space")

    def _shown(self, visitor: _Visitor, bound: choices.BoundCluster) -> views.BindingRow:
        """Return a binding; a person's own is bound by the name that other pages show, too."""
        row = choices.row(bound, datetime.fromtimestamp(self._services.now(), UTC))
        is_own = bound.owner == owner_key(visitor.visit.identity)
        return replace(row, owner=visitor.frame.user) if is_own else row

    async def _seen(self, visitor: _Visitor) -> tuple[bool, Sequence[choices.BoundCluster]]:
        """Return whether a person may see all bindings, and those that it sees."""
        identity = visitor.visit.identity
        self._services.count_look(identity)
        everybody = await self._services.authorizer.may_see_all(identity)
        spaces = self._services.spaces
        return everybody, spaces.all() if everybody else spaces.existing(identity)

    async def _asset(self, request: Request) -> Response:
        found = views.ASSETS.get(request.parts["name"])
        if found is None:
            raise Refused("not_found", "There is nothing here")
        return Response(200, found.body, found.content_type, _ASSET)

    def _page(self, page: _Page) -> Handler:
        """Return the handler of a page for signed-in people; others are sent to the start."""

        async def handler(request: Request) -> Response:
            visit = await self._services.visit(request)
            if visit is None:
                return answers.redirect("/ui/", status=303)
            answer = await page(_Visitor(request, visit, await self._frame(visit)))
            now = self._services.now()
            if answer.cookies or now - visit.seen < _FRESH:
                return answer
            used = replace(visit, used=now).sealed(await self._services.ring.keys(), sessions.UI)
            return answers.with_cookies(answer, (self._services.ui_cookie(used),))

        return handler

    async def _form(self, visitor: _Visitor, page: str) -> Mapping[str, list[str]]:
        """Return the fields of a form of ours. Raises Refused for one of another page or site."""
        form = form_of(visitor.request)
        given = form.get("csrf", [""])[0]
        known = await self._services.is_form_token(given, _subject(visitor.visit, page))
        if not known or not self._services.is_own(visitor.request):
            raise Refused("forbidden", "The form is not from this page", reason="csrf")
        return form

    async def _token(self, visit: Visit, page: str) -> str:
        return (await self._services.ring.keys()).form_token(_subject(visit, page))

    async def _frame(self, visit: Visit) -> views.Frame:
        csrf = await self._token(visit, _SIGN_OUT)
        return replace(self._services.frame, user=visit.identity.user, csrf=csrf)

    def _answer(self, view: views.View, *, status: int = 200) -> Response:
        headers = views.security_headers(forms=True, secure=self._services.secure)
        return Response(status, views.html(view).encode(), answers.HTML, headers)


_SIGN_OUT: Final = "/ui/sign-out"


def _subject(visit: Visit, page: str) -> str:
    """Return the subject of a form's token: a session, and a page."""
    return f"ui {visit.identity.issuer} {visit.identity.subject} {visit.at} {page}"


def _path(offer: Offer) -> str:
    return f"/ui/offers/{quote(offer.namespace, safe='')}/{quote(offer.name, safe='')}"


def _together(offer: Offer) -> tuple[str, str]:
    """Return the place of an offer in a list: a database beside its credentials."""
    return offer.resource.group, offer.resource.plural


def _matches(offer: Offer, query: str) -> bool:
    words = f"{offer.title} {offer.kind} {offer.resource.name} {offer.description}".casefold()
    return all(word in words for word in query.casefold().split())
