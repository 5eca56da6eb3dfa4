"""No object of an app cluster reaches the control plane unless a claim lets it up (safety.md 0).

What may go where is said here once more, from mapping.md 0 and from raw claims, so that a mistake
in the konnector's reading of claims is not a mistake here too.

Hypothesis draws seeds; a seed makes many worlds, since a world is too cheap to be drawn in parts.
In the usual profile a law looks at 50 x WORLDS = 5,000 worlds.
"""

import dataclasses
import json
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from konnector.claim.orphans import Terms
from konnector.permission_claim.decide import decide, needs_content
from konnector.permission_claim.rules import rules_of
from konnector.permission_claim.ways import Seen
from reconciler.core.decision import NOTHING, Create, Delete, Patch
from reconciler.core.manifest import get_map
from reconciler.core.refs import SECRET, ObjectKey
from tests.kit.json_patch import merged
from tests.support.space_objects import NOW

WORLDS = 100
SEEDS = st.integers(min_value=0, max_value=2**64)

CANARY, PROVIDERS = "Y2FuYXJ5", "cHJvdmlkZXI="
OWNER = "klutch.anynines.com/resource-owner"
APP, PLANE = "app-cluster", "control-plane"
NAMES, SPACES = ("creds", "backup-key"), ("team-a", "team-b")
TOKEN = "kubernetes.io/service-account-token"
NOTE = "servicebinding.io/note"  # which travels
KEPT = (TOKEN, "bootstrap.kubernetes.io/token", "helm.sh/release.v1")
TYPES = (*["Opaque"] * 8, "kubernetes.io/tls", *KEPT)
LABELS: Any = ({}, {"color": "blue"}, {"color": "red"}, {"color": "blue", "size": "big"})
OWNERS = ("", "", "", "Provider", "Provider", "Consumer", "Consumer", "Somebody")

ABSENT = object()
# What a field selector means, by its text.
FIELDS = {
    "metadata.name=creds": lambda name, space, kind: name == "creds",
    "metadata.name!=creds": lambda name, space, kind: name != "creds",
    "metadata.namespace=team-a": lambda name, space, kind: space == "team-a",
    "type=Opaque": lambda name, space, kind: kind == "Opaque",
    "type!=Opaque,metadata.name=creds": lambda name, space, kind: (
        kind != "Opaque" and name == "creds"
    ),
}
LISTED = (*[ABSENT] * 6, None, *[["*"]] * 4)
SELECTOR = {
    "names": (*LISTED, [], ["creds"], ["backup-key"], ["*", "creds"]),
    "namespaces": (*LISTED, [], ["team-a"], ["team-b"], ["team-a", "team-b"]),
    "owner": (ABSENT, "Provider", "Provider", "Consumer", "Consumer"),
    "labelSelectors": (*[ABSENT] * 9, [], [{}], [{"color": "blue"}],
                       [{"color": "red"}, {"color": "blue", "size": "big"}]),
    "fieldSelectors": (*[ABSENT] * 9, [], *([text] for text in FIELDS),
                       ["type=Opaque", "metadata.name=creds"]),
}  # fmt: skip
CLAIM = {
    "state": ("Accepted", "Accepted", "Accepted", "Rejected"),
    "resource": (*["secrets"] * 6, "configmaps"),
    "group": (ABSENT, ABSENT, ABSENT, "", "", "shop.example"),
    "create": (ABSENT, ABSENT, {"replaceExisting": True}),
    "onConflict": (ABSENT, {"recreateWhenConsumerSideDeleted": False}),
}
# What no API server would store; nothing of it may ever widen a claim.
BROKEN: Any = ("creds", "*", 1, True, {}, {"*": "*"}, [1], [None], [["creds"]], ["creds", 1])
SUB_FIELDS = (
    {"autoAdopt": True},
    {"autoDonate": True},
    {"read": {"labels": [{"pattern": "color"}]}},
    {"update": {"fields": ["data.a"]}},
)


def picked(random, choices):
    drawn = {key: random.choice(values) for key, values in choices.items()}
    return {key: value for key, value in drawn.items() if value is not ABSENT}


def claim(random, *, hostile):
    selector = picked(random, SELECTOR)
    if hostile and random.random() < 0.3:
        selector[random.choice(list(SELECTOR))] = random.choice(BROKEN)
    made = {"version": "v1", **picked(random, CLAIM), "selector": selector}
    if hostile and random.random() < 0.1:
        made[random.choice(["selector", "state", "resource", "group"])] = random.choice(BROKEN)
    if hostile and random.random() < 0.1:
        made |= random.choice(SUB_FIELDS)
    return made


def secret(random, name, namespace, data) -> Any:
    """Return a live Secret; `data` is in its labels and annotations too."""
    owner = random.choice(OWNERS)
    annotations = {NOTE: data, **({OWNER: owner} if owner else {})}
    labels = {**random.choice(LABELS), **random.choice(({}, {"mark": data.rstrip("=")}))}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{random.random()}",
                "resourceVersion": "1", "annotations": annotations, "labels": labels}  # fmt: skip
    if random.random() < 0.25:
        metadata["finalizers"] = ["somebody.example/x"]
        if random.random() < 0.4:
            metadata["deletionTimestamp"] = "2026-06-01T12:00:00Z"
    immutable = {"immutable": True} if random.random() < 0.2 else {}
    values = {key: data for key in ("a", "b", "c") if random.random() < 0.6}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata,
            "type": random.choice(TYPES), "data": values, **immutable}  # fmt: skip


class World:
    """Claims of two bindings, and one name on both sides."""

    def __init__(self, random, *, hostile):
        self.name, self.space = random.choice(NAMES), random.choice(SPACES)
        self.claims = [claim(random, hostile=hostile) for _ in range(random.choice((1, 1, 2, 3)))]
        cut = random.randrange(len(self.claims) + 1)
        bindings: list[Any] = [
            {"metadata": {"name": name}, "spec": {"permissionClaims": claims}}
            for name, claims in (("one", self.claims[:cut]), ("two", self.claims[cut:]))
        ]
        here, there = ObjectKey(self.space, self.name), ObjectKey(f"a1-{self.space}", self.name)
        self.places = {APP: here, PLANE: there}
        sides = {APP: (here, CANARY), PLANE: (there, PROVIDERS)}
        self.rules = [
            rule
            for binding in bindings
            for rule in rules_of(binding).rules
            if (rule.group, rule.resource) == ("", "secrets")
        ]
        self.living = set(random.choice((("one", "two"), ("one", "two"), ("one",), ())))
        self.reserved = random.random() < 0.1
        self.is_kubeconfig = random.random() < 0.1
        self.asking = [
            *(self.claims[:cut] if "one" in self.living else ()),
            *(self.claims[cut:] if "two" in self.living else ()),
        ]
        self.live = {
            cluster: secret(random, place.name, place.namespace, data)
            if random.random() < 0.7
            else None
            for cluster, (place, data) in sides.items()
        }

    def seen(self, *, partial=False):
        consumer = self.live[APP]
        if partial and consumer is not None:
            consumer = {"metadata": consumer["metadata"]}
        return Seen(
            SECRET, self.rules, self.places[APP], self.places[PLANE], Terms("secrets"), NOW,
            consumer, self.live[PLANE], consumer_partial=partial, space_uid="s", living=self.living,
            reserved=self.reserved, is_kubeconfig=self.is_kubeconfig,
        )  # fmt: skip

    def decided(self):
        """Decide as a controller does: from metadata alone, as long as that is enough."""
        partial = self.seen(partial=True)
        whole = decide(self.seen())
        if needs_content(partial):
            assert decide(partial) is NOTHING
        else:
            assert decide(partial) == whole
        return whole

    def __repr__(self):
        return json.dumps([self.name, self.space, self.claims, self.live], indent=1)


def worlds(seed, *, hostile):
    random = Random(seed)
    return (World(random, hostile=hostile) for _ in range(WORLDS))


def steps_of(decision):
    return [step for task in decision.tasks for step in task.steps]


def text_of(step):
    """Return all that a step would send; its repr hides what may be secret."""
    return str(dataclasses.asdict(step))


def cluster_of(step):
    return step.cluster if isinstance(step, Create) else step.ref.cluster


# mapping.md 0, once more


def owner_of(live):
    return live["metadata"]["annotations"].get(OWNER, "")


def selected(claim, world, live):
    """Return whether a claim, if it is accepted and can be read, selects an object."""
    selector = claim.get("selector")
    if not isinstance(selector, dict) or claim.get("state") != "Accepted":
        return False
    if claim.get("resource") != "secrets" or claim.get("group", "") != "":
        return False
    names, spaces = selector.get("names"), selector.get("namespaces")
    if names not in (None, []) and not {"*", world.name} & of_texts(names):
        return False
    if spaces is not None and not {"*", world.space} & of_texts(spaces):
        return False
    labels = live["metadata"]["labels"].items()
    wanted = selector.get("labelSelectors") or [{}]
    if not isinstance(wanted, list) or not any(
        isinstance(one, dict) and one.items() <= labels for one in wanted
    ):
        return False
    fields = selector.get("fieldSelectors") or []
    return isinstance(fields, list) and all(
        isinstance(text, str) and text in FIELDS and holds(text, world, live) for text in fields
    )


def holds(text, world, live):
    return FIELDS[text](world.name, world.space, live["type"])


def of_texts(value):
    return {item for item in value if isinstance(item, str)} if isinstance(value, list) else set()


def let_up(claim, world, live):
    """owner Consumer: up. Unset: up what is annotated so or named literally, if a service is used.

    Tokens, kubeconfigs, and from a namespace of the cluster itself: if named.
    """
    owner = owner_of(live)
    if not world.living or not selected(claim, world, live) or owner not in ("", "Consumer"):
        return False
    selector = claim["selector"]
    if world.reserved and world.space not in of_texts(selector.get("namespaces")):
        return False
    literal = world.name in of_texts(selector.get("names"))
    if (live["type"] in KEPT or world.is_kubeconfig) and not literal:
        return False
    asked = selector.get("owner")
    return asked == "Consumer" or (asked is None and (literal or owner == "Consumer"))


def let_down(claim, world, live):
    """owner Provider, or unset: down what is not the consumer's, if it is asked for.

    Tokens, and into a namespace of the cluster itself: if named.
    """
    if claim not in world.asking or not selected(claim, world, live):
        return False
    selector = claim["selector"]
    if world.reserved and world.space not in of_texts(selector.get("namespaces")):
        return False
    if live["type"] in KEPT and world.name not in of_texts(selector.get("names")):
        return False
    return selector.get("owner") in (None, "Provider")


# Canaries


@given(SEEDS)
def test_a_canary_crosses_only_where_a_claim_lets_it(seed):
    ways = ((APP, PLANE, CANARY, let_up), (PLANE, APP, PROVIDERS, let_down))
    for world in worlds(seed, hostile=True):
        steps = steps_of(world.decided())
        for source, target, canary, let in ways:
            live = world.live[source]
            allowed = live is not None and any(let(one, world, live) for one in world.claims)
            crossing = [one for one in steps if cluster_of(one) == target]
            carried = [one for one in crossing if canary in text_of(one) or isinstance(one, Create)]
            assert allowed or not carried, world


def test_canaries_do_go_up_where_they_may():
    """Else the law above would hold for a konnector that does nothing."""
    random = Random(7)
    ups = sum(
        any(
            cluster_of(one) == PLANE and CANARY in text_of(one) for one in steps_of(world.decided())
        )
        for world in (World(random, hostile=True) for _ in range(3000))
    )
    assert ups > 40


@given(SEEDS)
def test_only_copies_are_ever_deleted(seed):
    """Of both sides, what is deleted is annotated as the other side's, or is made anew."""
    others = {APP: "Provider", PLANE: "Consumer"}
    for world in worlds(seed, hostile=True):
        steps = steps_of(world.decided())
        for at, step in enumerate(steps):
            if not isinstance(step, Delete):
                continue
            live = world.live[step.ref.cluster]
            anew = any(isinstance(one, Create) for one in steps[at:])
            assert anew or owner_of(live) == others[step.ref.cluster], world
            assert (step.uid, step.resource_version) == (live["metadata"]["uid"], "1"), world


# Convergence


class Refused(Exception):
    """An API server said no."""


class Servers:
    """Two API servers with at most one Secret each, those of a world."""

    def __init__(self, world):
        self.world: Any = world
        self.made = 0

    def carry_out(self, decision):
        for task in decision.tasks:
            try:
                for step in task.steps:
                    self._do(step, self.world.live)
            except Refused:
                continue

    def _do(self, step, live):
        self.made += 1
        stamp = {"resourceVersion": f"v{self.made}"}
        match step:
            case Create(_, manifest, cluster):
                if live[cluster] is not None:
                    raise Refused
                fresh: Any = {**stamp, "uid": f"made-{self.made}", "labels": {}, "annotations": {}}
                metadata = {**fresh, **get_map(manifest, "metadata")}
                live[cluster] = {**manifest, "metadata": metadata}
            case Patch(ref, body):
                held = live[ref.cluster]
                after = merged(held, body)
                for field in ("uid", "resourceVersion"):
                    assert held["metadata"][field] == after["metadata"][field], self.world
                content = [{**one, "metadata": None} for one in (held, after)]
                assert held["type"] == after["type"], self.world
                assert not held.get("immutable") or content[0] == content[1], self.world
                after["metadata"] = {"labels": {}, **after["metadata"], **stamp}
                live[ref.cluster] = after
            case Delete(ref):
                held = live[ref.cluster]
                ending = {**stamp, "deletionTimestamp": "2026-06-01T12:00:00Z"}
                kept = held["metadata"].get("finalizers")
                changed = {**held, "metadata": {**held["metadata"], **ending}}
                live[ref.cluster] = changed if kept else None

    def let_go(self):
        """Whoever holds deleted objects is done with them; return whether there were any."""
        gone = [cluster for cluster, live in self.world.live.items() if live and not is_live(live)]
        self.world.live |= dict.fromkeys(gone)
        return bool(gone)


def held(live):
    notes = live["metadata"]["annotations"].items()
    said = {key: value for key, value in notes if not key.startswith("klutchctl.dev/origin-")}
    return (live["type"], live["data"], live.get("immutable"), said)


@given(SEEDS)
def test_both_sides_come_to_rest_in_four_rounds_with_what_is_owed(seed):
    for world in worlds(seed, hostile=False):
        origin, consumer = world.live[PLANE], world.live[APP]
        down, up = owed_down(world, origin, consumer), owed_up(world, origin, consumer)
        servers = Servers(world)
        for _ in range(4):
            decision = world.decided()
            servers.carry_out(decision)
            if not servers.let_go() and not decision.tasks:
                break
        assert world.decided().tasks == (), world
        if down or up:
            assert world.live[APP] is not None, world
            assert world.live[PLANE] is not None, world
            assert held(world.live[APP]) == held(world.live[PLANE]), world
            source = origin if down else consumer
            assert world.live[APP]["data"] == source["data"], world
            assert owner_of(world.live[APP]) == ("Provider" if down else "Consumer"), world


def is_live(one):
    return one is not None and "deletionTimestamp" not in one["metadata"]


def owed_down(world, origin, consumer):
    if not is_live(origin) or not any(let_down(one, world, origin) for one in world.claims):
        return False
    is_free = consumer is None or owner_of(consumer) == "Provider"
    return owner_of(origin) in ("", "Provider") and is_free


def owed_up(world, origin, consumer):
    if not is_live(consumer) or not any(let_up(one, world, consumer) for one in world.claims):
        return False
    return origin is None or owner_of(origin) == "Consumer"
