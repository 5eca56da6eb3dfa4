"""Decides the next step for Secret, binding and CRD, and the accepted permission claims.

Protocol-bind.md D.2 and D.4, F22, F28: each CLI continues the work of the other. Flags accept
permission claims, and a person answers the rest. A page of the provider proposes and narrows
(trust.md law 8). All bindings share one reader of answers.
"""

import base64
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, TypeAlias

from klutchctl.binding import Claims, response
from klutchctl.binding.progress import BadAnswer, BindEnded, NoConsent
from klutchctl.binding.response import Wanted
from reconciler import api
from reconciler.blueprints import consent, objects
from reconciler.core import conditions, manifest, names
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import JSON, Manifest, canonical, drop, get_bool
from reconciler.core.normalize import normalize_claim
from reconciler.core.refs import SECRET
from reconciler.kube.connection import Connection, NoCredential
from reconciler.planning.permission_claims import is_wider


@dataclass(frozen=True, slots=True)
class KeepSecret:
    """The Secret has this very kubeconfig."""

    name: str


@dataclass(frozen=True, slots=True)
class RefreshSecret:
    """The Secret leads to the same space by another credential, tried before `patch` writes it."""

    name: str
    patch: Manifest


@dataclass(frozen=True, slots=True)
class CreateSecret:
    """No Secret leads to this space."""

    manifest: Manifest


SecretStep: TypeAlias = KeepSecret | RefreshSecret | CreateSecret


def secret_step(
    secrets: Sequence[Manifest], content: bytes, used: Collection[str] = ()
) -> SecretStep:
    """Return the step by which a Secret in klutch-bind holds a provider's kubeconfig.

    `used` are the names in the bindings to come back to: of several Secrets to one space, that of a
    binding is taken, whose reference cannot be changed. Raises BadAnswer for a broken kubeconfig.
    """
    way = _way_of(content)
    data = base64.b64encode(content).decode()
    fitting = [one for one in secrets if _leads(one, way)]
    if not fitting:
        made: Manifest = {
            "apiVersion": SECRET.api_version,
            "kind": SECRET.kind,
            "metadata": {
                "generateName": names.KUBECONFIG_GENERATE_NAME,
                "namespace": names.KLUTCH_NAMESPACE,
            },
            "type": "Opaque",
            "data": {names.KUBECONFIG: data},
        }
        return CreateSecret(made)
    live = min(fitting, key=lambda one: (manifest.name_of(one) not in used, manifest.name_of(one)))
    name = manifest.name_of(live)
    if api.kubeconfig_content(live, names.KUBECONFIG) == content:
        return KeepSecret(name)
    version = manifest.resource_version_of(live)
    change: dict[str, JSON] = {names.KUBECONFIG: data}
    return RefreshSecret(name, {"metadata": {"resourceVersion": version}, "data": change})


def _way_of(content: bytes) -> Connection:
    """Return how a kubeconfig leads to its space: all of it but the credential."""
    return replace(response.remote_of(content), credential=NoCredential())


def _leads(secret: Manifest, way: Connection) -> bool:
    content = api.kubeconfig_content(secret, names.KUBECONFIG)
    try:
        return isinstance(content, bytes) and _way_of(content) == way
    except BadAnswer:
        return False


def new_binding(
    wanted: Wanted, claims: Sequence[Manifest], *, secret: str, namespaced: bool
) -> Manifest:
    """Return the APIServiceBinding of a resource, with the states of its claims."""
    bound = objects.service_binding(
        wanted.resource,
        namespace=names.KLUTCH_NAMESPACE if namespaced else "",
        secret=(names.KLUTCH_NAMESPACE, secret),
        claims=claims,
        marks=objects.UNMARKED,
    )
    return bound if claims else manifest.drop(bound, "spec", "permissionClaims")


def require_provider(binding: Manifest, *, secret: str) -> None:
    """Refuse a binding of another provider; `secret` leads to this one (D.4). Raises BindEnded."""
    place = api.secret_of(binding)
    if place != (names.KLUTCH_NAMESPACE, secret):
        name = manifest.name_of(binding)
        hint = (
            f"Its kubeconfig is Secret {'/'.join(place)}, which leads elsewhere, or by another CA."
            " If its provider has renewed that, write it there; else delete the binding"
        )
        raise BindEnded(f"APIServiceBinding {name} is not from this provider", hint=hint)


def require_own_crd(binding: Manifest, crd: Manifest | None) -> None:
    """Refuse a binding whose CRD is another's (D.4). Raises BindEnded."""
    mine = (manifest.name_of(binding), manifest.uid_of(binding))
    owners = [] if crd is None else api.binding_references(crd)
    found = [(manifest.get_text(one, "name"), manifest.get_text(one, "uid")) for one in owners]
    if crd is not None and mine not in found:
        hint = "The conditions of the binding have the reason"
        name = manifest.name_of(binding)
        raise BindEnded(f"CustomResourceDefinition {name} is not of its binding", hint=hint)


def unanswered(binding: Manifest, wanted: Wanted) -> list[str]:
    """Return the kinds of which a provider claims more now than a binding answers (F22)."""
    known = _as_accepted(manifest.get_maps(binding, "spec", "permissionClaims"))
    return sorted(
        {consent.claim_key(one) for one in _as_accepted(wanted.claims) if is_wider(one, known)}
    )


def _as_accepted(claims: Sequence[Manifest]) -> list[Manifest]:
    return consent.accepted(list(map(normalize_claim, claims)), range(len(claims)))


def pending(binding: Manifest, now: str) -> Manifest:
    """Return the patch by which a new binding reports that its konnector has not come yet."""
    return {
        "metadata": {"resourceVersion": manifest.resource_version_of(binding)},
        "status": {
            "conditions": [
                {
                    "type": conditions.READY,
                    "status": conditions.FALSE,
                    "severity": "Info",
                    "reason": "Pending",
                    "message": "Pending",
                    "lastTransitionTime": now,
                }
            ]
        },
    }


def is_ready(binding: Manifest | None) -> bool:
    """Return whether a konnector reports that a binding works.

    The original's is Ready by its Secret alone, before it is connected.
    """
    needed = (conditions.READY, conditions.CONNECTED)
    return all(conditions.get(binding, one, conditions.TRUE) for one in needed)


def error_of(binding: Manifest | None) -> str:
    """Return why a binding needs somebody before it is Ready, "" where it only waits."""
    unready = conditions.get(binding, conditions.READY, conditions.FALSE)
    is_error = unready is not None and unready.severity == conditions.ERROR
    return why_not_ready(binding) if is_error else ""


def why_not_ready(binding: Manifest | None) -> str:
    """Return the reason why a binding, or its absence, is not Ready."""
    if binding is None:
        return "it is gone"
    ready = conditions.get(binding, conditions.READY)
    if ready is None or ready.reason == "Pending":
        return "no konnector has come to it"
    return ": ".join(filter(None, (ready.reason, ready.message))) or "its konnector gives no reason"


_YES: Final = frozenset({"y", "yes"})
_NO: Final = frozenset({"n", "no"})
_LONGEST: Final = 1024
_TRIES: Final = 100  # a pipe of nonsense ends
_PROPOSED: Final = "The provider reports that you accepted this on its page:\n"


class Verdict(Enum):
    """The answer to a permission claim, or that a person gives it."""

    ACCEPT = "accept"
    REJECT = "reject"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class Answers:
    """A source of answers.

    `accept` are what flags accept: kinds (`resource[.group]`), and openings, such as `secrets in
    kube-system`. `ask` shows text, `read` returns the next line, "" at the end. `interactive`: a
    person reads.
    """

    claims: Claims
    accept: Collection[str]
    ask: Callable[[str], None] = field(repr=False)
    read: Callable[[int], str] = field(repr=False)
    interactive: bool = False

    def of(self, wanted: Wanted, answered: Sequence[Manifest] | None = None) -> list[Manifest]:
        """Return the claims of a resource with their states; `answered` is a page's proposal.

        Raises NoConsent.
        """
        claims = wanted.claims
        agreed = {_identity(one) for one in answered or () if one.get("state") == consent.ACCEPTED}
        verdicts = {
            place: self.verdict(claim, proposed=answered is None or _identity(claim) in agreed)
            for place, claim in enumerate(claims)
        }
        chosen = {place for place, one in verdicts.items() if one is Verdict.ACCEPT}
        asked = [place for place, one in verdicts.items() if one is Verdict.ASK]
        # The original asks about each; a proposal is one question.
        for places in [[one] for one in asked] if answered is None else filter(None, [asked]):
            if self._asked("" if answered is None else _PROPOSED, [claims[one] for one in places]):
                chosen |= {*places}
        require_required(wanted, chosen)
        return consent.accepted(claims, chosen)

    def verdict(self, claim: Manifest, *, proposed: bool = True) -> Verdict:
        """Return the verdict on a claim; a page may take its proposal back, and no more."""
        opened = consent.openings(claim)
        named = bool(opened) and {*opened} <= {*self.accept}
        allowed = (
            consent.claim_key(claim) in self.accept
            or self.claims is Claims.ALL
            or (self.claims is Claims.REQUIRED and get_bool(claim, "required"))
        )
        if not proposed:
            return Verdict.REJECT
        if named or (allowed and not opened):
            return Verdict.ACCEPT
        asks = self.claims is Claims.ASK or (allowed and self.interactive)
        return Verdict.ASK if asks else Verdict.REJECT

    def rejected_unasked(self, claims: Sequence[Manifest]) -> list[str]:
        """Return the claims that flags rejected, as --accept names them: nobody has seen them."""
        if self.claims is Claims.ASK:
            return []
        rejected = [one for one in claims if one["state"] != consent.ACCEPTED]
        return [name for one in rejected for name in _names(one)]

    def _asked(self, begin: str, claims: Sequence[Manifest]) -> bool:
        question = "\n".join([*map(consent.sentences, claims), f"{consent.QUESTION}\n"])
        for _ in range(_TRIES):
            self.ask(begin + question)
            line = self.read(_LONGEST)
            if not line:
                raise NoConsent(
                    "no answer came; nothing was bound",
                    hint="Answer yes or no to each, or choose with --claims and --accept",
                )
            answer = line.strip().lower()
            if answer in _YES | _NO:
                return answer in _YES
        raise NoConsent("no answer was yes or no; nothing was bound")


def _names(claim: Manifest) -> list[str]:
    return consent.openings(claim) or [consent.claim_key(claim)]


def require_known(accept: Collection[str], wanted: Sequence[Wanted]) -> None:
    """Refuse names in --accept that nothing claims. Raises ConfigError."""
    claimed_by = [claim for one in wanted for claim in one.claims]
    known = {name for one in claimed_by for name in (consent.claim_key(one), *_names(one))}
    unknown = sorted(set(accept) - known)
    if unknown:
        claimed = ", ".join(sorted(known)) or "nothing"
        message = f"no permission claim is on {', '.join(unknown)}"
        raise ConfigError(message, where="--accept", hint=f"The provider claims: {claimed}")


def require_required(wanted: Wanted, chosen: Collection[int]) -> None:
    """Refuse to go on without a required claim, before anything is written (F23).

    Raises NoConsent.
    """
    missing = consent.required_rejected(wanted.claims, chosen)
    if missing:
        raise NoConsent(
            f"{wanted.resource.name} does not work without its required claims on "
            f"{', '.join(missing)}; nothing was bound"
        )


def _identity(claim: Manifest) -> bytes:
    return canonical(normalize_claim(drop(claim, "state")))
