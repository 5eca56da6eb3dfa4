"""What brings one JSON object to say what another says, as a merge patch (RFC 7386). Pure."""

from reconciler.core.manifest import JSON, Manifest


def difference(held: Manifest, wanted: Manifest) -> dict[str, JSON]:
    """Return the merge patch (RFC 7386) that makes `held` say what `wanted` says, {} if it does.

    A null says what absence says: a merge patch cannot tell them apart.
    """
    patch: dict[str, JSON] = {}
    for key, value in wanted.items():
        found = held.get(key)
        if type(value) is str:  # nearly all, as in a Secret's data
            if found != value:
                patch[key] = value
        elif isinstance(value, dict) and isinstance(found, dict):
            if inner := difference(found, value):
                patch[key] = inner
        elif value is not None and not _is_same(found, value):
            patch[key] = _without_nulls(value)
    for key, value in held.items():
        if value is not None and wanted.get(key) is None:
            patch[key] = None
    return patch


def _is_same(held: JSON, wanted: JSON) -> bool:
    if isinstance(wanted, dict):
        return isinstance(held, dict) and not difference(held, wanted)
    if isinstance(wanted, list):
        if not isinstance(held, list) or len(held) != len(wanted):
            return False
        return all(map(_is_same, held, wanted))
    # A bool is an int to Python, and not to JSON.
    return held == wanted and isinstance(held, bool) == isinstance(wanted, bool)


def _without_nulls(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
