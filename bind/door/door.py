"""Builds the front door from its parts, and serves it beside the controllers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

from prometheus_client.registry import Collector

from bind.door import access, authorizer, spaces
from bind.door.access import Access, TrustedIssuer
from bind.door.audit import Audit
from bind.door.handlers import answers
from bind.door.handlers.api import Api
from bind.door.handlers.services import Services
from bind.door.handlers.sign_in import SignIn
from bind.door.handlers.ui import Ui
from bind.door.handlers.walk import Walk
from bind.door.identity import Naming, Refused
from bind.door.issuers import Issuers
from bind.door.keyring import KeyRing
from bind.door.settings import DoorSettings
from bind.door.spaces import Spaces
from bind.door.views import Views
from bind.informers import Informers
from reconciler.blueprints.export import Scope
from reconciler.controller.tasks import Clock
from reconciler.core.errors import ConfigError
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection
from reconciler.oidc.provider import ProviderFault, UnmetDemand, is_secure
from reconciler.tls import TlsFiles
from reconciler.web.outbound import OutboundError
from reconciler.web.requests import Handler, Proxies, Request, Response, Router, Routes
from reconciler.web.serve import Listening, served

log = logging.getLogger(__name__)

_ANYBODY = (
    "every user who signs in may bind every offered service; "
    "--authorization=SubjectAccessReview checks their rights first"
)
_IN_THE_CLEAR: Final = (
    "--oidc-callback-url begins with http://, so session cookies cross the network unencrypted"
)


class Door:
    """The front door of one backend, on every replica, whichever leads.

    `informers` are those of the present term. `namespace` is where its keys lie.
    """

    def __init__(  # noqa: PLR0913 - each is a fact of the backend
        self,
        settings: DoorSettings,
        cluster: Cluster,
        way: Connection,
        *,
        namespace: str,
        scope: Scope,
        restricted: bool,
        clock: Clock,
    ) -> None:
        self._settings, self._cluster, self._way = settings, cluster, way
        self._namespace, self._scope, self._restricted = namespace, scope, restricted
        self._clock, self._audit = clock, Audit(clock)
        self._views: Views | None = None
        self._access = _access(settings, clock)
        self._proxies = Proxies(settings.trusted_proxies)

    @property
    def counters(self) -> Sequence[Collector]:
        return self._audit.counters

    def unready(self) -> str:
        """Return why nobody should be led here, "" if nothing speaks against it."""
        proxy = self._proxies.unnamed
        return proxy and f"{proxy} sends X-Forwarded-For, and --trusted-proxies does not name it"

    def look(self, informers: Informers) -> None:
        """Read these informers from now on: those of a new term."""
        self._views = Views(informers, consumer_scope=self._scope)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[tuple[str, int]]:
        """Serve for as long as the block lasts, and yield where.

        Raises HostError, and ConfigError for a CA that cannot be used, and for a provider that
        demands what the door does not do.
        """
        settings = self._settings
        if settings.authorization == "Authenticated":
            log.warning("every user of the identity provider may bind", extra={"why": _ANYBODY})
        if not is_secure(settings.callback):
            log.warning("the front door is reached without TLS", extra={"why": _IN_THE_CLEAR})
        listening = Listening(
            settings.listen,
            tls=None if settings.tls is None else TlsFiles(*settings.tls),
            proxies=self._proxies,
        )
        async with AsyncExitStack() as stack:
            services = await self._services(stack)
            await _require_usable(services.issuers)
            address = await stack.enter_async_context(
                served(
                    listening,
                    Router(_routes(services)),
                    refusal_page=partial(
                        answers.refusal, frame=services.frame, secure=services.secure
                    ),
                )
            )
            stack.callback(asyncio.create_task(_prepared(services)).cancel)
            host, port = address
            log.info("the front door is served", extra={"host": host, "port": port})
            print(f"Listening on {host}:{port}", flush=True)
            yield address

    async def _services(self, stack: AsyncExitStack) -> Services:
        settings, clock = self._settings, self._clock
        first = TrustedIssuer(
            "",
            settings.issuer,
            settings.audiences,
            ca_file=str(settings.ca_file or ""),
            naming=Naming(
                settings.username_claim, settings.prefix, settings.groups_claim, settings.prefix
            ),
        )
        issuers = await stack.enter_async_context(Issuers(first, self._access, now=self._now))
        allowing = authorizer.authorizer(
            settings.authorization,
            cluster=self._cluster,
            monotonic=clock.monotonic,
            access=self._access,
        )
        terms = spaces.terms_of(settings, self._way, restricted=self._restricted)
        return Services(
            settings=settings,
            http=await issuers.http(first.ca_file),
            issuers=issuers,
            ring=KeyRing(self._cluster, self._namespace, clock=clock, given=settings.cookie_key),
            views=self._present,
            spaces=Spaces(self._cluster, self._present, terms, clock=clock, authorizer=allowing),
            authorizer=allowing,
            audit=self._audit,
            now=self._now,
        )

    def _present(self) -> Views:
        if self._views is None:
            raise Refused("unavailable", "The front door is starting", retry_after=1)
        return self._views

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _access(settings: DoorSettings, clock: Clock) -> Callable[[], Access]:
    """Return a reader of the trusted issuers and the rules. Raises ConfigError."""
    if settings.access_file is None:
        return lambda: access.NO_ACCESS
    return authorizer.access_file(settings.access_file, clock.monotonic)


def _routes(services: Services) -> Routes:
    api, sign_in, walk = Api(services), SignIn(services), Walk(services)
    got: dict[str, Handler] = {
        "/export": api.export,
        "/authorize": sign_in.authorize,
        "/callback": sign_in.callback,
        "/resources": walk.resources,
        "/bind": walk.bind,
        "/.well-known/klutch-bind": api.front_door,
        "/api/v1/catalogue": api.catalogue,
        "/healthz": _healthy,
    }
    posted: dict[str, Handler] = {"/api/v1/redeem": api.redeem, "/api/v1/bind": api.bind}
    routes: dict[str, Mapping[str, Handler]] = {
        **{path: {"GET": handler} for path, handler in got.items()},
        **{path: {"POST": handler} for path, handler in posted.items()},
        "/consent": {"GET": walk.consent, "POST": walk.agreed},
    }
    if services.settings.ui:
        routes |= {"/": {"GET": api.start}, **Ui(services, sign_in).routes()}
    return {
        path: {method: _guarded(services, path, handler) for method, handler in by.items()}
        for path, by in routes.items()
    }


async def _require_usable(issuers: Issuers) -> None:
    """Ask the provider once, so that its operator learns early of its faults.

    Nothing else waits for one that is away. Raises ConfigError for demands that cannot be met.
    """
    try:
        await (await issuers.first()).provider()
    except UnmetDemand as error:
        raise ConfigError(str(error), where="--oidc-issuer-url") from None
    except ProviderFault as error:
        log.error("users cannot sign in at the identity provider", extra={"why": str(error)})
    except OutboundError as error:
        log.warning("the identity provider gives no usable answer", extra={"why": str(error)})


async def _prepared(services: Services) -> None:
    """Make the keys before anybody asks, so that a dry run writes nothing."""
    try:
        await services.ring.keys()
    except Refused as error:
        log.warning("the front door is not ready yet", extra={"why": str(error)})


def _guarded(services: Services, path: str, handler: Handler) -> Handler:
    """Return a handler whose refusals are answers, and which is counted."""

    async def guarded(request: Request) -> Response:
        try:
            answer = await handler(request)
        except Refused as error:
            answer = answers.refused(request, error, services.frame, secure=services.secure)
        except ConfigError as error:
            log.error("the front door cannot use one of its files", extra={"why": str(error)})
            sentence = "The front door cannot do that now"
            answer = answers.refusal(request, 503, sentence, services.frame, secure=services.secure)
        except Exception:
            services.audit.requests.labels(path, "500").inc()
            raise
        services.audit.requests.labels(path, str(answer.status)).inc()
        return answer

    return guarded


async def _healthy(_request: Request) -> Response:
    return Response(200, b"ok\n")
