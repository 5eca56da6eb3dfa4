"""Webhooks at a controller that polls seldom: a genuine one is in place soon, others do nothing.

How soon is what the audit log says, from before the push on.
"""

import asyncio
import json
import re
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from urllib.parse import urlsplit

from reconciler.core import names
from tests.support import webhooks
from tests.support.apply_runs import mode, scene
from tests.support.applying import CLAIMS
from tests.support.controllers import SELDOM, bound_with, controller, deeds, files
from tests.support.eventually import eventually
from tests.support.sink_server import SinkServer, notify
from tests.support.web import fetch

__all__ = ["files", "mode", "scene"]

GENUINE = {  # the name of a hook: its provider, its secret, and what proves a body
    "github": ("github", webhooks.KEY, webhooks.github),
    "gitea": ("gitea", webhooks.KEY, webhooks.gitea),
    "gitlab": ("gitlab", webhooks.KEY, webhooks.gitlab),
    "gitlab-signed": ("gitlab", webhooks.SIGNING_TOKEN, webhooks.signed_now),
    "generic": ("generic", webhooks.KEY, webhooks.signed_now),
}
*EARLIER, LAST = GENUINE
SOON = timedelta(seconds=5)
OTHER = "another key that is long enough"
COUNTED = re.compile(r'webhook_requests_total\{hook="([^"]*)",result="([^"]*)"\} (\S+)')


def forged(body):
    """Return requests that prove nothing, with the hooks that they are for."""
    now = int(time.time())
    return [
        *((name, {}) for name in GENUINE),
        ("github", webhooks.github(body, OTHER)),
        ("github", {"X-Hub-Signature": f"sha1={webhooks.mac(body, algorithm='sha1')}"}),
        ("gitea", webhooks.github(body)),
        ("gitlab", webhooks.gitlab(key=OTHER)),
        ("gitlab-signed", webhooks.gitlab(key=webhooks.SIGNING_TOKEN)),
        ("generic", webhooks.generic("stale", now - 400, body)),
        ("generic", webhooks.generic("to come", now + 400, body)),
        ("generic", webhooks.generic("of another body", now)),
        ("nope", webhooks.github(body)),
    ]


def hooks(folder):
    found = ["--hooks", "127.0.0.1:0"]
    for name, (provider, secret, _) in GENUINE.items():
        (folder / name).write_text(secret)
        found += ["--hook", f"{name}={provider}:{folder / name}"]
    return found


class Hooked:
    """A controller with hooks, a fleet that its pushes change, and what receives its news."""

    def __init__(self, scene, files, running, host):
        self.scene, self.files, self.running, self.host = scene, files, running, host

    async def post(self, name, headers, body, *, sender="127.0.0.1"):
        at = urlsplit(await self.running.where("webhooks are received")).netloc

        def ask():
            with closing(HTTPConnection(at, timeout=60, source_address=(sender, 0))) as way:
                way.request("POST", f"/hooks/{name}", body, headers)
                return way.getresponse().status

        return await asyncio.to_thread(ask)

    def push(self):
        """Push another number of claims, and return it with the commit."""
        claims = 0 if self.scene.fleet.claims == CLAIMS else 1
        self.scene.fleet.claims = CLAIMS if claims else ", claims: []"
        return claims, self.files.push()

    async def is_called(self, name, body):
        request = GENUINE[name][2](body), body
        assert await self.post(name, *request) == 202
        return request

    async def in_place(self, claims, commit, *, mark, began):
        """See it in place soon, and see the Git host hear of it."""
        await bound_with(self.scene, claims)
        assert await eventually(lambda: self.written(mark)) - began < SOON

        def succeeds():
            last = self.host.received[-1]
            here = last.path == f"/repos/acme/fleet/statuses/{commit}"
            return here and last.json["state"] == "success"

        await eventually(succeeds)

    def written(self, mark):
        """Return when the last write of the binding was over, by the audit log; else None."""
        ends = (
            datetime.fromisoformat(one["stageTimestamp"])
            for one in self.scene.app.audit.events_since(mark)
            if one["stage"] == "ResponseComplete"
            and one["user"]["username"] == self.scene.user
            and one["objectRef"]["resource"] == self.scene.binding.kind.plural
            and one["verb"] == "patch"
        )
        return max(ends, default=None)

    async def is_at_rest(self):
        """Wait until a look at the source has followed the last round."""

        async def probe():
            looked = await self.running.metric("source_read_timestamp_seconds")
            return looked > await self.running.metric("last_success_timestamp_seconds")

        await eventually(probe)

    async def is_alive(self, marks, *, renewals):
        """Wait until its Lease was renewed so often, which is each two seconds."""
        lease = names.controller_lease(self.scene.fleet.name)

        def renewed():
            found = [one for one in self.scene.writes(marks) if one.name == lease]
            return len(found) >= renewals

        await eventually(renewed)

    async def counts(self):
        """Return what the controller has counted of requests, by hook and result."""
        _, text = await self.running.get("/metrics")
        return {(hook, what): float(n) for hook, what, n in COUNTED.findall(text)}


async def test_each_genuine_one_is_in_place_within_seconds_and_others_cause_nothing(
    scene, files, tmp_path
):
    files.push()
    async with (
        scene.peers(),
        SinkServer() as host,
        controller(
            scene,
            files,
            *(*SELDOM, "--board", "127.0.0.1:0"),
            *(*hooks(tmp_path), *notify(tmp_path, host)),
        ) as running,
    ):
        here = Hooked(scene, files, running, host)
        await bound_with(scene, 1)
        await shows_it_ready(running)
        requests = {}
        for name in EARLIER:
            mark, began = scene.app.audit.mark(), datetime.now(UTC)
            claims, commit = here.push()
            requests[name] = await here.is_called(name, commit.encode())
            await here.in_place(claims, commit, mark=mark, began=began)

        await here.is_at_rest()
        claims, commit = here.push()  # a look would find it
        marks, looks = scene.marks(), len(files.server.seen)
        refused = forged(commit.encode())
        for number, (name, headers) in enumerate(refused):
            sender = f"127.0.0.{2 + number // 10}"  # each may ask 10 times in a second
            assert await here.post(name, headers, commit.encode(), sender=sender) == 401
        for name, request in requests.items():
            assert await here.post(name, *request, sender="127.0.0.4") == 202
        await here.is_alive(marks, renewals=3)  # a look would have come within two seconds
        assert len(files.server.seen) == looks
        assert deeds(scene, marks) == []

        mark, began = scene.app.audit.mark(), datetime.now(UTC)
        await here.is_called(LAST, commit.encode())
        await here.in_place(claims, commit, mark=mark, began=began)
        named = Counter(name if name in GENUINE else "" for name, _ in refused)
        assert await here.counts() == {
            **{(name, "accepted"): 1 for name in GENUINE},
            **{(name, "replayed"): 1 for name in EARLIER},
            **{(name, "unauthorized"): number for name, number in named.items()},
        }
        assert await running.end() == 143
    assert await scene.lines() == []


async def shows_it_ready(running):
    page = await running.where("the board is served") + "/status.json"

    async def probe():
        found = json.loads((await asyncio.to_thread(fetch, page))[1])
        return [u["state"] for c in found["clusters"] for u in c["units"]] == ["Ready"]

    await eventually(probe)
