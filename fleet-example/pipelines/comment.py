"""Put a file under a pull request (GitHub) or merge request (GitLab), as one comment.

After each push that comment is brought up to date instead of adding one; where there is no such
file, it says that there is no plan. Anybody can write what it begins with, so it is ours only by
its author as well: on GitLab that of the token, on GitHub github-actions[bot], or COMMENT_AUTHOR
where another token is used. Needs nothing but Python.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MARK = "<!-- klutchctl plan -->"
PAGE = 100
NO_PLAN = "### No plan\n\n**The run ended before it could plan; its log says why.**\n"


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses what would send the comment elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none; the answer then counts as an error."""


OPEN = urllib.request.build_opener(NoRedirects).open


def call(method: str, url: str, header: tuple[str, str], body: str | None = None) -> Any:
    """Return the decoded answer of the API."""
    data = None if body is None else json.dumps({"body": body}).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    request.add_unredirected_header(*header)
    with OPEN(request, timeout=30) as answer:
        return json.load(answer)


def place(environ: Mapping[str, str]) -> tuple[str, str, str, tuple[str, str]]:
    """Return where comments are listed and made, where one is, how it is changed, and a header."""
    if "GITLAB_CI" in environ:
        project = f"{environ['CI_API_V4_URL']}/projects/{environ['CI_PROJECT_ID']}"
        notes = f"{project}/merge_requests/{environ['CI_MERGE_REQUEST_IID']}/notes"
        return notes, notes, "PUT", ("PRIVATE-TOKEN", environ["FLEET_TOKEN"])
    issues = f"{environ['GITHUB_API_URL']}/repos/{environ['GITHUB_REPOSITORY']}/issues"
    token = ("Authorization", f"Bearer {environ['GITHUB_TOKEN']}")
    return f"{issues}/{environ['PULL_REQUEST']}/comments", f"{issues}/comments", "PATCH", token


def author_of(comment: Mapping[str, Any]) -> str:
    """Return by whom a comment is, "" where that is not told."""
    github, gitlab = comment.get("user") or {}, comment.get("author") or {}
    return github.get("login") or gitlab.get("username") or ""


def ourselves(environ: Mapping[str, str], header: tuple[str, str]) -> str:
    """Return the name by which our comments are shown."""
    if "GITLAB_CI" in environ:
        return str(call("GET", f"{environ['CI_API_V4_URL']}/user", header)["username"])
    # A token of GitHub Actions may not ask who it is.
    return environ.get("COMMENT_AUTHOR") or "github-actions[bot]"


def find(comments: str, us: str, header: tuple[str, str]) -> int | None:
    """Return the number of the comment that an earlier run has made."""
    page = 1
    while True:
        found = call("GET", f"{comments}?per_page={PAGE}&page={page}", header)
        for one in found:
            if (one["body"] or "").startswith(MARK) and author_of(one) == us:
                return int(one["id"])
        if len(found) < PAGE:
            return None
        page += 1


def main() -> None:
    """Make or change the comment. Ends with a sentence where that cannot be done."""
    file = Path(sys.argv[1])
    text = f"{MARK}\n{file.read_text(encoding='utf-8') if file.exists() else NO_PLAN}"
    try:
        comments, one, change, header = place(os.environ)
        number = find(comments, ourselves(os.environ, header), header)
        if number is None:
            call("POST", comments, header, text)
        else:
            call(change, f"{one}/{number}", header, text)
    except KeyError as error:
        sys.exit(f"{error.args[0]} is not set")
    except urllib.error.HTTPError as error:
        sys.exit(f"The comment was refused: HTTP {error.code} {error.reason}")
    except OSError as error:
        sys.exit(f"The comment could not be sent: {error}")


main()
