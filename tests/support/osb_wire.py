"""Requests and replies of the Open Service Broker API, as values without sockets."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote

Verb: TypeAlias = Literal[
    "catalogue",
    "provision",
    "update",
    "deprovision",
    "poll",
    "fetch",
    "bind",
    "unbind",
    "poll-binding",
    "fetch-binding",
]
Way: TypeAlias = Literal["answer", "hang", "cut", "endless"]
Members: TypeAlias = dict[str, Any]

MUTATING: Final[frozenset[Verb]] = frozenset(
    ("provision", "update", "deprovision", "bind", "unbind")
)
_PATH: Final = re.compile(
    r"/v2/service_instances/(?P<instance>[^/]+)"
    r"(?:/service_bindings/(?P<binding>[^/]+))?(?P<poll>/last_operation)?"
)
_VERBS: Final[dict[tuple[str, bool, bool], Verb]] = {  # by method, of a binding, last_operation
    ("PUT", False, False): "provision",
    ("PATCH", False, False): "update",
    ("DELETE", False, False): "deprovision",
    ("GET", False, False): "fetch",
    ("GET", False, True): "poll",
    ("PUT", True, False): "bind",
    ("DELETE", True, False): "unbind",
    ("GET", True, False): "fetch-binding",
    ("GET", True, True): "poll-binding",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. `headers` have lower-case names; `instance` and `binding` are "" without one."""

    verb: Verb
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    instance: str = ""
    binding: str = ""

    @property
    def members(self) -> Members:
        """The members of its body, none where that is no JSON object."""
        try:
            found = json.loads(self.body or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def place(self) -> tuple[str, str]:
        return self.instance, self.binding


@dataclass(frozen=True, slots=True)
class Said:
    """An answer, or the way in which there is none."""

    status: int
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    way: Way = "answer"


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the journal: a request and the status that answered it, 0 without an answer."""

    verb: Verb
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Members
    status: int
    instance: str
    binding: str
    at: float  # seconds, by the broker's clock


def asked(method: str, target: str, headers: Mapping[str, str], body: bytes) -> Asked | None:
    """Take a request apart; None for what no broker serves."""
    path, _, query = target.partition("?")
    stated = dict(parse_qsl(query, keep_blank_values=True))
    names = {name.lower(): value for name, value in headers.items()}
    if path == "/v2/catalog" and method == "GET":
        return Asked("catalogue", method, path, stated, names, body)
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    instance, binding = (unquote(match[part] or "") for part in ("instance", "binding"))
    verb = _VERBS.get((method, bool(binding), bool(match["poll"])))
    return verb and Asked(verb, method, path, stated, names, body, instance, binding)


def said(status: int, members: Members | None = None, **headers: str) -> Said:
    return Said(status, json.dumps(members or {}).encode(), headers)


def failure(status: int, error: str = "", description: str = "", **more: Any) -> Said:
    """Return a refusal in the API's words."""
    words = {"error": error, "description": description}
    return said(status, {key: word for key, word in words.items() if word} | more)
