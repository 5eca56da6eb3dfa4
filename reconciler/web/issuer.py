"""Fetches an identity provider's documents and signing keys over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from reconciler.core.errors import KlutchError
from reconciler.oidc import provider as providers
from reconciler.oidc.tokens import Claims
from reconciler.web.outbound import Http, OutboundError, shown

T = TypeVar("T")

FRESH: Final = 600.0  # seconds in which nothing is fetched again
USABLE: Final = 86_400.0  # where it cannot be fetched again
PAUSE: Final = 30.0  # between fetches that fail, and between those out of turn


class Kept(Generic[T]):
    """A value that `fetch` brings. Callers at one time share one fetch, and its failure.

    `trouble` says why the last fetch failed, "" where it did not.
    """

    def __init__(self, fetch: Callable[[], Awaitable[T]], *, now: Callable[[], float]) -> None:
        self._fetch, self._now = fetch, now
        self._value: T | None = None
        self._error: KlutchError | None = None
        self._fetched_at = self._failed_at = self._asked_at = float("-inf")
        self._fetches = 0
        self._turn = asyncio.Lock()

    @property
    def trouble(self) -> str:
        """Why the last fetch failed; "" if it did not."""
        return str(self._error or "")

    async def current(self) -> T:
        """Return the value, fetched in the last ten minutes, or in the last day on failures.

        Raises what `fetch` raised where there is none.
        """
        if self._value is not None and self._is_good():
            return self._value
        fetches = self._fetches
        async with self._turn:
            if fetches == self._fetches:
                await self._try()
        if self._value is not None and self._is_usable():
            return self._value
        assert self._error is not None
        raise self._error.with_traceback(None)

    async def newer(self, than: T) -> T:
        """Return the value after a fetch out of turn, or `than` where there is nothing newer.

        There is one such fetch in 30 seconds: the reason for it is what anybody may send.
        """
        async with self._turn:
            if self._value is than and not within(PAUSE, self._asked_at, self._now()):
                self._asked_at = self._now()
                await self._try()
        return than if self._value is None else self._value

    def _is_good(self) -> bool:
        now = self._now()
        if within(FRESH, self._fetched_at, now):
            return True
        return self._is_usable() and within(PAUSE, self._failed_at, now)

    def _is_usable(self) -> bool:
        return within(USABLE, self._fetched_at, self._now())

    async def _try(self) -> None:
        began = self._now()
        try:
            self._value = await self._fetch()
        except KlutchError as error:
            self._error, self._failed_at = error, self._now()
        else:
            self._error, self._fetched_at = None, began
        self._fetches += 1


def within(seconds: float, start: float, now: float) -> bool:
    """Return if a time is in the past, and so near; a clock that was put back proves nothing."""
    return 0 <= now - start < seconds


_OK: Final = 200


class Issuer:
    """An issuer and its known keys; where it is away, the last known ones.

    With `jwks`, a key set as JSON, nothing is ever fetched. Raises ProviderFault for one that
    cannot be used.
    """

    def __init__(
        self, http: Http, issuer: str, *, now: Callable[[], float], jwks: bytes | None = None
    ) -> None:
        self.issuer = issuer
        self._http = http
        self._static = None if jwks is None else providers.keys_of(jwks)
        self._provider = Kept(self._fetch_provider, now=now)
        self._keys = Kept(self._fetch_keys, now=now)

    @property
    def trouble(self) -> str:
        """Why the last fetch failed; "" if it did not."""
        return self._provider.trouble or self._keys.trouble

    async def provider(self) -> providers.Provider:
        """Return the issuer's description of itself. Raises OutboundError, ProviderFault."""
        if self._static is not None:
            raise providers.ProviderFault(
                f"{self.issuer}: its keys are given, and nothing is asked of it"
            )
        return await self._provider.current()

    async def keys(self) -> providers.KeySet:
        """Return the keys that it signs with. Raises OutboundError, ProviderFault."""
        return await self._keys.current() if self._static is None else self._static

    async def verified(self, check: Callable[[providers.KeySet], Claims]) -> Claims:
        """Return the result of `check` on the keys; where one is unknown, on newer ones.

        Raises OutboundError, ProviderFault, and what `check` raises.
        """
        keys = await self.keys()
        try:
            return check(keys)
        except providers.UnknownKey:
            return check(await self._keys.newer(keys))

    async def _fetch_provider(self) -> providers.Provider:
        return providers.provider_of(
            await self._document(providers.discovery_url(self.issuer)), issuer=self.issuer
        )

    async def _fetch_keys(self) -> providers.KeySet:
        provider = await self._provider.current()
        document = await self._document(provider.jwks_uri)
        try:
            return providers.keys_of(document)
        except providers.ProviderFault as fault:
            raise providers.ProviderFault(f"{shown(provider.jwks_uri)}: {fault}") from None

    async def _document(self, url: str) -> bytes:
        answer = await self._http.get(url)
        if answer.status == _OK:
            return answer.body
        redirects = 300 <= answer.status < 400
        problem = "redirects, which is not followed" if redirects else f"answers {answer.status}"
        raise OutboundError(url, problem, status=answer.status)
