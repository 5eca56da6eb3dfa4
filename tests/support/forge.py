"""The API for comments of GitHub or GitLab, on loopback, and the variables that lead there."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.answering import Answer, Asked, answering


@dataclass
class Forge:
    """The API for comments of GitHub or GitLab: those that are there, and who asked."""

    comments: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    answer: int = 200
    url: str = ""

    def by(self, name: str) -> dict[str, Any]:
        """Return what tells the author of a comment, as both of them would."""
        return {"user": {"login": name}, "author": {"username": name}}

    def reply(self, asked: Asked) -> Answer:
        path, _, query = asked.target.partition("?")
        private = asked.headers["PRIVATE-TOKEN"]
        self.asked.append((asked.method, path, private or asked.headers["Authorization"]))
        document = json.dumps(self._document(asked, path, query, private)).encode()
        elsewhere = {"Location": f"{self.url}/elsewhere?page=1"} if self.answer == 302 else {}
        return self.answer, elsewhere, document

    def _document(self, asked: Asked, path: str, query: str, private: str | None) -> Any:
        if asked.method == "GET" and path.endswith("/user"):
            return {"username": "fleet-bot"}
        if asked.method == "GET":
            page = int(re.findall(r"\bpage=(\d+)", query)[0])
            return self.comments[(page - 1) * 100 : page * 100]
        body = json.loads(asked.body)["body"]
        assert isinstance(body, str)
        if asked.method == "POST":
            us = self.by("fleet-bot" if private else "github-actions[bot]")
            self.comments.append({"id": len(self.comments) + 1, "body": body, **us})
            return self.comments[-1]
        number = int(path.rpartition("/")[2])
        self.comments[number - 1]["body"] = body
        return self.comments[number - 1]


@contextmanager
def serving(forge: Forge) -> Iterator[Forge]:
    with answering(forge.reply) as port:
        forge.url = f"http://127.0.0.1:{port}"
        yield forge


def on_github(forge: Forge) -> dict[str, str]:
    return {
        "GITHUB_API_URL": forge.url,
        "GITHUB_REPOSITORY": "acme/fleet",
        "GITHUB_TOKEN": "canary",
        "PULL_REQUEST": "7",
    }


def on_gitlab(forge: Forge) -> dict[str, str]:
    return {
        "GITLAB_CI": "true",
        "CI_API_V4_URL": f"{forge.url}/api/v4",
        "CI_PROJECT_ID": "42",
        "CI_MERGE_REQUEST_IID": "7",
        "FLEET_TOKEN": "canary",
    }
