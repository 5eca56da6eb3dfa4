"""Decide about an app cluster's konnector and its rights (protocol-bind.md D.5, F30, F40). Pure.

Minimal rights are those of all that is bound there, and grow with each bind.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from klutchctl.binding import Rights
from klutchctl.binding.response import Wanted
from reconciler.api import secret_of
from reconciler.blueprints import consent, objects, policies, rbac
from reconciler.blueprints import konnector as blueprint
from reconciler.core import keys, manifest, names
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import Manifest
from reconciler.core.normalize import normalize_claim
from reconciler.core.refs import GroupResource


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about the konnector. `image` "": it stays as it is. `note` is for people."""

    image: str = ""
    note: str = ""
    fresh: bool = False  # none is there
    rights: bool = True  # whether its rights are ours to widen
    policy: bool = True  # whether an admission policy bounds them


def bounded(decision: Decision, *, served: bool, without: bool) -> Decision:
    """Return the decision with an admission policy for each right that it gives (trust.md law 5).

    `served`: the API server has policies; `without`: a flag does without. Raises ConfigError.
    """
    if decision.rights and not (served or without):
        raise ConfigError(
            "has no admission policies (Kubernetes 1.30 has them), so nothing would bound the"
            " rights of the konnector",
            where="the app cluster",
            hint="--no-policy gives it rights all the same; --skip-konnector gives it none",
        )
    return replace(decision, policy=not without)


def decide(live: Manifest | None, *, chosen: str, offered: str, skip: bool) -> Decision:
    """Return the decision about the konnector.

    `live` is its Deployment; `chosen` the image of a flag, which wins always; `offered` that of the
    provider's front door, which replaces none: a konnector reads the Secrets of other providers.
    Raises ConfigError where there is no konnector and no image for one.
    """
    if chosen:
        return Decision(chosen, fresh=live is None)
    if skip:
        return Decision(rights=False)
    if live is None:
        if offered:
            note = (
                f"No konnector is there: with your consent the provider's konnector {offered} is"
                " installed; --konnector-image names another"
            )
            return Decision(offered, note, fresh=True)
        hint = "Name one with --konnector-image, or install a konnector, and use --skip-konnector"
        missing = "no konnector is there, and the provider names no image"
        raise ConfigError(missing, where="the app cluster", hint=hint)
    image = blueprint.image_in(live)
    if not offered or not image or image == offered:
        return Decision()
    taken = f"--konnector-image {offered} takes that of the provider"
    return Decision(note=f"The konnector {image} is left; {taken}")


def usual_rights(image: str) -> Rights:
    """Return the rights of a konnector of this image, unless flags set others.

    The original's expects to do anything.
    """
    return Rights.FULL if image.startswith(names.KONNECTOR_IMAGE_REPOSITORY) else Rights.MINIMAL


def deployment(image: str, rights: Rights) -> Manifest:
    """Return the Deployment of a new konnector; ours does with less than the original's."""
    confined = rights is Rights.MINIMAL
    return blueprint.deployment(image, {}, marks=objects.UNMARKED, confined=confined)


def image_patch(live: Manifest, image: str) -> Manifest:
    """Return the patch that gives a live Deployment, as it was read, another image."""
    containers = [
        dict(one) for one in manifest.get_maps(live, "spec", "template", "spec", "containers")
    ]
    containers[0]["image"] = image
    return {
        "metadata": {"resourceVersion": manifest.resource_version_of(live)},
        "spec": {"template": {"spec": {"containers": containers}}},
    }


def account() -> Manifest:
    return objects.service_account(names.KLUTCH_NAMESPACE, names.KONNECTOR, marks=objects.UNMARKED)


def role(rules: Sequence[Manifest]) -> Manifest:
    return rbac.cluster_role(names.KONNECTOR_CLUSTER_ROLE, rules, marks=objects.UNMARKED)


def role_binding() -> Manifest:
    return rbac.cluster_role_binding(
        names.KONNECTOR_CLUSTER_ROLE, names.KONNECTOR, marks=objects.UNMARKED
    )


@dataclass(frozen=True, slots=True)
class Served:
    """A binding that a konnector serves: its Secret, and its claims with their states."""

    resource: GroupResource
    secret: str
    claims: Sequence[Manifest]


def served_by(bindings: Iterable[Manifest]) -> list[Served]:
    """Return the kinds and claims that the live bindings ask of the konnector."""
    found = []
    for binding in bindings:
        plural, _, group = manifest.name_of(binding).partition(".")
        claims = manifest.get_maps(binding, "spec", "permissionClaims")
        found.append(Served(GroupResource(group, plural), secret_of(binding).name, claims))
    return found


def rules(served: Sequence[Served], rights: Rights) -> tuple[Manifest, ...]:
    """Return the rules of a konnector of these bindings in the app cluster."""
    if rights is Rights.FULL:
        return rbac.FULL
    claimed = [_claimed(claim) for one in served for claim in one.claims if _counts(claim)]
    stated = [*rbac.minimal([one.resource for one in served], claimed)]
    for secret in sorted({one.secret for one in served}):
        stated += [rule for rule in rbac.minimal_inside(secret) if rule not in stated]
    return tuple(stated)


def policy(served: Iterable[Served]) -> policies.Policy:
    """Return the bounds of a konnector: the namespaces of the claims that it serves."""
    claims = [normalize_claim(one) for each in served for one in each.claims if _counts(one)]
    return policies.konnector(
        {name for one in claims for name in manifest.get_texts(one, "selector", "namespaces")}
    )


def _counts(claim: Manifest) -> bool:
    return manifest.get_text(claim, "state") == consent.ACCEPTED


def _claimed(claim: Manifest) -> rbac.Claimed:
    # What no side owns alone comes down, too.
    down = manifest.get_text(claim, "selector", "owner") != keys.OWNER_CONSUMER
    return rbac.Claimed(
        manifest.get_text(claim, "group"), manifest.get_text(claim, "resource"), down
    )


def is_full(live: Manifest) -> bool:
    """Return whether a ClusterRole allows everything, as the original's does."""
    return any(rule in manifest.get_maps(live, "rules") for rule in rbac.FULL)


def widened(live: Manifest, stated: Sequence[Manifest]) -> Manifest | None:
    """Return the patch that gives a live ClusterRole these rules beside its own, None for none.

    Narrowing what a running konnector may do would stop it.
    """
    present = manifest.get_maps(live, "rules")
    if is_full(live):
        return None
    missing = [rule for rule in stated if not any(_covers(own, rule) for own in present)]
    if not missing:
        return None
    kept = [rule for rule in present if not any(_covers(new, rule) for new in missing)]
    return {
        "metadata": {"resourceVersion": manifest.resource_version_of(live)},
        "rules": [*kept, *missing],
    }


def _covers(wide: Manifest, narrow: Manifest) -> bool:
    """Return whether one rule allows all that another does."""
    if wide.get("nonResourceURLs") or narrow.get("nonResourceURLs"):
        return False
    fields = ("apiGroups", "resources", "verbs")
    if not all(_includes(wide, narrow, field) for field in fields):
        return False
    only = set(manifest.get_texts(wide, "resourceNames"))
    asked = set(manifest.get_texts(narrow, "resourceNames"))
    return not only or (bool(asked) and asked <= only)


def _includes(wide: Manifest, narrow: Manifest, field: str) -> bool:
    allowed = set(manifest.get_texts(wide, field))
    return "*" in allowed or set(manifest.get_texts(narrow, field)) <= allowed


def with_bound(
    live: Iterable[Manifest], bound: Iterable[tuple[Wanted, Sequence[Manifest]]], secret: str
) -> list[Served]:
    """Return the kinds that are served once these are bound, too; bound ones stay as they are."""
    served = {one.resource: one for one in served_by(live)}
    for wanted, claims in bound:
        served.setdefault(wanted.resource, Served(wanted.resource, secret, claims))
    return [served[key] for key in sorted(served)]
