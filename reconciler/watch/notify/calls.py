"""Decides how a message is sent to a sink, and what its answer means. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import quote

from reconciler.core.secret import Secret
from reconciler.outbound import standard_webhooks
from reconciler.watch.notify.messages import Message, Phase
from reconciler.watch.notify.sinks_file import CommitStatus, Slack, Target, Webhook

_COMMIT: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_SHORT: Final = 12  # characters of a commit, for people
_SUCCESS: Final = range(200, 300)
_REDIRECT: Final = range(300, 400)
_AGAIN: Final = frozenset({408, 425, 429})
# GitLab's answer where the status is so already: pending and pending.
_SAME: Final = b"Cannot transition status"


@dataclass(frozen=True, slots=True)
class Call:
    """A POST. The URL may be a secret."""

    url: str = field(repr=False)
    body: bytes
    headers: Mapping[str, str | Secret]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a message did not arrive, and whether another try may help."""

    problem: str
    again: bool


def concerns(target: Target, message: Message) -> bool:
    """Tell whether a target can be given a message: a commit status needs a commit."""
    return not isinstance(target, CommitStatus) or bool(_COMMIT.fullmatch(message.commit))


def call_of(
    target: Target, message: Message, secret: Secret, *, message_id: str, now: datetime
) -> Call:
    """Return how a message is sent; `secret` fits the target (`sinks_file.secret_fault`)."""
    headers: dict[str, str | Secret] = {"Content-Type": "application/json"}
    match target:
        case CommitStatus():
            url = _status_url(target, message.commit)
            headers |= _authorization(target, secret)
            return Call(url, _json(_status(target, message)), headers)
        case Slack():
            return Call(secret.reveal(), _json({"text": _sentence(message)}), headers)
        case Webhook():
            body = _json(_event(message, now))
            headers |= standard_webhooks.headers(secret, message_id, body, now)
            return Call(target.url, body, headers)


def fault_of(target: Target, status: int, body: bytes) -> Fault | None:
    """Return why an answer means that a message did not arrive; None if it did."""
    if status in _SUCCESS:
        return None
    if isinstance(target, CommitStatus) and target.provider == "gitlab" and _SAME in body:
        return None
    if status in _REDIRECT:
        return Fault(f"answers {status}: redirects are not followed", again=False)
    return Fault(f"answers {status}", again=status in _AGAIN or status >= 500)


def _status_url(target: CommitStatus, commit: str) -> str:
    if target.provider == "gitlab":
        return f"{target.base}/projects/{quote(target.repository, safe='')}/statuses/{commit}"
    return f"{target.base}/repos/{target.repository}/statuses/{commit}"


def _authorization(target: CommitStatus, secret: Secret) -> dict[str, str | Secret]:
    match target.provider:
        case "gitlab":
            return {"PRIVATE-TOKEN": secret}
        case "gitea":
            return {"Authorization": Secret(f"token {secret.reveal()}")}
        case "github":
            return {
                "Authorization": Secret(f"Bearer {secret.reveal()}"),
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": "2022-11-28",
            }


def _status(target: CommitStatus, message: Message) -> dict[str, str]:
    failed = target.provider == "gitlab" and message.phase is Phase.FAILURE
    state = "failed" if failed else message.phase.value
    return {"state": state, "context": message.context, "description": message.title}


def _sentence(message: Message) -> str:
    """Return what people read in a chat, in which a name can be no link, and call nobody."""
    commit = f"commit {message.commit[:_SHORT]}" if message.commit else ""
    text = ": ".join(filter(None, (message.fleet, commit, message.title, message.detail)))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _event(message: Message, now: datetime) -> dict[str, object]:
    data = {
        "fleet": message.fleet,
        "context": message.context,
        "commit": message.commit,
        "state": message.phase.value,
        "reason": message.reason.value,
        "title": message.title,
        "detail": message.detail,
    }
    return {"type": "klutchctl.commit", "timestamp": now.isoformat(), "data": data}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
