"""Runs a bind, from the provider's URL to a Ready binding (front-door.md 5).

Before somebody has agreed, nothing is written but Namespace klutch-bind, whose uid is the identity
of the app cluster; in a dry run not even that.
"""

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from klutchctl.binding import Rights, decisions, konnector, response
from klutchctl.binding.app_cluster import AppCluster, Seen
from klutchctl.binding.decisions import (
    Answers,
    CreateSecret,
    RefreshSecret,
    SecretStep,
    require_provider,
)
from klutchctl.binding.progress import Progress
from klutchctl.binding.provider import FrontDoor, Provider, discovered
from klutchctl.binding.response import Grant, Wanted, merged
from klutchctl.binding.signed_in import SignedIn, SignIn, front_door, require_asked
from klutchctl.binding.tokens import Identity, Sources, TokenSource, require_for
from reconciler.blueprints.consent import reserved
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import Manifest
from reconciler.core.refs import GroupResource
from reconciler.core.secret import Secret
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster
from reconciler.kube.kubeconfig.entries import is_shown
from reconciler.kube.networks import ANYWHERE, Networks
from reconciler.oidc.grants import Client
from reconciler.web.outbound import Http


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The way to sign in: a person in a browser, unless something else is given.

    `port` of the callback, 0: any; `show` opens a browser, None: the person does. `device`: with a
    code, on another machine. A machine has a `client` at the identity provider, or an `identity`
    that another issuer vouches for; with both, the client exchanges its token.
    """

    port: int = 0
    show: Callable[[str], object] | None = None
    device: bool = False
    client: Client | None = None
    identity: Identity | None = None
    scopes: tuple[str, ...] = ()

    @property
    def is_token(self) -> bool:
        return bool(self.device or self.client or self.identity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The request of a person. `resources` empty: chosen on the way. Times are in seconds.

    `issuer`: the only identity provider that may get a credential; "": the one that is named.
    `ready`: how long a binding may take to be Ready; None: it is not waited for.
    """

    url: str
    way: Way
    resources: tuple[GroupResource, ...] = ()
    skip_konnector: bool = False
    konnector_image: str = ""
    no_policy: bool = False
    rights: Rights = Rights.MINIMAL
    dry_run: bool = False
    wait: float = 120.0
    ready: bool = True
    issuer: str = ""


# A resource with the states of its claims; None: it is bound already.
Agreed: TypeAlias = tuple[Wanted, Sequence[Manifest] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A run, and its parts. `connect` opens the provider's cluster."""

    asked: Asked
    http: Http
    cluster: Cluster
    progress: Progress
    answers: Answers
    networks: Networks = ANYWHERE

    @property
    def app(self) -> AppCluster:
        return AppCluster(self.cluster, self.progress)

    async def dry_run(self) -> SignedIn:
        """Return the grant that a provider would give. Raises as `bind` does."""
        provider = await self._provider()
        if provider.door is None:
            self.progress.report("note", text=_MAKES_ALL_THE_SAME)
        return await self._signed_in(provider, write=provider.door is None)

    async def bind(self) -> list[GroupResource]:
        """Bind, and return the bound resources.

        Raises ConfigError, BindEnded and its kinds, and ClusterErrors.
        """
        provider = await self._provider()
        seen = await self.app.seen()
        image = provider.door.konnector_image if provider.door is not None else ""
        decision = self.decision(seen, offered=image)
        if decision.note:
            self.progress.report("note", text=decision.note)
        return await self.finish(await self._signed_in(provider, write=True), seen, decision)

    def decision(self, seen: Seen, *, offered: str = "") -> konnector.Decision:
        """Return the decision about the konnector. Raises ConfigError."""
        asked = self.asked
        decision = konnector.decide(
            seen.deployment,
            chosen=asked.konnector_image,
            offered=offered,
            skip=asked.skip_konnector,
        )
        return konnector.bounded(decision, served=seen.policies, without=asked.no_policy)

    async def finish(
        self, signed_in: SignedIn, seen: Seen, decision: konnector.Decision
    ) -> list[GroupResource]:
        """Ask for consent, execute it, and return the bound resources. Raises as `bind` does."""
        grant, agreed = signed_in.grant, self.agreed(signed_in, seen)
        app, asked = self.app, self.asked
        used, step = await _own_bindings(app, seen, grant, agreed)
        known = step.name if isinstance(step, RefreshSecret) else ""
        secret = known or await app.put_secret(grant.kubeconfig, used)
        assert grant.remote is not None
        async with KubeCluster(grant.remote) as provider:
            await response.request_exports(
                provider, grant.remote.namespace, grant.requests, self.progress
            )
        if known:
            await app.put_secret(grant.kubeconfig, used)
        served = konnector.with_bound(
            seen.bindings.values(),
            [(wanted, claims) for wanted, claims in agreed if claims is not None],
            secret,
        )
        await app.install(decision, asked.rights, served)
        kind = await app.wait_for_api(seconds=asked.wait)
        for wanted, claims in agreed:
            await app.bind(wanted, claims or (), secret=secret, kind=kind)
        bound = [wanted.resource for wanted, _ in agreed]
        if asked.ready:
            for resource in bound:
                await app.wait_ready(resource, kind, seconds=asked.wait)
        return bound

    def agreed(self, signed_in: SignedIn, seen: Seen) -> list[Agreed]:
        """Return the claims with their states, by flags and answers. Raises NoConsent."""
        listed = signed_in.grant.wanted
        decisions.require_known(self.answers.accept, listed)
        return [self._agreed(one, signed_in.consent, seen) for one in listed]

    def _agreed(self, wanted: Wanted, answered: Sequence[Manifest] | None, seen: Seen) -> Agreed:
        if seen.binding(wanted.resource) is not None:
            return wanted, None
        claims = self.answers.of(wanted, answered)
        if rejected := self.answers.rejected_unasked(claims):
            self.progress.report("rejected", name=wanted.resource.name, kinds=", ".join(rejected))
        if opened := reserved(claims):
            self.progress.report("reserved", name=wanted.resource.name, opened=", ".join(opened))
        return wanted, claims

    async def _provider(self) -> Provider:
        provider = await discovered(self.http, self.asked.url)
        if self.asked.way.is_token:
            require_issuer(front_door(provider), self.asked)
        return provider

    async def _signed_in(self, provider: Provider, *, write: bool) -> SignedIn:
        sign_in = SignIn(
            http=self.http,
            provider=provider,
            progress=self.progress,
            cluster_id=await self.app.identity(write=write),
            cluster_name=self.cluster.name if is_shown(self.cluster.name) else "",
            dry_run=self.asked.dry_run and provider.door is not None,
            networks=self.networks,
        )
        way, resources = self.asked.way, self.asked.resources
        if way.is_token:
            each = [await sign_in.by_token(await self._token(provider, way), resources)]
        else:
            each = [
                await sign_in.by_browser(one, port=way.port, show=way.show, is_first=not place)
                for place, one in enumerate(resources or (None,))
            ]
        signed_in = _together(each)
        require_asked(signed_in.grant, self.asked.resources)
        return signed_in

    async def _token(self, provider: Provider, way: Way) -> Secret:
        source, own = TokenSource(self.http, self.progress), front_door(provider)
        token = None
        if way.identity is not None:
            sources = Sources(os.environ, self.http, lambda: self.cluster)
            token = await sources.token(way.identity, own.audience)
            if way.client is None:
                return token  # as it is: no door chose who issued it
        if way.client is None:
            token = await source.by_device(own)
        else:
            token = await source.by_client(own, way.client, scopes=way.scopes, subject=token)
        require_for(token, own, by_device=way.device)
        return token


def require_issuer(door: FrontDoor, asked: Asked) -> None:
    """Refuse a front door that names another identity provider than --issuer.

    It would get what proves a machine, and could sign in with that elsewhere. Raises ConfigError.
    """
    device = "" if door.device is None else door.device.issuer
    named = device if asked.way.device else door.machine_issuer
    if asked.issuer and named and named != asked.issuer:
        raise ConfigError(
            f"the front door names the identity provider {named}, not {asked.issuer}",
            where="--issuer",
            hint="Nothing was sent there. Ask the provider which of them is its own",
        )


_MAKES_ALL_THE_SAME = (
    "The provider is an original backend: in a dry run, too, it needs Namespace klutch-bind and"
    " makes its own side"
)


async def _own_bindings(
    app: AppCluster, seen: Seen, grant: Grant, agreed: Sequence[Agreed]
) -> tuple[Collection[str], SecretStep]:
    """Return the Secrets of bindings to come back to, all of this provider, and the step."""
    live = [
        binding
        for wanted, claims in agreed
        if claims is None and (binding := seen.binding(wanted.resource))
    ]
    used = {one.secret for one in konnector.served_by(live)}
    step = await app.secret_step(grant.kubeconfig, used)
    name = "" if isinstance(step, CreateSecret) else step.name
    for binding in live:
        require_provider(binding, secret=name)
    return used, step


def _together(each: Sequence[SignedIn]) -> SignedIn:
    answered = [one.consent for one in each]
    known = [claim for claims in answered if claims is not None for claim in claims]
    return SignedIn(merged([one.grant for one in each]), None if None in answered else known)


def resource_of(text: str) -> GroupResource:
    plural, _, group = text.partition(".")
    return GroupResource(group, plural)
