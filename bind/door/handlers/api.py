"""The API for CLIs and machines: starts, codes for spaces, binds by a bearer token."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final

import orjson

from bind.door.audit import Event, Subject
from bind.door.catalogue import Offer
from bind.door.handlers import answers
from bind.door.handlers.services import Services, claims_digest, is_id, label_of, resource_of
from bind.door.identity import Identity, Refused
from bind.door.issuers import token_of
from bind.door.sessions import Wish
from reconciler.core import manifest
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import GroupResource
from reconciler.core.secret import Secret
from reconciler.oidc import grants
from reconciler.web.requests import Request, Response, address_key

_MOST_RESOURCES: Final = 100


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The request of a machine to bind an app cluster, which people call `name`."""

    cid: str
    name: str
    resources: Sequence[GroupResource]
    dry_run: bool


class Api:
    """Answers `/export`, `/.well-known/klutch-bind` and paths below `/api/v1`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def export(self, _request: Request) -> Response:
        """Answer `/export`, to the byte as the original does."""
        settings = self._services.settings
        document = answers.binding_provider(
            authorize_url=settings.authorize, pretty_name=settings.pretty_name
        )
        return Response(200, answers.text(document), "application/json")

    async def start(self, request: Request) -> Response:
        """Answer `/`, where there are pages; CLIs, which accept no HTML, get that of `/export`."""
        return answers.redirect("/ui/") if request.wants_html else await self.export(request)

    async def front_door(self, _request: Request) -> Response:
        """Answer `/.well-known/klutch-bind`: the abilities of this door beyond the original's."""
        return answers.document(answers.front_door(self._services.settings))

    async def redeem(self, request: Request) -> Response:
        """Answer POST `/api/v1/redeem`: a code becomes a space. Raises Refused."""
        body = document_of(request)
        text, verifier = manifest.get_text(body, "code"), manifest.get_text(body, "code_verifier")
        about = Subject()
        try:
            code = await self._services.code(text)
            about = Subject(code.identity, code.wish.cid)
            if not grants.matches(code.wish.challenge, Secret(verifier)):
                sentence = "The code is not for this code_verifier"
                raise Refused("invalid_request", sentence, reason="verifier")
            resource = GroupResource(code.wish.group, code.wish.resource)
            about = replace(about, resource=resource.name)
            offer = await self._services.chosen(code.identity, resource)
            if code.consent is not None and code.claims != claims_digest(offer):
                sentence = "The service changed its claims after your consent. Run it again"
                raise Refused("conflict", sentence, reason="claims")
            if not self._services.codes.take(code.id, self._services.now()):
                raise Refused("invalid_request", "The code was used already", reason="replay")
            try:
                space, kubeconfig = await self._made(code.identity, code.wish, offer)
            except BaseException:
                self._services.codes.give_back(code.id)
                raise
        except Refused as error:
            self._services.audit.note("redeem", request, about, reason=error.reason)
            raise
        self._services.audit.note("redeem", request, replace(about, space=space))
        response = answers.binding_response(
            [offer], kubeconfig=kubeconfig, identity=code.identity, sid=code.wish.sid
        )
        agreed = answers.consent_of(offer, code.consent)
        return answers.document({"bindingResponse": response, "consent": agreed})

    async def bind(self, request: Request) -> Response:
        """Answer POST `/api/v1/bind`: a machine binds, known by its token. Raises Refused."""
        identity = await self._bearer(request)
        about = Subject(identity)
        try:
            wanted = _wanted(document_of(request))
            listed = ",".join(resource.name for resource in wanted.resources)
            about = Subject(identity, wanted.cid, listed)
            self._services.count_bind(identity)
            offers = [await self._services.chosen(identity, one) for one in wanted.resources]
            space, kubeconfig = await self._made(identity, wanted, *offers)
        except Refused as error:
            self._services.audit.note("bind", request, about, reason=error.reason)
            raise
        self._services.audit.note("bind", request, replace(about, space=space))
        response = answers.binding_response(offers, kubeconfig=kubeconfig, identity=None)
        return answers.document(response)

    async def catalogue(self, request: Request) -> Response:
        """Answer `/api/v1/catalogue`: the offers, and whether they are for this identity."""
        identity = await self._bearer(request)
        self._services.count_look(identity)
        rows: list[JSON] = []
        for offer in await self._services.views().offers():
            may_bind = await self._services.authorizer.may_bind(identity, offer)
            rows.append({**answers.offer(offer), "mayBind": may_bind})
        return answers.document(rows)

    async def _made(
        self, identity: Identity, wanted: _Wanted | Wish, *offers: Offer
    ) -> tuple[str, bytes]:
        """Return a space and its kubeconfig; neither where nothing is to be made."""
        if wanted.dry_run:
            return "", b""
        space = await self._services.spaces.provide(identity, wanted.cid, *offers, name=wanted.name)
        return space.name, space.kubeconfig

    async def _bearer(self, request: Request) -> Identity:
        """Return the identity of a bearer token. Raises Refused; too many bad ones end in 429.

        A good one is good all the same: others may share an address with whoever sends bad ones.
        What it costs to look is bounded by the requests that an address may send.
        """
        services, key = self._services, address_key(ip_address(request.address))
        try:
            return await services.issuers.identity(
                token_of(request.headers.get("authorization", ""))
            )
        except Refused as error:
            bad = error.code == "invalid_token"
            if bad and (wait := services.bad_tokens.take(key, services.now())):
                sentence = "Too many tokens that prove nothing. Try again later"
                raise Refused("too_many_requests", sentence, retry_after=wait) from None
            event: Event = "refused-token"
            services.audit.note(event, request, reason=error.reason)
            raise


def document_of(request: Request) -> Manifest:
    """Return the JSON object of a request. Raises Refused."""
    try:
        body = orjson.loads(request.body)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        raise Refused("invalid_request", "The body is no JSON object", reason="body")
    return body


def _wanted(body: Manifest) -> _Wanted:
    cid = manifest.get_text(body, "clusterID")
    if not is_id(cid):
        sentence = "clusterID is not 1 to 64 letters, digits, - and _"
        raise Refused("invalid_request", sentence, reason="malformed")
    listed, given = manifest.get_maps(body, "resources"), manifest.get_list(body, "resources")
    if len(listed) != len(given) or not 0 < len(listed) <= _MOST_RESOURCES:
        sentence = f"resources does not list 1 to {_MOST_RESOURCES} of group and resource"
        raise Refused("invalid_request", sentence, reason="malformed")
    resources = [
        resource_of({name: manifest.get_text(one, name) for name in ("group", "resource")})
        for one in listed
    ]
    dry_run = body.get("dryRun", False)
    if not isinstance(dry_run, bool):  # a client that writes "true" means no bind
        raise Refused("invalid_request", "dryRun is neither true nor false", reason="malformed")
    name = label_of(manifest.get_text(body, "clusterName"))
    return _Wanted(cid, name, tuple(dict.fromkeys(resources)), dry_run)
