"""The machine's part of a bind for both commands: connections, a reader of answers, a table."""

import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import yaml

from klutchctl.binding import Claims
from klutchctl.binding.decisions import Answers
from klutchctl.binding.errors import Denied
from klutchctl.binding.progress import Progress
from klutchctl.binding.provider import MOST, TIMEOUT
from klutchctl.binding.run import Asked, Bind
from klutchctl.render.terminal import visible
from reconciler.core import conditions, manifest
from reconciler.core.errors import Forbidden, Unauthorized
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import GroupResource
from reconciler.core.times import created
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from reconciler.kube.networks import ANYWHERE, Networks
from reconciler.outbound.http import Http

_KIND: Final = "apiservicebinding.klutch.anynines.com"
_HEAD: Final = ("NAME", "PROVIDER", "READY", "MESSAGE", "AGE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A bind that a command line asks for."""

    asked: Asked
    connection: Connection
    progress: Progress
    claims: Claims = Claims.ASK
    accept: Collection[str] = ()
    ca_file: Path | None = None
    networks: Networks = ANYWHERE

    @contextlib.asynccontextmanager
    async def bind(self) -> AsyncIterator[Bind]:
        """Give the block a bind with its connections. A refusal of an API server raises Denied."""
        accept, is_read = frozenset(self.accept), sys.stdin.isatty()
        answers = Answers(self.claims, accept, show, read_line, interactive=is_read)
        try:
            async with (
                Http(ca_file=self.ca_file, timeout=TIMEOUT, most=MOST, trust_env=True) as http,
                KubeCluster(self.connection) as cluster,
            ):
                yield Bind(
                    asked=self.asked,
                    http=http,
                    cluster=cluster,
                    progress=self.progress,
                    answers=answers,
                    networks=self.networks,
                )
        except (Unauthorized, Forbidden) as error:
            raise Denied(str(error)) from None


def show(text: str) -> None:
    """Print a question, whose provider's part is escaped already."""
    print(text, end="", flush=True)


def read_line(most: int) -> str:
    """Return the next line of standard input, "" at its end.

    Always from the same buffer: a second one would begin behind answers that the first holds.
    Ctrl-C ends the read at once, though an event loop waits behind it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return sys.stdin.buffer.readline(most).decode(errors="replace")
    finally:
        signal.signal(signal.SIGINT, before)


def table(bindings: Sequence[Manifest], now: datetime | None = None) -> str:
    """Return bindings as `kubectl get` shows them."""
    rows = [_HEAD, *(_row(binding, now or datetime.now(UTC)) for binding in bindings)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def _row(binding: Manifest, now: datetime) -> tuple[str, ...]:
    ready = conditions.said(binding, conditions.READY)
    made = created(binding)
    cells = (
        f"{_KIND}/{manifest.name_of(binding)}",
        get_text(binding, "status", "providerPrettyName"),
        "" if ready is None else ready.status,
        "" if ready is None else ready.message,
        "" if made is None else age(int((now - made).total_seconds())),
    )
    return tuple(map(visible, cells))


def age(seconds: int) -> str:
    """Return a time span as kubectl shows it."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{days}d"


async def printed(job: Job, output: str) -> str:
    """Bind, and return the table of what is bound; of a dry run, the requests.

    Raises what `Bind.bind` does.
    """
    async with job.bind() as bind:
        if job.asked.dry_run:
            return documents((await bind.dry_run()).grant.requests, output)
        return await tabled(bind, await bind.bind())


async def tabled(bind: Bind, resources: Sequence[GroupResource]) -> str:
    """Return the table of live bindings. Raises ClusterErrors."""
    kind = await bind.app.wait_for_api(seconds=0.0)
    found = [await bind.app.binding(one, kind) for one in resources]
    return table([one for one in found if one is not None])


def documents(requests: Sequence[Manifest], output: str) -> str:
    """Return requests as a dry run prints them, like the original (D.2)."""
    if output == "json":
        return "".join(json.dumps(one, indent=4) + "\n" for one in requests)
    return "---\n".join(
        yaml.dump(one, Dumper=yaml.CSafeDumper, sort_keys=True, allow_unicode=False)
        for one in requests
    )
