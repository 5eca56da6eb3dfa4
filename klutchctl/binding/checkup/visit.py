"""Look at a provider or a front door from outside: nothing is signed in, and nothing changes."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from klutchctl.binding import provider
from klutchctl.binding.checkup import facts as judged
from klutchctl.binding.checkup.facts import Examined, Fact, problem
from klutchctl.binding.errors import BadAnswer
from klutchctl.binding.provider import FrontDoor, Places
from reconciler.core.errors import ConfigError
from reconciler.oidc.errors import ProviderFault
from reconciler.oidc.keys import keys_of
from reconciler.oidc.provider import discovery_url, provider_of
from reconciler.outbound.http import Answer, Http, OutboundError

_OK: Final = 200
_DOOR: Final = "front door"
_BACKEND: Final = "backend"
_ISSUER: Final = "identity provider"


async def examined(
    url: str, *, ca_file: Path | None, now: Callable[[], datetime]
) -> tuple[Examined, ...]:
    """Return what is at a URL, and the providers that a front door there names.

    Raises ConfigError for what is no URL.
    """
    places = provider.places(url)
    async with Http(ca_file=ca_file) as http:
        doctor = _Doctor(http, now)
        return await doctor.look(url, places)


class _Doctor:
    def __init__(self, http: Http, now: Callable[[], datetime]) -> None:
        self._http, self._now = http, now

    async def look(self, url: str, places: Places) -> tuple[Examined, ...]:
        try:
            answer = await self._http.get(places.front_door)
            if answer.status == _OK:
                return await self._door(url, places, answer)
            exported = await self._http.get(places.export)
        except OutboundError as error:
            found = problem("connection", str(error))
            return (Examined(url, _ISSUER, (found,), reached=False),)
        if exported.status == _OK:
            facts = (*_exported(exported), *self._clock(exported))
            return (Examined(url, _BACKEND, facts),)
        return (await self._issuer(url),)

    async def _door(self, url: str, places: Places, answer: Answer) -> tuple[Examined, ...]:
        try:
            door = provider.front_door_of(answer.body)
            provider.require_own(door, url)
        except (BadAnswer, ConfigError) as error:
            return (Examined(url, _DOOR, (problem("front-door", str(error)),)),)
        facts = [*judged.of_door(door), *self._clock(answer)]
        try:
            facts += _exported(await self._http.get(places.export))
            facts += await self._routes(door)
        except OutboundError as error:
            facts.append(problem("routes", str(error)))
        issuers = [await self._issuer(one) for one in judged.issuers_of(door)]
        return (Examined(url, _DOOR, tuple(facts)), *issuers)

    async def _routes(self, door: FrontDoor) -> Sequence[Fact]:
        named = {
            "redeemURL": door.redeem_url,
            "bindURL": door.bind_url,
            "catalogueURL": door.catalogue_url,
        }
        return [
            judged.of_route(name, url, (await self._http.get(url)).status)
            for name, url in named.items()
        ]

    async def _issuer(self, issuer: str) -> Examined:
        try:
            answer = await self._http.get(discovery_url(issuer))
            if answer.status != _OK:
                why = f"discovery answers {answer.status}: there is no issuer of this name"
                return Examined(issuer, _ISSUER, (problem("discovery", why),))
            known = provider_of(answer.body, issuer=issuer)
            keys = keys_of((await self._http.get(known.jwks_uri)).body)
        except OutboundError as error:
            return Examined(issuer, _ISSUER, (problem("connection", str(error)),), reached=False)
        except ProviderFault as error:
            return Examined(issuer, _ISSUER, (problem("discovery", str(error)),))
        facts = (*judged.of_provider(known), judged.of_keys(keys), *self._clock(answer))
        return Examined(issuer, _ISSUER, facts)

    def _clock(self, answer: Answer) -> Iterator[Fact]:
        fact = judged.of_clock(answer.headers, self._now())
        if fact is not None:
            yield fact


def _exported(answer: Answer) -> Iterator[Fact]:
    if answer.status != _OK:
        yield problem("export", f"/export answers {answer.status}")
        return
    try:
        provider.authorize_url_of(answer.body)
        yield judged.ok("export", "/export says where people sign in")
    except BadAnswer as error:
        yield problem("export", str(error))
