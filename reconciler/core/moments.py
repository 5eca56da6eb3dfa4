"""Times in objects that others wrote: what cannot be read as one is no time."""

from datetime import datetime

from reconciler.core.durations import parse_time
from reconciler.core.manifest import Manifest, get_text


def moment(text: str) -> datetime | None:
    """Return an RFC 3339 time, or None."""
    try:
        return parse_time(text)
    except ValueError:
        return None


def created(manifest: Manifest) -> datetime | None:
    """Return when an API server took the object in, by whole seconds; None where it did not."""
    return moment(get_text(manifest, "metadata", "creationTimestamp"))
