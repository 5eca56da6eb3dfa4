"""What happens to each of several units, in one annotation: `plural.group=Policy,...`, sorted."""

from collections.abc import Mapping

from reconciler.fleet.values import DeletionPolicy


def parse(text: str) -> Mapping[str, DeletionPolicy]:
    """Return the policies by the names of the units. What is no policy is Release."""
    pairs = (entry.partition("=") for entry in text.split(",") if entry)
    return {
        name: DeletionPolicy(policy) if policy in set(DeletionPolicy) else DeletionPolicy.RELEASE
        for name, _, policy in pairs
    }


def told(units: Mapping[str, DeletionPolicy]) -> str:
    """Return the text that `parse` reads, "" for no units."""
    return ",".join(f"{name}={units[name].value}" for name in sorted(units))
