"""Handles the steps of a signed-in browser: catalogue, consent, return to the CLI."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qs, urlencode

from bind.door import sessions as sealed
from bind.door.audit import Subject
from bind.door.catalogue import Offer
from bind.door.handlers import answers
from bind.door.handlers.services import Services, claims_digest, resource_of
from bind.door.identity import Refused
from bind.door.pages import views
from bind.door.sessions import Code, Session
from reconciler.blueprints import consent
from reconciler.core import manifest
from reconciler.web.requests import Request, Response

_OWN_SITE: Final = frozenset({"same-origin", "none"})
_FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 300


class Walk:
    """Answers `/resources`, `/bind` and `/consent`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def resources(self, request: Request) -> Response:
        """Answer `/resources`: a card for each resource. Raises Refused."""
        sid = request.query.get("s", "")
        try:
            session = await self._services.session(request, sid)
        except Refused as error:
            if error.code != "invalid_token":
                raise
            return self._page(
                views.ResourcesView([], "", "", signed_in=False, frame=self._frame(None))
            )
        wish = session.wish
        path = "/consent" if wish.challenge else "/bind"
        cards = [
            views.Card(offer, _link(path, offer, sid), claims_of(offer))
            for offer in await self._services.views().offers()
        ]
        view = views.ResourcesView(
            cards, wish.cid, wish.target, True, wish.name, frame=self._frame(session)
        )
        return self._page(view)

    async def bind(self, request: Request) -> Response:
        """Answer `/bind`: make the space, and send the CLI its kubeconfig. Raises Refused."""
        if request.headers.get("sec-fetch-site", "none") not in _OWN_SITE:
            sentence = "The link is on another site. Go on from the page of the resources"
            raise Refused("forbidden", sentence, reason="cross-site")
        session, offer = await self._chosen(request)
        about = Subject(session.identity, session.wish.cid, offer.resource.name)
        try:
            self._services.count_bind(session.identity)
            if session.wish.challenge:
                return await self._back(session, offer, None, status=302)
            space = await self._services.spaces.provide(session.identity, session.wish.cid, offer)
        except Refused as error:
            self._services.audit.note("bind", request, about, reason=error.reason)
            raise
        self._services.audit.note("bind", request, replace(about, space=space.name))
        response = answers.binding_response(
            [offer], kubeconfig=space.kubeconfig, identity=session.identity, sid=session.wish.sid
        )
        location = answers.with_query(session.wish.target, response=answers.encoded(response))
        return answers.redirect(location, headers=answers.NO_CACHE)

    async def consent(self, request: Request) -> Response:
        """Answer GET `/consent`: the claims of the service. Raises Refused."""
        session, offer = await self._chosen(request)
        _require_challenge(session)
        return await self._asked(session, offer)

    async def agreed(self, request: Request) -> Response:
        """Answer POST `/consent`: the accepted claims go to the CLI. Raises Refused."""
        form = form_of(request)
        session, offer = await self._chosen(request)
        _require_challenge(session)
        if not self._services.is_own(request) or not await self._services.is_form_token(
            form.get("csrf", [""])[0], _page_id(session, offer)
        ):
            sentence = "The form is not from this page, or the page is too old. Load it again"
            raise Refused("forbidden", sentence, reason="csrf")
        chosen = places_of(form.get("claim", []), len(offer.claims))
        missing = consent.required_rejected(offer.claims, chosen)
        if missing:
            listed = ", ".join(missing)
            problem = f"The service needs {listed}. Accept it, or close this page"
            answer = await self._asked(session, offer, problem=problem, chosen=chosen)
            return replace(answer, status=422)
        self._services.count_bind(session.identity)
        return await self._back(session, offer, chosen, status=303)

    async def _chosen(self, request: Request) -> tuple[Session, Offer]:
        """Return the session, and the offer that the query names. Raises Refused."""
        session = await self._services.session(request, request.query.get("s", ""))
        resource = resource_of(request.query)
        try:
            return session, await self._services.chosen(session.identity, resource)
        except Refused as error:
            about = Subject(session.identity, session.wish.cid, resource.name)
            self._services.audit.note("bind", request, about, reason=error.reason)
            raise

    def _frame(self, session: Session | None) -> views.Frame:
        """Return the frame of a page. A CLI's session is none for the pages of `/ui/`."""
        return replace(self._services.frame, user=session.identity.user if session else "")

    async def _asked(
        self, session: Session, offer: Offer, *, problem: str = "", chosen: Sequence[int] = ()
    ) -> Response:
        keys = await self._services.ring.keys()
        view = views.ConsentView(
            offer=offer,
            claims=claims_of(offer),
            csrf=keys.form_token(_page_id(session, offer)),
            action=_link("/consent", offer, session.wish.sid),
            target=session.wish.target,
            problem=problem,
            cid=session.wish.cid,
            chosen=chosen,
            frame=self._frame(session),
            decline=self._to_the_cli(session, error="access_denied"),
            dry_run=session.wish.dry_run,
            called=session.wish.name,
        )
        return self._page(view, answers.origin(session.wish.target))

    def _page(self, view: views.View, form_action: str = "") -> Response:
        headers = views.security_headers(form_action, secure=self._services.secure)
        kept = tuple(one for one in headers if one[0] != "Cache-Control")
        return Response(200, views.html(view).encode(), answers.PAGE, (*kept, *answers.NO_CACHE))

    async def _back(
        self, session: Session, offer: Offer, agreed: Sequence[int] | None, *, status: int
    ) -> Response:
        """Return the way to the CLI, with a code that it redeems. Raises Refused."""
        keys = await self._services.ring.keys()
        wish = replace(
            session.wish, resource=offer.resource.plural, group=offer.resource.group, target=""
        )
        code = Code(
            session.identity,
            wish,
            self._services.now(),
            id=os.urandom(16).hex(),
            consent=None if agreed is None else tuple(agreed),
            claims=claims_digest(offer),
        )
        location = self._to_the_cli(session, code=code.sealed(keys, sealed.CODE))
        return answers.redirect(location, status=status, headers=answers.NO_CACHE)

    def _to_the_cli(self, session: Session, **answer: str) -> str:
        """Return the URL at which the CLI waits for a code, or for an error of OAuth."""
        here, wish = self._services.settings.public, session.wish
        return answers.with_query(wish.target, **answer, state=wish.sid, iss=here)


def form_of(request: Request) -> Mapping[str, list[str]]:
    """Return the fields of a form. Raises Refused."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise Refused("invalid_request", "The form is not one", reason="form")
    try:
        return parse_qs(
            request.body.decode("ascii"), strict_parsing=False, max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise Refused("invalid_request", "The form is garbled", reason="form") from None


def claims_of(offer: Offer) -> Sequence[views.ClaimView]:
    """Return the claims of an offer, in its order."""
    return [
        views.ClaimView(place, consent.terms(claim), manifest.get_bool(claim, "required") is True)
        for place, claim in enumerate(offer.claims)
    ]


def places_of(given: Sequence[str], count: int) -> list[int]:
    """Return the accepted claims. Raises Refused."""
    known = {str(place): place for place in range(count)}
    if any(one not in known for one in given):
        raise Refused("invalid_request", "The form names a claim that is not there", reason="form")
    return sorted({known[one] for one in given})


def _page_id(session: Session, offer: Offer) -> str:
    """Return the subject of a form: this session, and the claims that its page shows."""
    parts = session.wish.sid, offer.resource.name, claims_digest(offer), session.identity.subject
    return " ".join(parts)


def _require_challenge(session: Session) -> None:
    """Refuse consent on a page to a CLI that asks itself. Raises Refused."""
    if not session.wish.challenge:
        sentence = "This CLI takes no code; use /bind"
        raise Refused("invalid_request", sentence, reason="challenge")


def _link(path: str, offer: Offer, sid: str) -> str:
    chosen = {"s": sid, "resource": offer.resource.plural, "group": offer.resource.group}
    return f"{path}?{urlencode(chosen)}"
