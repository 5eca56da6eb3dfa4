"""Identity providers over HTTP: what one says of itself, and the keys it signs with."""

from collections.abc import Callable
from typing import Final

from reconciler.oidc.errors import ProviderFault, UnknownKey
from reconciler.oidc.keys import KeySet, keys_of
from reconciler.oidc.provider import Provider, discovery_url, provider_of
from reconciler.oidc.tokens import Claims
from reconciler.outbound.http import Http, OutboundError, shown
from reconciler.outbound.kept import Kept

_OK: Final = 200


class Issuer:
    """An issuer and what is known of it; where it is away, the last that was known.

    With `jwks`, a key set as JSON, nothing is ever fetched. Raises ProviderFault for one that
    cannot be used.
    """

    def __init__(
        self, http: Http, issuer: str, *, now: Callable[[], float], jwks: bytes | None = None
    ) -> None:
        self.issuer = issuer
        self._http = http
        self._static = None if jwks is None else keys_of(jwks)
        self._provider = Kept(self._fetch_provider, now=now)
        self._keys = Kept(self._fetch_keys, now=now)

    @property
    def trouble(self) -> str:
        """Why the last fetch failed; "" if it did not."""
        return self._provider.trouble or self._keys.trouble

    async def provider(self) -> Provider:
        """Return what the issuer says of itself. Raises OutboundError, ProviderFault."""
        if self._static is not None:
            raise ProviderFault(f"{self.issuer}: its keys are given, and nothing is asked of it")
        return await self._provider.current()

    async def keys(self) -> KeySet:
        """Return the keys that it signs with. Raises OutboundError, ProviderFault."""
        return await self._keys.current() if self._static is None else self._static

    async def verified(self, check: Callable[[KeySet], Claims]) -> Claims:
        """Return what `check` makes of the keys; where one is unknown, of newer ones.

        Raises OutboundError, ProviderFault, and what `check` raises.
        """
        keys = await self.keys()
        try:
            return check(keys)
        except UnknownKey:
            return check(await self._keys.newer(keys))

    async def _fetch_provider(self) -> Provider:
        document = await self._document(discovery_url(self.issuer))
        return provider_of(document, issuer=self.issuer)

    async def _fetch_keys(self) -> KeySet:
        provider = await self._provider.current()
        document = await self._document(provider.jwks_uri)
        try:
            return keys_of(document)
        except ProviderFault as fault:
            raise ProviderFault(f"{shown(provider.jwks_uri)}: {fault}") from None

    async def _document(self, url: str) -> bytes:
        answer = await self._http.get(url)
        if answer.status == _OK:
            return answer.body
        redirects = 300 <= answer.status < 400
        what = "redirects, which is not followed" if redirects else f"answers {answer.status}"
        raise OutboundError(url, what, status=answer.status)
