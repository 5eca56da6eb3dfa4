"""Checks the right of an identity to bind a template, and reloads the access file."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias, assert_never

from bind.door import access
from bind.door.access import Access
from bind.door.catalogue import Offer
from bind.door.identity import Identity, Refused
from reconciler.api import API_SERVICE_EXPORT_TEMPLATE, CLUSTER_BINDING
from reconciler.core import keys, manifest
from reconciler.core.errors import ClusterError, ConfigError
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind
from reconciler.files import LastGood
from reconciler.kube.cluster import Writer

log = logging.getLogger(__name__)

Mode: TypeAlias = Literal["Authenticated", "SubjectAccessReview", "Rules"]
REVIEW: Final = Kind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)
VERB: Final = "bind"
_KEPT: Final = 10.0  # seconds
_MOST: Final = 10_000
# The control plane's own: with `--oidc-prefix=""`, a provider could name them.
_RESERVED: Final = "system:"


class Authorizer(Protocol):
    """Knows the rights of identities to bind."""

    async def may_bind(self, identity: Identity, offer: Offer) -> bool:
        """Return whether an identity may bind an offer. Raises Refused where nobody knows."""
        ...

    async def may_see_all(self, identity: Identity) -> bool:
        """Return whether an identity may see the bindings of others. Raises Refused as above."""
        ...


class Authenticated:
    """Lets everybody bind everything that is offered, as the original does."""

    async def may_bind(self, _identity: Identity, _offer: Offer) -> bool:
        return True

    async def may_see_all(self, _identity: Identity) -> bool:
        """Return that it may not: nothing is known of it but its existence."""
        return False


class Rules:
    """Asks the access file, as it is now."""

    def __init__(self, access: Callable[[], Access]) -> None:
        self._access = access

    async def may_bind(self, identity: Identity, offer: Offer) -> bool:
        return self._access().allows(identity, offer)

    async def may_see_all(self, _identity: Identity) -> bool:
        """Return that it may not: rules are about templates."""
        return False


@dataclass(frozen=True, slots=True)
class _Question:
    user: str
    groups: tuple[str, ...]
    verb: str
    kind: Kind
    namespace: str = ""
    name: str = ""


@dataclass(slots=True)
class Reviews:
    """Asks the control plane's authorisation: verb `bind` on the template, by its name.

    Its answers are kept for 10 s. `monotonic` returns seconds.
    """

    cluster: Writer
    monotonic: Callable[[], float]
    _answers: dict[_Question, tuple[bool, float]] = field(default_factory=dict)

    async def may_bind(self, identity: Identity, offer: Offer) -> bool:
        """Return whether RBAC allows it. Raises Refused where the control plane gives no answer."""
        kind = API_SERVICE_EXPORT_TEMPLATE
        return await self._may(identity, VERB, kind, (offer.namespace, offer.name))

    async def may_see_all(self, identity: Identity) -> bool:
        """Return whether RBAC lets it list all ClusterBindings. Raises Refused as above."""
        return await self._may(identity, "list", CLUSTER_BINDING, ("", ""))

    async def _may(self, identity: Identity, verb: str, kind: Kind, place: tuple[str, str]) -> bool:
        if identity.user.startswith(_RESERVED):
            return False
        groups = tuple(one for one in identity.groups if not one.startswith(_RESERVED))
        question = _Question(identity.user, groups, verb, kind, *place)
        allowed, until = self._answers.get(question, (False, float("-inf")))
        now = self.monotonic()
        if now >= until:
            allowed = await self._asked(question)
            self._forget(now)
            self._answers[question] = allowed, now + _KEPT
        return allowed

    async def _asked(self, question: _Question) -> bool:
        # A review is never stored, so it has no name, and the answer none either.
        try:
            answer = await self.cluster.create(
                _review(question), REVIEW, manager=keys.MANAGER_BACKEND
            )
        except ClusterError as error:
            log.warning("the control plane cannot check who may bind", extra={"why": str(error)})
            raise Refused("unavailable", _SILENT, reason="authorization") from None
        allowed = manifest.get(answer, "status", "allowed")
        if not isinstance(allowed, bool):
            raise Refused("unavailable", _SILENT, reason="authorization")
        return allowed

    def _forget(self, now: float) -> None:
        if len(self._answers) >= _MOST:
            self._answers = {
                question: answer for question, answer in self._answers.items() if answer[1] > now
            }
        if len(self._answers) >= _MOST:
            self._answers.clear()


_SILENT: Final = "The control plane cannot check your permissions now. Try again"


def _review(question: _Question) -> Manifest:
    place = {"namespace": question.namespace, "name": question.name}
    return {
        "apiVersion": REVIEW.api_version,
        "kind": REVIEW.kind,
        "spec": {
            "user": question.user,
            "groups": list(question.groups),
            "resourceAttributes": {
                "verb": question.verb,
                "group": question.kind.group,
                "resource": question.kind.plural,
                **{key: value for key, value in place.items() if value},
            },
        },
    }


def authorizer(
    mode: Mode, *, cluster: Writer, monotonic: Callable[[], float], access: Callable[[], Access]
) -> Authorizer:
    match mode:
        case "Authenticated":
            return Authenticated()
        case "SubjectAccessReview":
            return Reviews(cluster, monotonic)
        case "Rules":
            return Rules(access)
        case _:
            assert_never(mode)


def access_file(path: Path, monotonic: Callable[[], float]) -> Callable[[], Access]:
    """Return a reader of an access file on disk; a bad one leaves the last good.

    Raises ConfigError where it is not good to begin with.
    """

    def read() -> Access:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
        return access.parse(content, str(path))

    def noted(error: Exception | None) -> None:
        if error is None:
            log.info("the new access file is in use", extra={"path": str(path)})
            return
        why = {"why": str(error)}
        log.error("the new access file is invalid: the previous one stays in use", extra=why)

    return LastGood((path,), read, monotonic, noted).current
