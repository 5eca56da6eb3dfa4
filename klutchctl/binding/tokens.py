"""Gets a token for a front door from its identity provider, also for machines.

By the device grant for people (RFC 8628), by client credentials (RFC 6749 4.4) and by exchange of
another token (RFC 8693) for machines: one from a file, a variable, a CI runner, or a cluster, for
the audience of the front door as far as it can be chosen. Tokens are kept in memory only, and
nothing of one gets into an error.
"""

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

from klutchctl.binding.progress import BadAnswer, BindEnded, Denied, NoConsent, Progress
from klutchctl.binding.provider import FrontDoor, with_query
from reconciler.core import keys, names
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import SERVICE_ACCOUNT
from reconciler.core.secret import Secret
from reconciler.files import read_secret
from reconciler.kube.cluster import Cluster
from reconciler.oidc import grants
from reconciler.oidc.grants import Client, DeviceCode, Form, Tokens
from reconciler.oidc.provider import (
    CredentialFault,
    GrantRefused,
    Provider,
    ProviderFault,
    TokenRefused,
)
from reconciler.oidc.tokens import audiences_of, issuer_of
from reconciler.web.issuer import Issuer
from reconciler.web.outbound import Answer, Http, OutboundError, shown

T = TypeVar("T")
_ID_TOKEN: Final = "id_token"
_JWT: Final = "urn:ietf:params:oauth:token-type:jwt"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
# What somebody decided, or who is not known (RFC 6749 5.2); other errors are what was asked for.
_NO: Final = frozenset({"access_denied", "invalid_client", "invalid_grant", "unauthorized_client"})
_PROVIDER: Final = "the identity provider"
_LONGEST_PAUSE: Final = 60.0
_SECONDS: Final = 600
_GITHUB_URL: Final = "ACTIONS_ID_TOKEN_REQUEST_URL"
_GITHUB_TOKEN: Final = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
Source: TypeAlias = Literal["file", "env", "github", "kubernetes"]


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Asks one identity provider."""

    http: Http
    progress: Progress

    async def by_device(self, door: FrontDoor) -> Secret:
        """Have a person sign in elsewhere. Raises ConfigError, NoConsent, Denied, BindEnded."""
        device = door.device
        if device is None:
            raise ConfigError("the provider offers no device code", where="--device-code")
        issuer = await self._provider(device.issuer)
        client, verifier = Client(device.client_id), grants.verifier(secrets.token_bytes(32))
        challenge = grants.challenge(verifier)
        form = _checked(
            partial(grants.device_form, issuer, client, scopes=device.scopes, challenge=challenge)
        )
        answer = await self._sent(form)
        code = _checked(partial(grants.device_code_of, answer.status, answer.body))
        facts = {"url": code.verification_uri, "code": code.user_code}
        self.progress.report("device", door=shown(door.bind_url), **facts)
        if code.verification_uri_complete:
            self.progress.report("device-complete", url=code.verification_uri_complete)
        tokens = await self._polled(issuer, client, code, verifier)
        token = tokens.id_token if device.token == _ID_TOKEN else tokens.access_token
        if token is None:
            raise BadAnswer("the identity provider sent no id_token")
        return token

    async def _polled(
        self, issuer: Provider, client: Client, code: DeviceCode, verifier: Secret
    ) -> Tokens:
        """Ask for the token until somebody has signed in (RFC 8628 3.4, 3.5)."""
        loop = asyncio.get_running_loop()
        interval, end = code.interval, loop.time() + code.expires_in
        while loop.time() < end:
            await asyncio.sleep(min(interval, max(0.0, end - loop.time())))
            form = grants.device_token_form(
                issuer,
                client,
                device_code=code.device_code,
                verifier=verifier,
                now=time.time(),
                jti=secrets.token_bytes(16),
            )
            try:
                answer = await self.http.send(form)
                return grants.tokens_of(answer.status, answer.body)
            except OutboundError:
                interval = min(2 * interval, _LONGEST_PAUSE)
            except GrantRefused as refusal:
                interval = _checked(partial(grants.after_device_refusal, refusal, interval))
            except ProviderFault as fault:
                raise BindEnded(str(fault)) from None
        raise NoConsent("no sign-in in time")

    async def by_client(
        self,
        door: FrontDoor,
        client: Client,
        *,
        scopes: Sequence[str],
        subject: Secret | None = None,
    ) -> Secret:
        """Return a machine's own token, or one for that of `subject`.

        Raises ConfigError, Denied, BindEnded.
        """
        issuer = await self._provider(_machine_issuer(door))
        form = partial(
            grants.machine_form,
            issuer,
            client,
            scopes=scopes or door.machine_scopes,
            now=time.time(),
            jti=secrets.token_bytes(16),
            audience=door.audience,
            subject=(subject, subject_type(subject, issuer.issuer)) if subject else None,
        )
        answer = await self._sent(_checked(form))
        return _checked(partial(grants.tokens_of, answer.status, answer.body)).access_token

    async def _provider(self, issuer: str) -> Provider:
        try:
            return await Issuer(self.http, issuer, now=time.time).provider()
        except (OutboundError, ProviderFault) as error:
            raise BindEnded(f"the identity provider cannot be used: {error}") from None

    async def _sent(self, form: Form) -> Answer:
        try:
            return await self.http.send(form)
        except OutboundError as error:
            raise BindEnded(str(error)) from None


def subject_type(subject: Secret, issuer: str) -> str:
    """Return the type of a token that an issuer is to exchange (RFC 8693 3).

    What the issuer made itself is an access token, which some take as nothing else (Keycloak);
    what another made is a JWT.
    """
    try:
        own = issuer_of(subject) == issuer
    except TokenRefused:  # opaque: whatever made it has to be asked what it is
        own = True
    return _ACCESS_TOKEN if own else _JWT


def require_for(token: Secret, door: FrontDoor, *, by_device: bool) -> None:
    """Refuse a token that does not name a front door, before that is given it. Raises Denied.

    A door names the identity provider itself, and could be given what is good at another door. An
    ID token of the device grant may name its client alone, which is no proof of that.
    """
    device = door.device if by_device else None
    client = device.client_id if device is not None and device.token == _ID_TOKEN else None
    try:
        named = {*audiences_of(token)}
    except TokenRefused as refusal:
        raise Denied(f"the token cannot be used: {refusal}") from None
    if door.audience not in named and named != {client}:
        message = f"the token is not for {door.audience}, so it was not sent there"
        raise Denied(message, hint="Have its issuer name that in `aud`")


def _machine_issuer(door: FrontDoor) -> str:
    if not door.machine_issuer:
        raise ConfigError("names no identity provider for machines", where="the provider")
    return door.machine_issuer


def _checked(read: Callable[[], T]) -> T:
    """Return the parsed answer, with failures as those of a bind."""
    try:
        return read()
    except GrantRefused as refusal:
        if refusal.error == "expired_token":
            raise NoConsent("no sign-in in time") from None
        if refusal.error in _NO:
            raise Denied(f"{_PROVIDER} refused: {refusal}") from None
        raise ConfigError(f"refused: {refusal}", where=_PROVIDER) from None
    except CredentialFault as fault:
        raise ConfigError(str(fault), where="the credential") from None
    except ProviderFault as fault:
        raise BindEnded(str(fault)) from None


@dataclass(frozen=True, slots=True)
class Identity:
    """The source of a machine's token; `place` is a path, a variable, or NAMESPACE/ACCOUNT."""

    source: Source
    place: str = ""


def parse(text: str) -> Identity:
    """Parse --identity. Raises ConfigError."""
    source, _, place = text.partition(":")
    namespace, _, account = place.partition("/")
    match source:
        case "github" if not place:
            return Identity("github")
        case "file" | "env" if place:
            return Identity(source, place)
        case "kubernetes" if not (
            names.label_problem(namespace) or names.subdomain_problem(account)
        ):
            return Identity("kubernetes", place)
    raise ConfigError(
        "is not file:FILE, env:NAME, github or kubernetes:NAMESPACE/ACCOUNT", where="--identity"
    )


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of tokens. `cluster` returns the app cluster."""

    environ: Mapping[str, str]
    http: Http
    cluster: Callable[[], Cluster]

    async def token(self, identity: Identity, audience: str) -> Secret:
        """Return the token. Raises ConfigError, Denied, BadAnswer, BindEnded, ClusterErrors."""
        match identity.source:
            case "file":
                return read_secret(Path(identity.place), "--identity")
            case "env":
                text = self.environ.get(identity.place, "").strip()
                if not text:
                    message = f"the variable {identity.place} is not set"
                    raise ConfigError(message, where="--identity")
                return Secret(text)
            case "github":
                return await self._github(audience)
            case "kubernetes":
                return await self._service_account(identity.place, audience)

    async def _github(self, audience: str) -> Secret:
        url, token = (self.environ.get(name, "") for name in (_GITHUB_URL, _GITHUB_TOKEN))
        if not url or not token:
            hint = "Give the job the permission `id-token: write`"
            raise ConfigError("no identity of a workflow is here", where="--identity", hint=hint)
        headers = {"Authorization": Secret(f"Bearer {token}")}
        try:
            asked = with_query(url, {"audience": audience})
        except ValueError:
            hint = "Leave it as the runner sets it"
            raise ConfigError("is no URL", where=f"${_GITHUB_URL}", hint=hint) from None
        try:
            answer = await self.http.get(asked, headers=headers)
        except OutboundError as error:
            raise BindEnded(str(error)) from None
        if answer.status != 200:
            ended = Denied if answer.status in (401, 403) else BindEnded
            raise ended(f"the runner's token endpoint answers {answer.status}")
        try:
            value = get_text(json.loads(answer.body), "value")
        except (ValueError, RecursionError):
            value = ""
        if not value:
            raise BadAnswer("the runner's token endpoint answers without a token")
        return Secret(value)

    async def _service_account(self, place: str, audience: str) -> Secret:
        namespace, _, account = place.partition("/")
        request: Manifest = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": account, "namespace": namespace},
            "spec": {"audiences": [audience], "expirationSeconds": _SECONDS},
        }
        made = await self.cluster().create(
            request, SERVICE_ACCOUNT, manager=keys.MANAGER_BIND, subresource="token"
        )
        token = get_text(made, "status", "token")
        if not token:
            raise BadAnswer(f"the API server made no token for ServiceAccount {place}")
        return Secret(token)
