"""What a ServiceInstance says about itself, and what its broker says about names."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bind.osb.dataservices import rules
from bind.osb.decisions.record import identifier
from reconciler.blueprints.offering.catalogue import Plan
from reconciler.core import keys, manifest
from reconciler.core.manifest import Manifest

# Words of the original, in `state`.
PROVISIONED: Final = ("provisioned", "available")
UNDER_WAY: Final = ("created", "deploying")


@dataclass(frozen=True, slots=True)
class Seen(rules.OfBroker):
    """One ServiceInstance. `bound` names the ServiceBindings that hold credentials of it."""

    bound: Sequence[str] = ()

    @property
    def state(self) -> str:
        """Its state, in words of the original."""
        return manifest.get_text(self.at_provider, "state")

    @property
    def id(self) -> str:
        """The id at the broker: what stands there, else its uid."""
        return manifest.get_text(self.at_provider, "instanceId") or self.uid

    @property
    def pending(self) -> str | None:
        """The key of the operation that goes on, None where none does."""
        return pending_of(self.live)

    @property
    def number(self) -> int:
        """Which one it is of those that were made for this object."""
        numbers = range(1, 100)
        return next((one for one in numbers if identifier(self.uid, one) == self.id), 0)

    @property
    def next_id(self) -> str:
        """The id of what would be made after it."""
        return identifier(self.uid, self.number + 1)

    @property
    def service_id(self) -> str:
        """The id of its service, "" where it was never asked for."""
        return manifest.get_text(self.at_provider, "serviceId")

    @property
    def plan_id(self) -> str:
        """The id of its plan."""
        return manifest.get_text(self.at_provider, "planId")

    @property
    def plan(self) -> Plan | None:
        """Its plan, None where the catalogue does not have it."""
        offering = None if self.catalogue is None else self.catalogue.offering(self.service_id)
        return None if offering is None else offering.plan(self.plan_id)

    @property
    def sent(self) -> rules.Sent | None:
        """What was asked for last, None where its status says it."""
        return rules.sent(self)

    @property
    def asks_again(self) -> bool:
        """Whether the user asks for another try that was not made yet."""
        last = self.sent
        return self.retry != ("" if last is None else last.retry)

    @property
    def was_there(self) -> bool:
        """Whether it was ever provisioned, and so may hold data."""
        return bool(manifest.get_text(self.at_provider, "provisionedAt"))

    @property
    def retry(self) -> str:
        """The text by which a user asks for another try."""
        return self.annotations.get(keys.OSB_RETRY, "")


def pending_of(live: Manifest) -> str | None:
    """Return the key of the operation of a ServiceInstance, None where none goes on."""
    held = manifest.get(live, "status", "pendingOperation")
    return held if isinstance(held, str) else None


def is_ready(live: Manifest) -> bool:
    """Tell whether an instance is there, and nothing goes on with it."""
    state = manifest.get_text(live, "status", "atProvider", "state")
    return state in PROVISIONED and pending_of(live) is None and not manifest.is_deleting(live)
