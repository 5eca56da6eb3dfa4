"""A fleet repository that means to take an installation over, and what `klutchctl` says to it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reconciler.core.refs import Kind, Ref
from tests.support import captures, programs
from tests.support.clusters import LiveCluster, Write
from tests.support.role_holders import Operator

# The Cluster documents of the fleets in tests/captures.
_PLACES: Final = {
    "shop": captures.APP_CLUSTER,
    "geo": captures.APP_CLUSTER,
    "billing": captures.SECOND_APP_CLUSTER,
}


@dataclass
class Scene:
    """An installation, and a fleet repository that means to take it over."""

    name: str
    folder: Path
    installation: captures.Installation
    before: Mapping[Ref, captures.State]  # of all objects, as they were recorded
    operator: Operator
    applied: Any = None  # what the take-over reported

    @property
    def places(self) -> Mapping[str, LiveCluster]:
        return self.installation.places

    def klutchctl(self, *arguments: str) -> str:
        done = programs.klutchctl("--kubeconfig", str(self.operator.kubeconfig), *arguments)
        assert done.returncode in (0, 6), done.stdout + done.stderr
        return done.stdout

    def plan(self) -> Any:
        """Plan the fleet of the capture, as an apply sees it, which decides about a take-over."""
        text = captures.fleet(self.name, self.places)
        (self.folder / "fleet.yaml").write_text(text)
        return json.loads(self.klutchctl("plan", str(self.folder), "--credentials", "-o", "json"))

    def ref(self, place: str, kind: Kind, path: str) -> Ref:
        return self.installation.ref(place, kind, path)

    def marks(self) -> dict[str, int]:
        return {place: live.audit.mark() for place, live in self.places.items()}

    def writes_since(self, marks: Mapping[str, int]) -> list[Write]:
        return [
            write
            for place, live in self.places.items()
            for write in live.audit.writes_since(marks[place])
            if write.user == self.operator.user
        ]

    def apply(self) -> Any:
        """Apply the fleet of the capture. What that creates is taken away with the capture."""
        for change in self.plan()["changes"]:
            if change["action"] == "create":
                ref = change["ref"]
                names_of = ("group", "version", "kind", "plural", "namespaced")
                live = self.places[_PLACES.get(ref["cluster"], captures.CONTROL_PLANE)]
                made = Ref(live.name, Kind(*map(ref.get, names_of)), ref["namespace"], ref["name"])
                self.installation.beside.append(made)
        return self.apply_as_planned()

    def apply_as_planned(self) -> Any:
        done = self.klutchctl("apply", str(self.folder), "--auto-approve", "-o", "json")
        return json.loads(done)


def lines(plan: Any) -> list[str]:
    return [
        f"{change['action']} {change['ref']['cluster']}: {change['ref']['kind']} "
        + "/".join(part for part in (change["ref"]["namespace"], change["ref"]["name"]) if part)
        for change in plan["changes"]
        if change["action"] != "noop"
    ]


def fields(plan: Any) -> set[str]:
    """Return the paths that adoptions and updates of a plan write."""
    return {field["path"] for change in plan["changes"] for field in change.get("fields", ())}
