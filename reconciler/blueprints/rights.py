"""What a konnector may do in an app cluster (`rbac: Full` and `Minimal` of the fleet).

Minimal follows from what is bound and claimed, by what a konnector does there
(protocol-konnector.md A to E), which never replaces a whole object. It is enough for our konnector
only: the original's expects to do anything, which is Full. Refuses to know the control plane,
where the backend gives the rights.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from reconciler.core import names
from reconciler.core.keys import KLUTCH_GROUP
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import CRD, EVENT, LEASE, NAMESPACE, SECRET

FULL: Final[tuple[Manifest, ...]] = ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},)

_LOOK: Final = ("get", "list", "watch")
_CHANGE: Final = ("patch",)
_ALL: Final = ("create", "delete", *_LOOK, *_CHANGE)
_BINDINGS: Final = "apiservicebindings"


@dataclass(frozen=True, slots=True, order=True)
class Claimed:
    """A kind that an accepted permission claim names. `down`: its objects come from the provider.

    What goes up only is never created or deleted in the app cluster (mapping.md 0).
    """

    group: str
    plural: str
    down: bool


def minimal(bound: Collection[tuple[str, str]], claimed: Iterable[Claimed]) -> tuple[Manifest, ...]:
    """Return the rules for any konnector that serves these (group, plural).

    It may create any CRD: a POST, unlike an apply, has no name that a rule could be about.
    """
    crds = sorted(names.resource_name(plural, group) for group, plural in bound)
    rules = [
        # Which app namespaces there are, and whose cluster this is.
        _rule(NAMESPACE.group, [NAMESPACE.plural], _LOOK),
        _rule(CRD.group, [CRD.plural], (*_LOOK, "create")),
        _rule(EVENT.group, [EVENT.plural], ("create", *_CHANGE)),
    ]
    if crds:
        rules.append(_rule(CRD.group, [CRD.plural], ("delete", *_CHANGE), only=crds))
    return (*rules, *_bound(bound), *_claimed(claimed))


def minimal_inside(kubeconfig_secret: str) -> tuple[Manifest, ...]:
    """Return what a konnector needs besides where it runs in the app cluster itself.

    It installs the CRD of APIServiceBindings, reads them, mirrors the kubeconfig into that Secret
    and holds a Lease. Of Secrets it can create that one only, and only by an apply, which says
    the name before it is authorized.
    """
    crd = names.resource_name(_BINDINGS, KLUTCH_GROUP)
    return (
        _rule(CRD.group, [CRD.plural], _CHANGE, only=[crd]),
        _rule(KLUTCH_GROUP, [_BINDINGS], ("list", "watch", *_CHANGE)),
        _rule(KLUTCH_GROUP, [f"{_BINDINGS}/status"], _CHANGE),
        _rule(
            SECRET.group, [SECRET.plural], ("create", *_LOOK, *_CHANGE), only=[kubeconfig_secret]
        ),
        _rule(LEASE.group, [LEASE.plural], ("create",)),
        _rule(LEASE.group, [LEASE.plural], ("get", *_CHANGE), only=[names.KONNECTOR_LEASE]),
    )


def _bound(resources: Iterable[tuple[str, str]]) -> Iterable[Manifest]:
    """Instances go up and, where they are born on the control plane, come down; statuses too.

    Only their owners delete them.
    """
    for group, plurals in _by_group(resources):
        yield _rule(group, plurals, ("create", *_LOOK, *_CHANGE))
        yield _rule(group, [f"{plural}/status" for plural in plurals], _CHANGE)


def _claimed(claims: Iterable[Claimed]) -> Iterable[Manifest]:
    known = set(claims)
    down = {(one.group, one.plural) for one in known if one.down}
    up = {(one.group, one.plural) for one in known} - down
    for group, plurals in _by_group(down):
        yield _rule(group, plurals, _ALL)
    for group, plurals in _by_group(up):
        yield _rule(group, plurals, (*_LOOK, *_CHANGE))


def _by_group(resources: Iterable[tuple[str, str]]) -> Iterable[tuple[str, list[str]]]:
    plurals: dict[str, set[str]] = {}
    for group, plural in resources:
        plurals.setdefault(group, set()).add(plural)
    return [(group, sorted(plurals[group])) for group in sorted(plurals)]


def _rule(
    group: str, resources: list[str], verbs: Iterable[str], *, only: list[str] | None = None
) -> Manifest:
    rule: dict[str, JSON] = {
        "apiGroups": [group],
        "resources": resources,
        "verbs": sorted(verbs),
    }
    return rule if only is None else {**rule, "resourceNames": only}
