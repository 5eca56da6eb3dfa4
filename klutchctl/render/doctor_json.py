"""What a doctor found, as one versioned document for programs."""

import json
from collections.abc import Sequence
from typing import Final

from klutchctl.render.doctor_text import command
from reconciler.core.manifest import JSON
from reconciler.health.diagnosis import Examination, Finding
from reconciler.health.rights import Task

FORMAT: Final = "klutchctl.dev/doctor"
VERSION: Final = "1.0"


def render(found: Sequence[Examination], *, path: str, task: Task) -> str:
    """Return one JSON object and a newline. A new minor version adds fields, a major breaks."""

    def finding(one: Examination, of: Finding) -> dict[str, JSON]:
        return {
            "check": of.check,
            "level": of.level,
            "message": of.message,
            "remedy": of.remedy,
            "command": command(one, of, path=path, task=task),
        }

    document: dict[str, JSON] = {
        "format": FORMAT,
        "version": VERSION,
        "for": task,
        "clusters": [
            {
                "name": one.name,
                "kind": one.side,
                "access": one.access,
                "server": one.server,
                "user": one.user,
                "level": one.level,
                "readable": one.readable,
                "findings": [finding(one, of) for of in one.findings],
            }
            for one in found
        ],
    }
    return json.dumps(document, indent=2) + "\n"
