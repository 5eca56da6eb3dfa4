"""The API for comments of GitHub or GitLab, on loopback, and the variables that lead there."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


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


@contextmanager
def serving(forge: Forge) -> Iterator[Forge]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.endswith("/user"):
                return self.reply({"username": "fleet-bot"})
            page = int(re.findall(r"[?&]page=(\d+)", self.path)[0])
            self.reply(forge.comments[(page - 1) * 100 : page * 100])

        def do_POST(self) -> None:
            token = self.headers["PRIVATE-TOKEN"]
            us = forge.by("fleet-bot" if token else "github-actions[bot]")
            made = {"id": len(forge.comments) + 1, "body": self.sent(), **us}
            forge.comments.append(made)
            self.reply(made)

        def do_PATCH(self) -> None:
            number = int(self.path.rpartition("/")[2])
            forge.comments[number - 1]["body"] = self.sent()
            self.reply(forge.comments[number - 1])

        do_PUT = do_PATCH  # noqa: N815 - named by http.server

        def sent(self) -> str:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert isinstance(body["body"], str)
            return body["body"]

        def reply(self, document: Any) -> None:
            token = self.headers["PRIVATE-TOKEN"] or self.headers["Authorization"]
            forge.asked.append((self.command, self.path.partition("?")[0], token))
            self.send_response(forge.answer)
            if forge.answer == 302:
                self.send_header("Location", f"{forge.url}/elsewhere?page=1")
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        forge.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield forge
        finally:
            server.shutdown()
            thread.join()


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
