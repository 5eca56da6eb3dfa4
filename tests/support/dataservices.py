"""Objects of dataservices.anynines.com, and what came of decisions about them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from bind.osb.dataservices import managed as kinds
from bind.osb.dataservices.store import Kept, Store, Turn
from reconciler.blueprints.offering.catalogue import Catalogue, Offering, Plan
from reconciler.blueprints.offering.messages import Call
from reconciler.blueprints.offering.outcomes import Outcome
from reconciler.core import keys
from reconciler.core.decision import Decision, Patch
from reconciler.core.manifest import Manifest, get_map, get_maps, get_text
from tests.kit.json_patch import merged

UID = "0b5b2a53-1e8f-4c3b-9a53-6b8f0f2f7a01"
NOW = datetime(2026, 11, 25, 12, 0, 0, tzinfo=UTC)
CLAIM = {keys.CLAIM_NAME: "orders", keys.CLAIM_NAMESPACE: "shop"}
URL = "https://broker.example"
CONFIG: Manifest = {
    "apiVersion": kinds.PROVIDER_CONFIG.api_version,
    "kind": "ProviderConfig",
    "metadata": {"name": "default", "uid": "config-uid", "resourceVersion": "1"},
    "spec": {"url": URL, "providerCredentials": {"source": "None"}},
}
USAGE: Manifest = {"metadata": {"name": UID}, "providerConfigRef": {"name": "default"}}
SMALL = Plan("plan-small", "small", plan_updateable=True, bindable=True, binding_rotatable=True)
BIG = Plan("plan-big", "big", plan_updateable=True, bindable=True)
CATALOGUE = Catalogue(
    (
        Offering(
            "service-1", "a9s-postgresql15-ms-1687", plans=(SMALL, BIG),
            instances_retrievable=True, bindings_retrievable=True,
        ),
        Offering("service-2", "a9s-search2", plans=(Plan("plan-3", "small"),)),
    ),
    "digest",
)  # fmt: skip


def sorts(call: object) -> tuple[object, ...]:
    """Return the parts of a call that depend on the state alone."""
    names = ("operation", "instance", "binding")
    return type(call), *(getattr(call, one, None) for one in names)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def managed(kind: Any, text: str, **metadata: Any) -> Any:
    """Return a managed resource with this `spec` and `status`, as YAML."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": "orders-x7k2p",
            "uid": UID,
            "resourceVersion": "7",
            "generation": 1,
            "labels": CLAIM,
            "finalizers": [keys.MANAGED_RESOURCE],
            "annotations": {keys.EXTERNAL_NAME: "orders-x7k2p"},
            **metadata,
        },
        **yaml.safe_load(text),
    }


def after(live: Manifest, decision: Decision) -> Any:
    """Return an object as a decision about it makes it, without what the API server adds."""
    body: dict[str, Any] = dict(live)
    for step in decision.steps:
        if isinstance(step, Patch) and step.ref.name == get_text(live, "metadata", "name"):
            body = merged(body, step.body)
    return merged(body, {"status": decision.fields})


def conditions(live: Manifest) -> dict[str, str]:
    held = get_maps(live, "status", "conditions")
    return {get_text(one, "type"): get_text(one, "reason") for one in held}


def message(live: Manifest, kind: str = "Synced") -> str:
    """Return what a condition says to people."""
    held = get_maps(live, "status", "conditions")
    return next((get_text(one, "message") for one in held if one["type"] == kind), "")


def at_provider(live: Manifest) -> Any:
    """Return what an object says about what stands behind it."""
    return get_map(live, "status", "atProvider")


def annotation(live: Manifest, key: str) -> str:
    """Return an annotation, "" without."""
    return get_text(live, "metadata", "annotations", key)


class Process:
    """A process that remembers what it did about one object. `seen` returns what it looks at."""

    def __init__(self, store: Store[Any], seen: Callable[..., Any], live: Any, **more: Any) -> None:
        self.store, self.seen, self.live, self.more = store, seen, live, more
        self.now, self.kept, self.decision = NOW, Kept(), Decision()

    def look(self, **more: Any) -> Any:
        return self.seen(self.live, **(self.more | {"now": self.now} | more))

    def call(self, **more: Any) -> Any:
        """Return the call that is next, None where nothing is asked; writes come before."""
        for _ in range(10):
            turn = self.store.turn(self.look(**more), self.kept)
            self.ask = turn.ask
            self._done(turn)
            if turn.ask is not None:
                return turn.ask.call
            if self.decision.again:
                break
        return None

    def answer(self, outcome: Outcome, call: Call | None = None, **more: Any) -> Any:
        """Have the next call answered; return the call that follows at once, None without."""
        asked = self.call(**more)
        assert call is None or asked == call, asked
        assert self.ask is not None
        self._done(self.store.answered(self.look(**more), self.kept, self.ask, outcome))
        said = self.decision
        follows = said.again == timedelta() and not (said.tasks or said.fields)
        return self.call(**more) if follows else None

    def waits(self) -> None:
        """Let the time go by until the next look."""
        assert self.decision.again is not None
        self.now += self.decision.again

    def _done(self, turn: Turn) -> None:
        self.kept, self.decision = turn.kept, turn.decision
        self.live = after(self.live, turn.decision)
