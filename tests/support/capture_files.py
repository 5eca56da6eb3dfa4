"""The files in tests/captures: who wrote what where, and what fills their blanks."""

import base64
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from reconciler import api
from reconciler.controller.tasks import SystemClock
from reconciler.core import refs
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import Kind
from reconciler.core.times import format_time

FOLDER: Final = Path(__file__).parents[1] / "captures"
DATABASE: Final = Kind("shop.example", "v1", "Database", "databases")
REGION: Final = Kind("shop.example", "v1", "Region", "regions", namespaced=False)
NOTE: Final = Kind("shop.example", "v1", "Note", "notes")
_KINDS: Final[Mapping[tuple[str, str], Kind]] = {
    (kind.api_version, kind.kind): kind
    for kind in (
        *(
            refs.NAMESPACE,
            refs.SECRET,
            refs.CONFIG_MAP,
            refs.SERVICE_ACCOUNT,
            refs.DEPLOYMENT,
            refs.LEASE,
            refs.CRD,
        ),
        *(refs.ROLE, refs.ROLE_BINDING, refs.CLUSTER_ROLE, refs.CLUSTER_ROLE_BINDING),
        *(api.API_SERVICE_BINDING, api.API_SERVICE_EXPORT, api.API_SERVICE_EXPORT_REQUEST),
        *(api.API_SERVICE_EXPORT_TEMPLATE, api.API_SERVICE_NAMESPACE),
        *(api.APP_CLUSTER_BINDING, api.CLUSTER_BINDING, DATABASE, REGION, NOTE),
    )
}
_WRITER: Final = re.compile(
    r"# (?P<place>[\w-]+): (?P<manager>\S+) (?P<operation>Update|Apply)"
    r"(; (?P<on_status>\S+) Update on status)?\n"
)
_WAY: Final = re.compile(r"<way to (?P<place>\S+) as (?P<namespace>\S+)/(?P<account>\S+)>")


@dataclass(frozen=True, slots=True)
class Write:
    """One document: who wrote it where, and who its status, "" for the same or nobody."""

    place: str
    manager: str
    applied: bool
    on_status: str
    manifest: Manifest

    @property
    def kind(self) -> Kind:
        return _KINDS[get_text(self.manifest, "apiVersion"), get_text(self.manifest, "kind")]

    @property
    def ways(self) -> "Iterator[Way]":
        for text in _texts(self.manifest):
            if found := _WAY.fullmatch(text):
                yield Way(text, found["place"], found["namespace"], found["account"])


@dataclass(frozen=True, slots=True)
class Way:
    """A kubeconfig that leads to a place with the token of a service account."""

    blank: str
    place: str
    namespace: str
    account: str


@dataclass
class Blanks:
    """What stands for the blanks of a capture, one value for each."""

    values: dict[str, str] = field(default_factory=dict)

    def filled(self, manifest: Manifest) -> Manifest:
        """Return a manifest without blanks, but for its own uid, which the server makes up."""
        found = self._fill(manifest)
        assert isinstance(found, dict)
        return found

    def _fill(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._fill(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._fill(item) for item in value]
        if not isinstance(value, str) or "<" not in value:
            return value
        if value.startswith("<redacted-"):
            return self.values.setdefault(value, base64.b64encode(uuid.uuid4().bytes).decode())
        now = SystemClock().now()  # as those who read it know the time, on models as well
        value = value.replace("<time>", now.strftime("%Y-%m-%dT%H:%M:%SZ"))
        value = value.replace("<precise-time>", now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
        for blank, known in self.values.items():
            value = value.replace(blank, known)
        return value


def fleet(name: str, contexts: Mapping[str, str]) -> str:
    """Return the fleet.yaml that an operator would write to take an installation over."""
    text = (FOLDER / f"{name}.fleet.yaml").read_text()
    for place, context in contexts.items():
        text = text.replace(f"<{place}>", context)
    return text


def read(name: str) -> Iterator[Write]:
    """Yield the documents of a capture, in the order in which they are to be written."""
    head, *documents = (FOLDER / f"{name}.yaml").read_text().split("---\n")
    assert head.startswith("# "), "the head tells what is recorded"
    for text in documents:
        writer = _WRITER.match(text)
        assert writer is not None, text.partition("\n")[0]
        yield Write(
            place=writer["place"],
            manager=writer["manager"],
            applied=writer["operation"] == "Apply",
            on_status=writer["on_status"] or "",
            manifest=yaml.safe_load(text),
        )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def timed(value: Any, now: datetime) -> Any:
    """Fill in times: all of a capture happened a moment ago."""
    if isinstance(value, dict):
        return {key: timed(item, now) for key, item in value.items()}
    if isinstance(value, list):
        return [timed(item, now) for item in value]
    is_time = value in ("<time>", "<precise-time>")
    return format_time(now - timedelta(seconds=30)) if is_time else value
