"""Identities of machines: a token from a file, a variable, a CI runner, or a cluster.

Each is for the audience of the provider's front door, as far as it can be chosen. Nothing of a
token gets into an error.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from klutchctl.binding.errors import BadAnswer, BindEnded, Denied
from klutchctl.binding.provider import with_query
from reconciler.core import keys, names
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import SERVICE_ACCOUNT
from reconciler.core.secret import Secret
from reconciler.files import read_secret
from reconciler.kube.cluster import Cluster
from reconciler.outbound.http import Http, OutboundError

_SECONDS: Final = 600
_GITHUB_URL: Final = "ACTIONS_ID_TOKEN_REQUEST_URL"
_GITHUB_TOKEN: Final = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
_TOKEN_REQUEST: Final = "authentication.k8s.io/v1"

Source: TypeAlias = Literal["file", "env", "github", "kubernetes"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Where a machine's token comes from; `place` is a path, a variable, or NAMESPACE/ACCOUNT."""

    source: Source
    place: str = ""


def parse(text: str) -> Identity:
    """Return what --identity says. Raises ConfigError."""
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
    """What tokens come from. `cluster` returns the app cluster."""

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
            "apiVersion": _TOKEN_REQUEST,
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
