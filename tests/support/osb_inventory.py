"""What a scripted broker holds: instances, bindings, and the operations on them."""

import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.support.osb_wire import Members, Verb

Place = tuple[str, str]  # the ids of an instance and a binding, "" of the instance itself


@dataclass(slots=True)
class Operation:
    """Work that goes on after a 202."""

    verb: Verb
    body: Members
    key: str  # "" where none was given
    since: float
    polls: int  # how many answers say "in progress" yet
    takes: float
    fails: bool
    state: str = "in progress"
    dashboard: str = ""


@dataclass(slots=True)
class Inventory:
    """Instances and bindings by their ids, each as its request said, with a `state`.

    `state` is creating, present, updating, deleting or failed. Each change is made in a new
    mapping, so that other threads may look at any time. `doubles` are claims that had two alive.
    """

    instances: dict[str, Members] = field(default_factory=dict)
    bindings: dict[str, Members] = field(default_factory=dict)
    doubles: list[str] = field(default_factory=list)

    def put(self, place: Place, members: Members) -> None:
        """Add or replace an instance or a binding."""
        instance, binding = place
        if binding:
            self.bindings = {**self.bindings, binding: members}
            return
        self.instances = {**self.instances, instance: members}
        for claim, count in Counter(map(claim_of, self.instances.values())).items():
            if count > 1 and claim == claim_of(members):
                self.doubles = [*self.doubles, f"{count} instances of {claim}"]

    def get(self, place: Place) -> Members | None:
        """Return an instance or a binding."""
        instance, binding = place
        return self.bindings.get(binding) if binding else self.instances.get(instance)

    def change(self, place: Place, **members: Any) -> None:
        if (known := self.get(place)) is not None:
            instance, binding = place
            changed = {**known, **members}
            if binding:
                self.bindings = {**self.bindings, binding: changed}
            else:
                self.instances = {**self.instances, instance: changed}

    def lose(self, place: Place) -> None:
        """Forget an instance or a binding; an instance takes its bindings with it."""
        instance, binding = place
        if binding:
            self.bindings = _without(self.bindings, binding)
            return
        self.instances = _without(self.instances, instance)
        left = self.bindings.items()
        self.bindings = {key: one for key, one in left if one["instance_id"] != instance}

    @property
    def is_empty(self) -> bool:
        return not self.instances and not self.bindings


def _without(members: Mapping[str, Members], key: str) -> dict[str, Members]:
    return {name: one for name, one in members.items() if name != key}


def claim_of(instance: Mapping[str, Any]) -> str:
    """Return the claim that an instance was made for, by its context."""
    context = instance.get("context", {})
    names = ("clusterid", "namespace", "instance_name")
    return "/".join([*(str(context.get(name, "")) for name in names), instance["service_id"]])


@dataclass(slots=True)
class Modes:
    """How a broker works, all within the specification but for what a comment calls a lie."""

    asynchronous: frozenset[Verb] = frozenset()
    polls: int = 1  # answers that say "in progress", of each operation
    takes: float = 0.0  # seconds that each operation takes at least
    gives_operation: bool = True
    retry_after: int | None = None
    # How a PUT of what is there is answered; 0 as specified: 200, while in progress 202, 409 where
    # it differs. Anything else is said of any PUT of what is there.
    repeated: int = 0
    repeats_credentials: bool = True
    unknown_delete: int = 410  # and 200, 404
    gone_poll: int = 410  # last_operation after a delete: also 200, 404
    unknown_poll: int = 404
    aborts: bool = True  # deletes what is being made; else ConcurrencyError
    failing: Counter[Verb] = field(default_factory=Counter)  # how many operations fail
    instance_usable: bool | None = None
    update_repeatable: bool | None = None
    same_credentials: bool = False  # in a rotation: a lie
    gives_credentials: bool = True  # False: a lie
    life: timedelta | None = None  # of a binding, until expires_at
    renew_before: timedelta | None = None  # so long before expires_at
    endpoints: tuple[Members, ...] = ()
    shows_parameters: bool = True  # of an instance that is fetched
    binding_extras: Members = field(default_factory=dict)  # such as volume_mounts


def credentials(instance: str, binding: str) -> Members:
    user, password = f"user-{binding[:8]}-{secrets.token_hex(4)}", secrets.token_urlsafe(18)
    return {
        "username": user,
        "password": password,
        "host": f"{instance[:8]}.database.example",
        "port": 5432,
        "uri": f"postgresql://{user}:{password}@{instance[:8]}.database.example:5432/data",
    }


def dashboard(instance: str) -> str:
    return f"https://dashboard.example/{instance}"
