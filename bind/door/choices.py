"""Computes the results of bindings, and a person's choices for a service. Pure.

A ClusterBinding's status is written by the app cluster's konnector: it is shown, never trusted.
The text of fleet files is built here, as agents do not import the fleet's models; tests compare.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

import yaml

from bind.door.catalogue import Offer
from bind.door.pages.views import BindingRow, ConditionRow, Result, Shape
from reconciler import api
from reconciler.api import Liveness
from reconciler.blueprints import consent
from reconciler.core import conditions, manifest, names, times
from reconciler.core.conditions import Condition
from reconciler.core.manifest import JSON, Manifest

_FLEET: Final = "fleet.klutchctl.dev/v1alpha1"
_PLACEHOLDER: Final = "your-cluster"
_ALL: Final = "*"
_LONGEST_NAME: Final = 63


def result(offer: Offer, chosen: Collection[int], *, url: str) -> Result:
    """Return how an offer of the front door at `url` is bound."""
    return Result(
        command(offer, chosen, url=url),
        shlex.join(["kubectl", "bind", f"{url}/export"]),
        fleet(offer, chosen),
        tuple(_remarks(offer)),
    )


def command(offer: Offer, chosen: Collection[int], *, url: str) -> str:
    """Return the command that binds.

    It names what is accepted. Where two claims are on one kind and only one of them is accepted,
    no flag says so, and the command asks.
    """
    words = ["klutchctl", "bind", url, "--resource", offer.resource.name]
    kinds = {place: consent.claim_key(claim) for place, claim in enumerate(offer.claims)}
    accepted = {kinds[place] for place in chosen}
    rejected = {kind for place, kind in kinds.items() if place not in chosen}
    if accepted & rejected:
        words += ["--claims", "ask"]
    elif kinds:
        words += ["--claims", "none"]
        for kind in sorted(accepted):
            words += ["--accept", kind]
    return shlex.join(words)


def fleet(offer: Offer, chosen: Collection[int]) -> str:
    """Return a Template with the accepted claims as its ceiling, and its Binding."""
    name = offer.resource.plural[:_LONGEST_NAME].rstrip("-")
    claims = [claim for claim in consent.accepted(offer.claims, chosen) if _is_sayable(claim)]
    ceiling = [_stated(claim) for claim in claims if claim["state"] == consent.ACCEPTED]
    template: dict[str, JSON] = {"resources": [offer.resource.wire]}
    binding: dict[str, JSON] = {"template": name, "clusters": {"names": [_PLACEHOLDER]}}
    if ceiling:
        template["claims"] = ceiling
    if len(ceiling) < len(claims):
        binding["claims"] = [{**_stated(claim), "state": claim["state"]} for claim in claims]
    documents = [
        {"apiVersion": _FLEET, "kind": kind, "metadata": {"name": name}, "spec": spec}
        for kind, spec in (("Template", template), ("Binding", binding))
    ]
    return "---\n".join(yaml.safe_dump(one, sort_keys=False) for one in documents)


def _remarks(offer: Offer) -> Iterator[str]:
    yield f"In the files, replace {_PLACEHOLDER} with the names of your clusters."
    unsayable = sorted({consent.claim_key(one) for one in offer.claims if not _is_sayable(one)})
    if unsayable:
        listed = ", ".join(unsayable)
        why = "the provider's claim names no owner, or selects objects by fields"
        yield f"Files cannot accept {listed}: {why}."


def _is_sayable(claim: Manifest) -> bool:
    """Return whether files can accept a claim, and no more than it."""
    selector = manifest.get_map(claim, "selector")
    return bool(selector.get("owner")) and not selector.get("fieldSelectors")


def _stated(claim: Manifest) -> Mapping[str, JSON]:
    stated: dict[str, JSON] = {
        key: manifest.get_text(claim, key) for key in ("group", "resource", "version")
    }
    stated |= {"owner": manifest.get_text(claim, "selector", "owner"), "names": [_ALL]}
    for key in ("names", "namespaces"):
        listed = manifest.get(claim, "selector", key)
        # No names are all names; no namespaces are those of objects that lie in none.
        if isinstance(listed, list) and listed != [_ALL] and (listed or key == "namespaces"):
            stated[key] = manifest.get_texts(claim, "selector", key)
    labels = [
        manifest.get_text_map(one) for one in manifest.get_maps(claim, "selector", "labelSelectors")
    ]
    if labels:
        stated["labels"] = labels
    return stated


_LOOK: Final = "In your cluster: kubectl -n klutch-bind get deployment konnector"
_CONDITIONS: Final = "Its conditions have the reason."


@dataclass(frozen=True, slots=True)
class BoundCluster:
    """An app cluster with a space, as pages show it.

    `issuer` is "" until the space says who vouches for it. `services` are the names of its exports.
    Its user calls it `name`.
    """

    space: str
    owner: str
    cid: str
    issuer: str
    is_deleting: bool
    cluster_binding: Manifest | None = field(default=None, repr=False)
    services: tuple[str, ...] = ()
    name: str = ""


def row(bound: BoundCluster, now: datetime) -> BindingRow:
    """Return a binding space as pages show it."""
    word, shape, step = _state(bound, now)
    heartbeat = api.heartbeat_of(bound.cluster_binding)
    return BindingRow(
        space=bound.space,
        cid=bound.cid,
        owner=bound.owner,
        services=sorted(bound.services),
        word=word,
        shape=shape,
        heartbeat="never" if heartbeat is None else ago(now - heartbeat.time),
        href=f"/ui/bindings/{quote(bound.space, safe='')}",
        conditions=[
            ConditionRow(
                one.type,
                one.status,
                one.reason,
                one.message,
                _since(one, now),
                "waiting" if shape == "waiting" and _shape(one) == "bad" else _shape(one),
            )
            for one in conditions.of(bound.cluster_binding)
        ],
        name=bound.name,
        next=step,
    )


def _since(condition: Condition, now: datetime) -> str:
    since = times.moment(condition.last_transition_time)
    return condition.last_transition_time if since is None else ago(now - since)


def _shape(condition: Condition) -> Shape:
    if condition.status == conditions.TRUE:
        return "good"
    waits = condition.status != conditions.FALSE or condition.severity == conditions.INFO
    return "waiting" if waits else "bad"


def unbind(bound: BoundCluster) -> list[str]:
    """Return the commands that unbind, for the app cluster."""
    kind = api.API_SERVICE_BINDING
    begin = ["kubectl", "--namespace", names.KLUTCH_NAMESPACE, "delete"]
    return [
        shlex.join([*begin, f"{kind.plural}.{kind.group}", service])
        for service in sorted(bound.services)
    ]


def ago(age: timedelta) -> str:
    """Return how long ago something was, in its largest unit."""
    return "in the future" if age < timedelta() else f"{times.age(age)} ago"


def _state(bound: BoundCluster, now: datetime) -> tuple[str, Shape, str]:
    """Return the state of a cluster in a word and a shape, and its user's next step."""
    if bound.is_deleting:
        return "Being deleted", "waiting", ""
    heartbeat = api.heartbeat_of(bound.cluster_binding)
    timeout = api.SILENCE if heartbeat is None else heartbeat.timeout
    match api.liveness(heartbeat, now, timeout=timeout):
        case Liveness.NEVER:
            return "Waiting for the konnector", "waiting", _LOOK
        case Liveness.SILENT:
            return "No heartbeat", "silent", _LOOK
    ready = conditions.get(bound.cluster_binding, conditions.READY)
    if ready is None or ready.status not in (conditions.TRUE, conditions.FALSE):
        return "Unknown", "waiting", _CONDITIONS
    if ready.status == conditions.TRUE:
        return "Ready", "good", ""
    return "Not ready", _shape(ready), _CONDITIONS
