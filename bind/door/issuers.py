"""Verifies bearer tokens of trusted issuers, and returns their identities."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from bind.door.access import Access, TrustedIssuer
from bind.door.identity import Identity, Refused, identity_of
from reconciler.core.addresses import Address, is_loopback
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.oidc import tokens
from reconciler.oidc.provider import KeySet, ProviderFault, TokenRefused
from reconciler.web.issuer import Issuer
from reconciler.web.outbound import Http, OutboundError

log = logging.getLogger(__name__)


class Issuers:
    """Checks bearer tokens of the first provider, and of those that the access file lists now.

    What is known of an issuer is kept for as long as it is the same. `first` is the provider of
    --oidc-issuer-url; its tokens are for this door, or for the public client of CLIs.
    """

    def __init__(
        self, first: TrustedIssuer, access: Callable[[], Access], *, now: Callable[[], float]
    ) -> None:
        self._first, self._access, self._now = first, access, now
        self._known: dict[tuple[str, str, str], tuple[bytes | None, Issuer]] = {}
        self._https: dict[str, Http] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def first(self) -> Issuer:
        return await self._issuer(self._first)

    async def signed_in(self, check: Callable[[KeySet], tokens.Claims]) -> Identity:
        """Return the identity that signed in at the first provider. Raises KlutchErrors."""
        claims = await (await self.first()).verified(check)
        return identity_of(claims, self._first.naming, first=True, keep=self._access().claims)

    def _forbids(self, address: Address) -> bool:
        """Keep issuers elsewhere from naming a server on this machine."""
        return address.is_loopback and not is_loopback(urlsplit(self._first.url))

    async def http(self, ca_file: str = "") -> Http:
        """Return connections that trust a CA. Raises ConfigError."""
        if ca_file not in self._https:
            http = Http(ca_file=Path(ca_file) if ca_file else None, forbids=self._forbids)
            self._https[ca_file] = await self._stack.enter_async_context(http)
        return self._https[ca_file]

    async def identity(self, token: Secret) -> Identity:
        """Return the identity of a bearer token. Raises Refused."""
        access = self._access()
        try:
            issuer = tokens.issuer_of(token)
            trusted = [one for one in (self._first, *access.issuers) if one.url == issuer]
            if not trusted:
                raise TokenRefused("issuer", "the token is of an issuer that is not trusted here")
            claims, taken = await self._checked(token, trusted)
        except TokenRefused as error:
            raise Refused("invalid_token", str(error), reason=error.reason) from None
        except (OutboundError, ProviderFault, OSError, ConfigError) as error:
            # Where it is asked, and why that fails, is nothing for strangers.
            log.warning("an issuer cannot be used", extra={"issuer": issuer, "why": str(error)})
            sentence = "The issuer of the token cannot be asked now. Try again"
            raise Refused("unavailable", sentence, reason="issuer") from None
        is_first = taken.url == self._first.url
        return identity_of(claims, taken.naming, first=is_first, keep=access.claims)

    async def _checked(
        self, token: Secret, trusted: Sequence[TrustedIssuer]
    ) -> tuple[tokens.Claims, TrustedIssuer]:
        """Return the claims, and the entry that took them: an issuer may be listed twice."""
        refusals = list[TokenRefused]()
        for one in trusted:
            check = tokens.BearerCheck(
                one.url, one.audiences, one.algorithms or tokens.ALGORITHMS, one.require
            )
            issuer = await self._issuer(one)
            prove = partial(tokens.bearer, token, check=check, now=self._now())
            try:
                return await issuer.verified(prove), one
            except TokenRefused as error:
                refusals.append(error)
        raise refusals[-1]

    async def _issuer(self, one: TrustedIssuer) -> Issuer:
        """Return the keys and names of an issuer. Raises ProviderFault, OSError, ConfigError."""
        jwks = _content(one.jwks_file) if one.jwks_file else None
        place = (one.url, one.ca_file, one.jwks_file)
        known = self._known.get(place)
        if known is None or known[0] != jwks:
            issuer = Issuer(await self.http(one.ca_file), one.url, now=self._now, jwks=jwks)
            self._known[place] = jwks, issuer
        return self._known[place][1]


def _content(path: str) -> bytes:
    """Return a key set from a file: read each time, as it may change. Raises OSError."""
    return Path(path).read_bytes()


BEARER: Final = "bearer "


def token_of(authorization: str) -> Secret:
    """Return the token of an Authorization header. Raises Refused."""
    if not authorization.lower().startswith(BEARER) or not authorization[len(BEARER) :].strip():
        raise Refused("invalid_token", "There is no bearer token in it", reason="missing")
    return Secret(authorization[len(BEARER) :].strip())
