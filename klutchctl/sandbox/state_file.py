"""The format of the file that says which clusters a sandbox has. Pure."""

import json
from dataclasses import asdict, dataclass
from typing import Final

from pydantic import TypeAdapter, ValidationError

from klutchctl.sandbox.state import State
from reconciler.core.errors import HostError

# With what runs beside the clusters it is another one: a klutchctl that does not know that would
# leave it running.
_VERSION: Final = 1
_VERSION_WITH: Final = {"services": 2, "keycloak": 3, "monitoring": 4, "agents": 5, "nodes": 6}
_NEWEST: Final = max(_VERSION_WITH.values())


@dataclass(frozen=True, slots=True)
class _Head:
    version: int


_HEAD: Final = TypeAdapter(_Head)
_STATE: Final = TypeAdapter(State)


def dump(state: State) -> bytes:
    """Return the bytes of the state file."""
    content = asdict(state)
    version = _VERSION
    for name, needed in _VERSION_WITH.items():
        if content[name] is None:
            del content[name]
        else:
            version = needed
    return json.dumps({"version": version, **content}, indent=2).encode() + b"\n"


def parse(content: bytes, *, source: str, removal: str) -> State:
    """Return the state in `content`.

    Raises HostError for anything else, naming `source` and telling of its `removal`.
    """
    try:
        version = _HEAD.validate_json(content).version
        if _VERSION <= version <= _NEWEST:
            return _STATE.validate_json(content, strict=True)  # JSON's true is no port
    except ValidationError as error:
        raise HostError(f"{source} is not a sandbox's state", hint=removal) from error
    raise HostError(
        f"{source} has the format {version!r}, this klutchctl knows {_VERSION} to {_NEWEST}",
        hint="Use the klutchctl that made it, or another --name",
    )
