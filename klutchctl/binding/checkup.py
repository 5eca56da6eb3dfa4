"""Examines a provider or front door from outside, without a sign-in and without changes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from klutchctl.binding import provider
from klutchctl.binding.progress import BadAnswer
from klutchctl.binding.provider import FrontDoor
from reconciler.core.errors import ConfigError
from reconciler.doctor.diagnosis import (
    CLOCK_PROBLEM,
    CLOCK_WARNING,
    Finding,
    Level,
    ok,
    problem,
    warning,
    worst,
)
from reconciler.oidc import provider as providers
from reconciler.web.outbound import Answer, Http, OutboundError

_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_WITHOUT_TOKEN: Final = 401
_ANOTHER_METHOD: Final = 405


@dataclass(frozen=True, slots=True)
class Examined:
    """All about one address. `kind` is `front door`, `backend` or `identity provider`."""

    url: str
    kind: str
    findings: tuple[Finding, ...]
    readable: bool = True

    @property
    def level(self) -> Level:
        return worst(self.findings)


def of_provider(provider: providers.Provider) -> Iterator[Finding]:
    """Yield the abilities of a provider for people and machines, and those that it lacks."""
    yield ok("discovery", "its document names exactly this issuer, and secure endpoints")
    yield ok("algorithms", f"it signs with {', '.join(provider.algorithms)}")
    if provider.authorization_endpoint:
        yield ok("sign-in", "people sign in in a browser, with PKCE")
        yield _announced(provider)
    else:
        yield warning("sign-in", "it has no authorization endpoint: for machines alone")
    if provider.device_authorization_endpoint:
        yield ok("device", "people sign in by a device code")
    else:
        remedy = "Turn the device grant on, for `klutchctl bind --device-code`"
        yield warning("device", "it has no device grant", remedy)
    yield _machines(provider)


def _announced(provider: providers.Provider) -> Finding:
    if provider.announces_iss:
        return ok("issuer", "its answers name their issuer (RFC 9207)")
    return warning("issuer", "it does not announce the iss parameter (RFC 9207)")


def _machines(provider: providers.Provider) -> Finding:
    """Return the grants for machines; grants that are not announced are those for people."""
    if "client_credentials" not in provider.grant_types:
        remedy = "Use `--identity` where the front door lists the issuer of that token"
        return warning("machines", "it announces no grant for machines", remedy)
    ways = [
        *(("secret",) if any("secret" in one for one in provider.token_auth_methods) else ()),
        *(("private key",) if "private_key_jwt" in provider.token_auth_methods else ()),
        *(("token exchange",) if _EXCHANGE in provider.grant_types else ()),
    ]
    return ok("machines", f"machines sign in by {', '.join(ways) or 'no proof that is known here'}")


def of_keys(keys: providers.KeySet) -> Finding:
    count = len(keys.keys)
    if count:
        return ok("keys", f"{count} of its keys can be used")
    return problem("keys", "none of its keys can be used", "RSA keys have 2048 bits or more")


def of_clock(headers: Mapping[str, str], now: datetime) -> Finding | None:
    """Judge the clock there by the time of an answer, which has whole seconds; None without."""
    try:
        skew = abs(parsedate_to_datetime(headers.get("date", "")) - now)
    except (ValueError, TypeError):  # no date, or one without a zone
        return None
    seconds = f"{skew.total_seconds():.0f} s"
    if skew < CLOCK_WARNING:
        return ok("clock", "its clock agrees with the one here")
    remedy = "Tokens are refused that are of another time: set the clocks by NTP"
    if skew < CLOCK_PROBLEM:
        return warning("clock", f"its clock and the one here differ by {seconds}", remedy)
    return problem("clock", f"its clock and the one here differ by {seconds}", remedy)


def of_door(door: FrontDoor) -> Iterator[Finding]:
    yield ok("front-door", f"tokens for it name the audience {door.audience}")
    if door.device is None:
        remedy = "Give klutch-bind --cli-client-id, a public client with the device grant"
        yield warning("device", "it offers no device code", remedy)
    if not door.konnector_image:
        remedy = "Give klutch-bind --konnector-image, or each bind one"
        yield warning("konnector", "it names no image of a konnector", remedy)


def of_route(name: str, url: str, status: int) -> Finding:
    """Judge the answer to a GET without a token, which changes nothing."""
    shown = f"{name} {urlsplit(url).path}"
    if status in (_ANOTHER_METHOD, _WITHOUT_TOKEN):
        return ok("routes", f"{shown} answers")
    remedy = "Let the proxy before klutch-bind pass all paths on, unchanged"
    return problem("routes", f"{shown} answers {status}", remedy)


def issuers_of(door: FrontDoor) -> Sequence[str]:
    """Return the providers that a door sends people and machines to, each once."""
    device = door.device.issuer if door.device else ""
    return tuple(dict.fromkeys(filter(None, (device, door.machine_issuer))))


_OK: Final = 200
_DOOR: Final = "front door"
_ISSUER: Final = "identity provider"


async def examined(
    url: str, *, ca_file: Path | None, now: Callable[[], datetime]
) -> tuple[Examined, ...]:
    """Return the findings at a URL, and about the providers that a front door there names.

    Raises ConfigError for what is no URL.
    """
    export, well_known = provider.places(url)
    async with Http(ca_file=ca_file) as http:
        return await _Doctor(http, now).look(url, export, well_known)


class _Doctor:
    def __init__(self, http: Http, now: Callable[[], datetime]) -> None:
        self._http, self._now = http, now

    async def look(self, url: str, export: str, well_known: str) -> tuple[Examined, ...]:
        try:
            answer = await self._http.get(well_known)
            if answer.status == _OK:
                return await self._door(url, export, answer)
            exported = await self._http.get(export)
        except OutboundError as error:
            found = problem("connection", str(error))
            return (Examined(url, _ISSUER, (found,), readable=False),)
        if exported.status == _OK:
            return (Examined(url, "backend", (*_exported(exported), *self._clock(exported))),)
        return (await self._issuer(url),)

    async def _door(self, url: str, export: str, answer: Answer) -> tuple[Examined, ...]:
        try:
            door = provider.front_door_of(answer.body)
            provider.require_own(door, url)
        except (BadAnswer, ConfigError) as error:
            return (Examined(url, _DOOR, (problem("front-door", str(error)),)),)
        findings = [*of_door(door), *self._clock(answer)]
        try:
            findings += _exported(await self._http.get(export))
            named = {
                "redeemURL": door.redeem_url,
                "bindURL": door.bind_url,
                "catalogueURL": door.catalogue_url,
            }
            for name, route in named.items():
                findings.append(of_route(name, route, (await self._http.get(route)).status))
        except OutboundError as error:
            findings.append(problem("routes", str(error)))
        issuers = [await self._issuer(one) for one in issuers_of(door)]
        return (Examined(url, _DOOR, tuple(findings)), *issuers)

    async def _issuer(self, issuer: str) -> Examined:
        try:
            answer = await self._http.get(providers.discovery_url(issuer))
            if answer.status != _OK:
                why = f"discovery answers {answer.status}: there is no issuer of this name"
                return Examined(issuer, _ISSUER, (problem("discovery", why),))
            known = providers.provider_of(answer.body, issuer=issuer)
            keys = providers.keys_of((await self._http.get(known.jwks_uri)).body)
        except OutboundError as error:
            return Examined(issuer, _ISSUER, (problem("connection", str(error)),), readable=False)
        except providers.ProviderFault as error:
            return Examined(issuer, _ISSUER, (problem("discovery", str(error)),))
        findings = (*of_provider(known), of_keys(keys), *self._clock(answer))
        return Examined(issuer, _ISSUER, findings)

    def _clock(self, answer: Answer) -> Iterator[Finding]:
        finding = of_clock(answer.headers, self._now())
        if finding is not None:
            yield finding


def _exported(answer: Answer) -> Iterator[Finding]:
    if answer.status != _OK:
        yield problem("export", f"/export answers {answer.status}")
        return
    try:
        provider.authorize_url_of(answer.body)
        yield ok("export", "/export names the address for the sign-in")
    except BadAnswer as error:
        yield problem("export", str(error))
