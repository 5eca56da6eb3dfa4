"""Small fleets and what is live of them, for tests of what a plan must not do."""

from typing import Any

from reconciler import api
from reconciler.core import keys, manifest, names
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import Kind
from reconciler.fleet.values import Fleet
from reconciler.planning.changes import Action, Change, Plan
from reconciler.planning.prune_units import PRUNING
from tests.support import fleet_texts
from tests.support.worlds import ADDRESS, POSTGRES, World, fleet_of, offering

SEARCH = "searches.anynines.com"
GONE = "2026-11-21T00:00:00Z"
PLANE = "control-plane/eu"
DIRECT, ACB = MODES = ("Direct", "AppClusterBinding")
WRITING = {Action.CREATE, Action.UPDATE, Action.ADOPT, *PRUNING}
HELD = {Action.BLOCKED, Action.UNKNOWN, Action.NOOP}


def fleet_head(prune: str = "allowEmpty: true", name: str = "acme") -> str:
    budget = f"prune: {{maxDeletes: 100, maxDeletePercent: 100, {prune}}}"
    return fleet_texts.document("Fleet", name, f"{{policies: {{default: Allow}}, {budget}}}")


def plane(name: str = "eu", mode: str = DIRECT) -> str:
    return "---\n" + fleet_texts.control_plane(name, more=f", mode: {mode}")


def cluster(name: str = "shop", at: str = "eu", more: str = "") -> str:
    return "---\n" + fleet_texts.cluster(name, plane=at, more=more)


def binding(
    plural: str = "postgresqlinstances", clusters: str = "shop", more: str = "", name: str = ""
) -> str:
    group = "anynines.com"
    return "---\n" + fleet_texts.binding(
        name or plural, group=group, plural=plural, clusters=clusters, more=more
    )


def fleet(*documents: str, **head: str) -> Fleet:
    """Return a fleet with budgets that never trip; `head` as in `fleet_head`."""
    return fleet_of(fleet=fleet_head(**head) + "".join(documents))


def shop(*bindings: str, mode: str = DIRECT, more: str = "", **head: str) -> Fleet:
    """Return a fleet of one cluster, with one Binding where none is given."""
    made = bindings or (binding(),)
    return fleet(plane(mode=mode), cluster(more=more), *made, **head)


def applied(*bindings: str, mode: str = DIRECT, claims: list[Any] | None = None) -> World:
    """Return a world in which a fleet of one cluster was applied, and these claims are offered."""
    here = World(control_plane=offering(POSTGRES, SEARCH, claims=claims), clusters={"shop": []})
    here.apply(here.plan(shop(*bindings, mode=mode)))
    return here


def change(here: World, where: str, kind: Kind, name: str, value: JSON, *path: str) -> None:
    """Put a value into a live object; None takes the field away."""
    live = here.remove(where, kind, name)
    made = manifest.drop(live, *path) if value is None else manifest.put(live, value, *path)
    here.objects(where).append(made)


def space_of(here: World) -> str:
    (found,) = [
        manifest.name_of(one)
        for one in here.control_plane
        if one["kind"] == "Namespace" and manifest.get_text(one, "metadata", "labels", keys.CLUSTER)
    ]
    return found


def actions(plan: Plan, cluster: str = "") -> set[Action]:
    return {one.action for one in plan.changes if cluster in ("", one.cluster)}


def acting(plan: Plan) -> list[Change]:
    return [one for one in plan.changes if one.acts]


def guards(plan: Plan) -> list[str]:
    return [one.guard for one in plan.held]


def of_unit(plan: Plan) -> set[Action]:
    return {one.action for one in plan.changes if one.unit is not None}


def consumer_secret(here: World) -> str:
    (found,) = [manifest.name_of(one) for one in here.clusters["shop"] if one["kind"] == "Secret"]
    return found


def secret_leading_to(
    space: str, issuer: str, name: str, labels: dict[str, str] | None = None
) -> Manifest:
    facts = api.KubeconfigFacts(
        ADDRESS.server, api.ca_digest(ADDRESS.ca), "", space, api.token_digest(f"token of {issuer}")
    )
    metadata: Manifest = {"name": name, "namespace": names.KLUTCH_NAMESPACE, "labels": labels or {}}
    data = {names.KUBECONFIG: api.kubeconfig_value(facts)}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def foreign_binding(
    name: str = POSTGRES, secret: str = "theirs", labels: dict[str, str] | None = None
) -> Manifest:
    kind = api.API_SERVICE_BINDING
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "namespace": names.KLUTCH_NAMESPACE,
            "uid": "foreign",
            "labels": labels or {},
        },
        "spec": {
            "kubeconfigSecretRef": {
                "namespace": names.KLUTCH_NAMESPACE,
                "name": secret,
                "key": names.KUBECONFIG,
            },
            "permissionClaims": [],
        },
    }
