"""Builds the binding space of an identity's app cluster. Pure; protocol-bind.md B.4, F8, F9.

A space is known by its annotation `identity`, whatever its name is. A new one is named after that
identity, so that two replicas that make it at once meet at one name. What is refused is refused
before anything is written.

Nothing is written into a Namespace but by a decision that saw it as this identity's own, and each
decision writes one thing, or two that lead nowhere alone: a Namespace that is deleted and made
again by somebody else meanwhile gets no more than that. The token of a kubeconfig that comes too
late died with the Namespace that it was for.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from bind import bounds, rbac_changes
from bind.door.identity import Identity, Refused, space_identity
from reconciler.api import CA_KEY, CLUSTER_BINDING, SERVICE_ACCOUNT_TOKEN, TOKEN_KEY
from reconciler.blueprints import objects, rbac
from reconciler.blueprints.objects import UNMARKED, Marks
from reconciler.core import keys, manifest, names
from reconciler.core.decision import Create, Patch, modification
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import NAMESPACE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT
from reconciler.core.secret import Secret

Step: TypeAlias = Create | Patch
_LABELS: Final = (keys.APP_CLUSTER_BINDING_NAME, keys.APP_CLUSTER_BINDING_NAMESPACE)


@dataclass(frozen=True, slots=True)
class SpaceTerms:
    """The operator's settings: names of spaces, and the address in kubeconfigs.

    Without `ca`, the certificate counts that is beside the token. `labels` are those of a new
    space: what `bounds.RESTRICTED` keeps out of it.
    """

    prefix: str
    pretty_name: str
    server: str
    ca: str = ""
    tls_server_name: str = ""
    most_per_subject: int = 50
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The space that is asked for, and the `resources` that are to be bound there.

    `label` is what people call the app cluster, "" where nobody says.
    """

    identity: Identity
    cid: str
    terms: SpaceTerms
    resources: frozenset[str]
    label: str = ""

    @property
    def annotation(self) -> str:
        """The proof of a space's owner."""
        return space_identity(self.identity, self.cid)

    @property
    def name(self) -> str:
        return names.space_name(self.terms.prefix, self.annotation)


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a Namespace, whole and as the control plane has it; None where it is absent.

    `kubeconfig` is the Secret that the ClusterBinding names, or would name.
    """

    cluster_binding: Manifest | None = field(default=None, repr=False)
    account: Manifest | None = field(default=None, repr=False)
    token: Manifest | None = field(default=None, repr=False)
    kubeconfig: Manifest | None = field(default=None, repr=False)
    role_binding: Manifest | None = field(default=None, repr=False)


EMPTY: Final = Content()


@dataclass(frozen=True, slots=True)
class Seen:
    """All that concerns one space. `cluster` names the control plane in a Ref.

    `namespaces` are those with the annotation, and the one of the name. `content` is that of the
    only one with the annotation. `owned` is how many spaces the identity has in all. `resources`
    are those that an `unnoted` space has, or gets by an earlier request. `left` is a sentence about
    what an earlier space of its name left, looked for where an account is to be made.
    """

    cluster: str
    namespaces: Sequence[Manifest] = field(default=(), repr=False)
    content: Content = EMPTY
    owned: int = 0
    resources: frozenset[str] = frozenset()
    left: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Others have to do something first; `why` is for the log."""

    why: str


@dataclass(frozen=True, slots=True)
class Space:
    """A space that is there, with a konnector that has its rights."""

    name: str
    kubeconfig: bytes = field(repr=False)


Outcome: TypeAlias = tuple[Step, ...] | Wait | Space | Refused


def decide(seen: Seen, wanted: Wanted) -> Outcome:
    """Return the next steps, in their order, after which to look again, or the end."""
    own = own_of(seen.namespaces, wanted)
    if not seen.namespaces:
        return _made(seen, wanted)
    refused = _foreign(own, wanted)
    if refused is not None:
        return refused
    namespace = own[0]
    notes = _notes(seen, wanted, namespace)
    if notes:
        return (modification(seen.cluster, NAMESPACE, namespace, metadata={"annotations": notes}),)
    return _filled(seen, wanted, manifest.name_of(namespace))


def kubeconfig_place(cluster_binding: Manifest | None) -> tuple[str, str]:
    """Return the Secret and the key in it that a ClusterBinding names, or will."""
    ref = manifest.get_map(cluster_binding, "spec", "kubeconfigSecretRef")
    return (
        manifest.get_text(ref, "name") or names.KUBECONFIG,
        manifest.get_text(ref, "key") or names.KUBECONFIG,
    )


def _made(seen: Seen, wanted: Wanted) -> Outcome:
    most = wanted.terms.most_per_subject
    if seen.owned >= most:
        sentence = f"You have {seen.owned} app clusters bound here, and {most} are allowed"
        return Refused("forbidden", sentence, reason="quota")
    problem = names.label_problem(wanted.name)
    if problem:
        return Refused("unavailable", f"The binding space cannot be made: {problem}")
    notes = {keys.IDENTITY: wanted.annotation, keys.ISSUER: wanted.identity.issuer}
    notes |= bounds.door_note(wanted.resources) | _label(wanted)
    made = objects.namespace(wanted.name, marks=Marks(wanted.terms.labels, notes))
    return (Create(NAMESPACE, made, seen.cluster),)


def _notes(seen: Seen, wanted: Wanted, namespace: Manifest) -> dict[str, JSON]:
    """Return the annotations that a space lacks, before its kubeconfig is given away.

    A space of the original, or of a version before, says by its first bind who vouches for it, and
    what it may ask for from now on: that, and what it has. One of a fleet is the fleet's to fill.
    """
    notes = dict[str, JSON]()
    if keys.ISSUER not in manifest.annotations_of(namespace):
        notes[keys.ISSUER] = wanted.identity.issuer
    if not bounds.is_of_fleet(namespace):
        known = manifest.annotations_of(namespace)
        notes.update({key: text for key, text in _label(wanted).items() if known.get(key) != text})
        noted = bounds.bound_at_door(namespace)
        bound = wanted.resources | (seen.resources if noted is None else noted)
        if bound != noted:
            notes.update(bounds.door_note(bound))
    return notes


def _label(wanted: Wanted) -> dict[str, str]:
    return {keys.CLUSTER_NAME: wanted.label} if wanted.label else {}


def own_of(namespaces: Sequence[Manifest], wanted: Wanted) -> list[Manifest]:
    noted = ((one, manifest.annotations_of(one).get(keys.IDENTITY)) for one in namespaces)
    return [one for one, annotation in noted if annotation == wanted.annotation]


def unnoted(namespaces: Sequence[Manifest], wanted: Wanted) -> Manifest | None:
    """Return the space of the identity, if it has no note of its bound resources."""
    own = own_of(namespaces, wanted)
    noted = any(keys.MAY_BIND in manifest.annotations_of(one) for one in own)
    return None if noted or not own else own[0]


def _foreign(own: Sequence[Manifest], wanted: Wanted) -> Refused | None:
    """Return why these are not the one space of the identity, or None."""
    if not own:
        return _conflict("The name of this app cluster's binding space is taken")
    if len(own) > 1:
        return _conflict("There are two binding spaces of this app cluster")
    (namespace,) = own
    notes = manifest.annotations_of(namespace)
    if notes.get(keys.ISSUER, wanted.identity.issuer) != wanted.identity.issuer:
        return _conflict("This app cluster's binding space belongs to the user of another issuer")
    if manifest.is_deleting(namespace):
        sentence = "This app cluster's binding space is being deleted: wait until it is gone"
        return Refused("conflict", sentence, reason="space")
    return None


def _conflict(sentence: str) -> Refused:
    return Refused("conflict", f"{sentence}. Ask the provider", reason="space")


def _filled(seen: Seen, wanted: Wanted, space: str) -> Outcome:
    content = seen.content
    leaving = _leaving(content)
    if leaving:
        return Wait(f"{leaving} of {space} is being deleted")
    if content.cluster_binding is None:
        made = objects.cluster_binding(
            space,
            kubeconfig_name=names.KUBECONFIG,
            spec={"providerPrettyName": wanted.terms.pretty_name},
            marks=UNMARKED,
        )
        return (Create(CLUSTER_BINDING, made, seen.cluster),)
    if not manifest.labels_of(content.cluster_binding).keys().isdisjoint(_LABELS):
        return _conflict("The binding space belongs to an AppClusterBinding")
    if seen.left:
        return _conflict("An earlier binding space of this name left rights or data")
    return _accounts(seen, space) or _credential(seen, wanted, space)


def _leaving(content: Content) -> str:
    parts = (
        ("ClusterBinding", content.cluster_binding),
        ("ServiceAccount", content.account),
        ("its token", content.token),
        ("its kubeconfig", content.kubeconfig),
    )
    going = (name for name, live in parts if live is not None and manifest.is_deleting(live))
    return next(going, "")


def _accounts(seen: Seen, space: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    if seen.content.account is None:
        account = objects.service_account(space, names.BINDER, marks=UNMARKED)
        steps.append(Create(SERVICE_ACCOUNT, account, seen.cluster))
    if seen.content.token is None:
        token = objects.token_secret(space, names.BINDER, marks=UNMARKED)
        steps.append(Create(SECRET, token, seen.cluster))
    return tuple(steps)


def _credential(seen: Seen, wanted: Wanted, space: str) -> Outcome:
    secret, terms = seen.content.token, wanted.terms
    if manifest.get_text(secret, "type") != SERVICE_ACCOUNT_TOKEN:
        return _conflict(f"Secret {names.BINDER} of the binding space is no token of its account")
    token, beside = _text(secret, TOKEN_KEY), _text(secret, CA_KEY)
    if not token or not (terms.ca or beside):
        return Wait(f"the token of {space} is not issued yet")
    address = _Address(terms.server, terms.ca or beside, terms.tls_server_name)
    content = objects.kubeconfig(address, Secret(token), namespace=space).encode()
    steps = _kubeconfig(seen, space, content)
    if steps:
        return steps
    if not _is_granted(seen, space):
        return Wait(f"the konnector of {space} has no rights yet")
    return Space(space, content)


def _kubeconfig(seen: Seen, space: str, content: bytes) -> tuple[Step, ...] | Refused:
    name, key = kubeconfig_place(seen.content.cluster_binding)
    if name == names.BINDER:
        return _conflict("The ClusterBinding names the Secret of the token")
    live, encoded = seen.content.kubeconfig, base64.b64encode(content).decode()
    data: dict[str, JSON] = {key: encoded}
    if live is None:
        made = objects.build(SECRET, name, namespace=space, data=data)
        return (Create(SECRET, made, seen.cluster),)
    present = manifest.get_map(live, "data")
    if present == data:
        return ()
    if manifest.get_bool(live, "immutable"):
        return _conflict(f"Secret {name} of the binding space cannot be changed")
    gone: dict[str, JSON] = dict.fromkeys(present)
    return (modification(seen.cluster, SECRET, live, data=gone | data),)


def _is_granted(seen: Seen, space: str) -> bool:
    """Return whether the konnector has its rights, without which a CLI's first call is refused."""
    live = seen.content.role_binding
    if live is None or manifest.is_deleting(live):
        return False
    wanted = rbac.binding_in_space(space)
    return not rbac_changes.role_binding(seen.cluster, ROLE_BINDING, live, wanted)


def _text(secret: Manifest | None, key: str) -> str:
    try:
        return base64.b64decode(manifest.get_text(secret, "data", key), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


@dataclass(frozen=True, slots=True)
class _Address:
    server: str
    ca: str
    tls_server_name: str


def owned(namespaces: Sequence[Manifest]) -> int:
    """Return how many of an identity's spaces count: those that go make room already."""
    return sum(not manifest.is_deleting(one) for one in namespaces)
