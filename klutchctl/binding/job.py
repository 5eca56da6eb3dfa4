"""Runs a bind for both commands: connections, answers from the terminal, output.

It also chooses the kind of sign-in by the flags, and runs `kubectl bind apiservice`: a bind by a
request that is there, without a sign-in (D.4).
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import yaml

from klutchctl import files
from klutchctl.binding import Claims, provider, response, tokens
from klutchctl.binding.decisions import Answers
from klutchctl.binding.progress import Denied, Progress
from klutchctl.binding.run import Asked, Bind, Way
from klutchctl.binding.signed_in import SignedIn
from klutchctl.render.terminal import visible
from reconciler import api
from reconciler.core import conditions, manifest, names, refs, yaml_text
from reconciler.core.errors import ConfigError, Forbidden, Unauthorized
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import GroupResource, Ref
from reconciler.core.times import created
from reconciler.files import read_secret
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Reader
from reconciler.kube.connection import Connection
from reconciler.kube.networks import ANYWHERE, Networks
from reconciler.oidc.grants import Client
from reconciler.web.outbound import Http

_APISERVICE: Final = "kubectl bind apiservice"
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
                Http(
                    ca_file=self.ca_file,
                    timeout=provider.TIMEOUT,
                    most=provider.MOST,
                    trust_env=True,
                ) as http,
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
    ready = conditions.get(binding, conditions.READY)
    made = created(binding)
    cells = (
        f"apiservicebinding.klutch.anynines.com/{manifest.name_of(binding)}",
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
    """Bind, and return the table of bound resources; of a dry run, the requests.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags of people and machines; of the latter, one credential at most."""

    no_browser: bool = False
    callback_port: int = 0
    device_code: bool = False
    client_id: str = ""
    client_secret_file: Path | None = None
    client_key_file: Path | None = None
    client_assertion_file: Path | None = None
    scope: Sequence[str] | None = None
    identity: str = ""
    exchange: bool = False
    issuer: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the flags of a command line, by their names."""
        return cls(**{one.name: given[one.name] for one in fields(cls) if one.name in given})

    def way(self, show: Callable[[str], object] | None) -> Way:
        """Return the way to sign in; `show` opens a browser. Raises ConfigError."""
        if self.exchange and not self.identity:
            raise ConfigError("needs --identity", where="--exchange")
        if sum(map(bool, (self.device_code, self.identity, self.client_id and not self.exchange))):
            self._require_one()
        elif self._credentials or self.scope:
            raise ConfigError("is needed with a credential or scope", where="--client-id")
        if self.issuer and not (self.device_code or self.client_id):
            needs = "needs --device-code, --client-id or --exchange: nothing else goes there"
            raise ConfigError(needs, where="--issuer")
        has_client = self.exchange or (self.client_id and not self.identity)
        return Way(
            port=self.callback_port,
            show=None if self.no_browser else show,
            device=self.device_code,
            client=self._client() if has_client else None,
            identity=tokens.parse(self.identity) if self.identity else None,
            scopes=tuple(self.scope or ()),
        )

    def _require_one(self) -> None:
        ways = {
            "--no-browser": self.no_browser or bool(self.callback_port),
            "--device-code": self.device_code,
            "--identity": bool(self.identity),
            "--client-id": bool(self.client_id) and not self.exchange,
        }
        chosen = [name for name, given in ways.items() if given]
        if len(chosen) > 1:
            raise ConfigError("exclude each other", where=" and ".join(chosen))
        if self.client_id and not self.exchange and len(self._credentials) != 1:
            hint = "Give --client-secret-file, --client-key-file or --client-assertion-file"
            raise ConfigError("needs one credential", where="--client-id", hint=hint)

    @property
    def _credentials(self) -> dict[str, Path]:
        files = {
            "secret": self.client_secret_file,
            "key": self.client_key_file,
            "assertion": self.client_assertion_file,
        }
        return {name: file for name, file in files.items() if file is not None}

    def _client(self) -> Client:
        if not self.client_id or len(self._credentials) > 1:
            raise ConfigError("needs --client-id, and one credential at most", where="--exchange")
        read = {
            name: read_secret(file, f"--client-{name}-file")
            for name, file in self._credentials.items()
        }
        return Client(self.client_id, **read)


def browser(environ: Mapping[str, str] = os.environ) -> Callable[[str], object] | None:
    """Return a function that opens a browser; None where there is no screen to open it on."""
    screen = environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY") or environ.get("BROWSER")
    if not screen and sys.platform not in ("darwin", "win32"):
        return None
    import webbrowser

    return webbrowser.open


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of the request and of the provider's kubeconfig.

    `manifest` is a file, "-" for standard input, or `url` is one; `secret` (namespace, name) is in
    the app cluster. `namespace` replaces that of the kubeconfig's context.
    """

    manifest: str
    url: str
    kubeconfig: Path | None
    secret: tuple[str, str]
    namespace: str

    def require(self) -> None:
        """Refuse sources that are missing, or given twice. Raises ConfigError."""
        if bool(self.manifest) == bool(self.url):
            raise ConfigError("either a URL or --file is needed, and not both", where=_APISERVICE)
        if any(self.secret) != all(self.secret):
            both = "--remote-kubeconfig-namespace and --remote-kubeconfig-name need each other"
            raise ConfigError(both, where=_APISERVICE)
        if not any(self.secret) and self.kubeconfig is None:
            needed = "a remote kubeconfig is needed: --remote-kubeconfig, or a Secret"
            raise ConfigError(needed, where=_APISERVICE)

    async def request(self, http: Http) -> Manifest:
        """Return the APIServiceExportRequest. Raises ConfigError, BadAnswer, BindEnded."""
        if self.url:
            text = await provider.fetched(http, self.url)
        elif self.manifest == "-":
            text = sys.stdin.buffer.read(yaml_text.MAX_BYTES + 1)
        else:
            text = files.read(Path(self.manifest))
        request = yaml_text.read(text, self.manifest or "the URL").plain()
        response.require_request(request)
        return request

    async def content(self, app: Reader) -> bytes:
        """Return the kubeconfig. Raises ConfigError and ClusterErrors."""
        if self.kubeconfig is not None:
            found: bytes | str = files.read(self.kubeconfig)
        else:
            secret = await app.get(ref := Ref(app.name, refs.SECRET, *self.secret))
            found = api.kubeconfig_content(secret, names.KUBECONFIG) if secret else "does not exist"
        if isinstance(found, str):
            raise ConfigError(found, where=str(ref))
        return found if not self.namespace else _moved(found, self.namespace)


async def bound(job: Job, source: Source) -> str:
    """Bind, and return the table of bound resources.

    Raises ConfigError, BindEnded and its kinds, and ClusterErrors.
    """
    async with job.bind() as bind:
        request = await source.request(bind.http)
        content = await source.content(bind.cluster)
        grant = response.Grant([request], content, response.remote_of(content, bind.networks))
        await bind.app.identity(write=True)
        seen = await bind.app.seen()
        return await tabled(bind, await bind.finish(SignedIn(grant), seen, bind.decision(seen)))


def _moved(content: bytes, namespace: str) -> bytes:
    """Return a kubeconfig whose current context leads to another namespace."""
    remote = response.parsed_kubeconfig(content)
    current = manifest.get_text(remote, "current-context")
    contexts = [
        manifest.put(one, namespace, "context", "namespace")
        if manifest.get_text(one, "name") == current
        else one
        for one in manifest.get_maps(remote, "contexts")
    ]
    moved = {**remote, "contexts": contexts}
    return yaml.dump(moved, Dumper=yaml.CSafeDumper, sort_keys=False, width=1 << 20).encode()
