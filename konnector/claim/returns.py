"""Detects fields that the provider removes as often as the konnector sends them.

Otherwise both sides would write for ever. A field that was sent that often within an hour, with the
same value, stays as the provider has it until the claim gets another value. A new process begins to
count at zero.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from reconciler.core.decision import Note
from reconciler.core.manifest import Manifest, digest
from reconciler.core.refs import ObjectKey

_MOST: Final = 3
_WINDOW: Final = timedelta(hours=1)
LEFT_OUT: Final = Note(
    "FieldsLeftOut",
    "Fields that the export leaves out (its ProviderInSync names them) are the provider's: the copy"
    " keeps them as they are, and this claim does not show them",
)


class Returns:
    """The fields that copies lacked, by the places of their claims.

    `content` returns what of a claim goes up: a field is a key of that.
    """

    def __init__(self, content: Callable[[Manifest], Manifest]) -> None:
        self._content = content
        # Of each field: the digest of its value, and when that was brought.
        self._brought: dict[ObjectKey, dict[str, tuple[str, tuple[datetime, ...]]]] = {}

    def left(self, place: ObjectKey, claim: Manifest | None) -> frozenset[str]:
        """Return the fields of a claim that are the provider's; forget a claim that is gone."""
        if place not in self._brought:
            return frozenset()
        known = self._brought[place] if claim is not None else self._brought.pop(place)
        said = self._content(claim or {})
        return frozenset(
            key
            for key, (value, times) in known.items()
            if len(times) >= _MOST and key in said and digest(said[key]) == value
        )

    def note(self, place: ObjectKey, claim: Manifest, copy: Manifest, now: datetime) -> None:
        """Take in that all that a claim says was brought to a copy, which was like this before."""
        said = self._content(claim)
        for key in said.keys() - copy.keys() - self.left(place, claim):
            known, value = self._brought.setdefault(place, {}), digest(said[key])
            before, times = known.get(key, ("", ()))
            recent = [one for one in times if value == before and now - one < _WINDOW]
            known[key] = (value, (*recent, now))


def left_to_provider(key: str) -> Note:
    """Return what a claim says of a field that is left."""
    message = (
        f"The provider takes {key} away each time: it is the provider's until this claim says"
        " something else there"
    )
    return Note("FieldLeft", message, "Warning")
