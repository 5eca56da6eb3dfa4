"""What each receiver is sent, and what its answers mean."""

import json
from dataclasses import replace

import pytest

from reconciler.core.secret import Secret
from reconciler.watch.notify import sender
from reconciler.watch.notify.messages import Message, Reason
from reconciler.watch.notify.sinks_file import CommitStatus, Slack, Webhook
from tests.support.fake_clock import FakeClock
from tests.support.webhooks import KEY, generic

COMMIT = "a" * 40
MESSAGE = Message("acme", "klutchctl/acme", COMMIT, Reason.HELD, "shop: <!channel> & co")


def status(provider, api="", repository="acme/fleet", **more):
    more |= {"api": api} if api else {}
    return CommitStatus(provider=provider, repository=repository, token_file="t", **more)


SLACK = Slack(url_file="u")
WEBHOOK = Webhook(url="https://a.example/hook", secret_file="k")


def call(target, message=MESSAGE, secret=KEY):
    made = sender.call_of(
        target, message, Secret(secret), message_id="msg_1", now=FakeClock().now()
    )
    headers = {
        name: value.reveal() if isinstance(value, Secret) else value
        for name, value in made.headers.items()
    }
    assert headers.pop("Content-Type") == "application/json"
    assert secret not in repr(made)
    return made.url, json.loads(made.body), headers, made.body


STATUSES = {
    "GitHub": (
        status("github"),
        f"https://api.github.com/repos/acme/fleet/statuses/{COMMIT}",
        "failure",
        ("Authorization", f"Bearer {KEY}"),
    ),
    "GitLab": (
        status("gitlab", repository="acme/group/fleet"),
        f"https://gitlab.com/api/v4/projects/acme%2Fgroup%2Ffleet/statuses/{COMMIT}",
        "failed",
        ("PRIVATE-TOKEN", KEY),
    ),
    "Gitea": (
        status("gitea", "https://git.example/api/v1/"),
        f"https://git.example/api/v1/repos/acme/fleet/statuses/{COMMIT}",
        "failure",
        ("Authorization", f"token {KEY}"),
    ),
}


@pytest.mark.parametrize(
    ("target", "url", "failure", "header"), STATUSES.values(), ids=STATUSES.keys()
)
def test_a_commit_status(target, url, failure, header):
    got, body, headers, _ = call(target)
    assert got == url
    description = "held back by a guard"  # of our words alone: the page may be public
    assert body == {"state": failure, "context": "klutchctl/acme", "description": description}
    assert headers[header[0]] == header[1]
    states = [
        call(target, replace(MESSAGE, reason=reason))[1]["state"]
        for reason in (Reason.OPEN, Reason.IN_PLACE)
    ]
    assert states == ["pending", "success"]


def test_a_commit_status_has_the_sentence_of_a_guard_where_a_page_may_name_objects():
    for detail, want in (
        (MESSAGE.detail, "held back by a guard: shop: <!channel> & co"),
        ("", "held back by a guard"),
        ("x" * 300, f"held back by a guard: {'x' * 115}..."),  # GitHub: 140
    ):
        body = call(status("github", detail=True), replace(MESSAGE, detail=detail))[1]
        assert body["description"] == want
        assert len(want) <= 140


def test_a_commit_status_needs_a_commit():
    for commit in ("", "a" * 39, "../../x", "A" * 40, "files of a folder"):
        assert not sender.concerns(status("github"), replace(MESSAGE, commit=commit))
        assert sender.concerns(SLACK, replace(MESSAGE, commit=commit))
    assert sender.concerns(status("github"), MESSAGE)
    assert sender.concerns(status("github"), replace(MESSAGE, commit="a" * 64))


def test_a_chat_calls_nobody():
    url, body, headers, _ = call(SLACK, secret="https://chat.example/T/s3cr3t")
    assert (url, headers) == ("https://chat.example/T/s3cr3t", {})
    assert body == {
        "text": "acme: commit aaaaaaaaaaaa: held back by a guard: `shop: &lt;!channel&gt; &amp; co`"
    }
    lines = replace(MESSAGE, detail="a` @all [b](https://c.example)")
    assert call(SLACK, lines)[1]["text"].endswith("guard: `a' @all [b](https://c.example)`")
    source = replace(MESSAGE, commit="", reason=Reason.READABLE, detail="")
    assert call(SLACK, source)[1] == {"text": "acme: the source can be used again"}


def test_a_webhook_is_signed():
    url, body, headers, raw = call(WEBHOOK)
    assert url == WEBHOOK.url
    assert body == {
        "type": "klutchctl.commit",
        "timestamp": "2026-01-01T00:00:00+00:00",
        "data": {
            "fleet": "acme",
            "context": "klutchctl/acme",
            "commit": COMMIT,
            "state": "failure",
            "reason": "Held",
            "title": "held back by a guard",
            "detail": "shop: <!channel> & co",
        },
    }
    assert headers == generic("msg_1", body=raw)


@pytest.mark.parametrize(
    ("target", "code", "body", "again"),
    [
        (SLACK, 500, b"", True),
        (SLACK, 503, b"", True),
        (SLACK, 429, b"", True),
        (SLACK, 408, b"", True),
        (SLACK, 400, b"Cannot transition status", False),
        (SLACK, 404, b"", False),
        (WEBHOOK, 302, b"", False),
        (WEBHOOK, 100, b"", False),
        (status("github"), 401, b"", False),
        (status("github"), 422, b"", False),
        (status("gitlab"), 400, b"another", False),
    ],
)
def test_faults(target, code, body, again):
    fault = sender.fault_of(target, code, body)
    assert fault is not None
    assert (fault.again, str(code) in fault.problem) == (again, True)


@pytest.mark.parametrize(
    ("target", "code", "body"),
    [
        (SLACK, 200, b"ok"),
        (WEBHOOK, 204, b""),
        (status("github"), 201, b""),
        (status("gitlab"), 400, b'{"message":"Cannot transition status via :enqueue"}'),
    ],
)
def test_arrived(target, code, body):
    assert sender.fault_of(target, code, body) is None
