"""`kubectl bind apiservice`: a bind by a request that is there, without a sign-in (D.4)."""

import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from klutchctl import files
from klutchctl.binding import provider, response
from klutchctl.binding.job import Job, tabled
from klutchctl.binding.response import Grant
from klutchctl.binding.signed_in import SignedIn
from reconciler import api
from reconciler.core import manifest, names, refs, yaml_text
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Ref
from reconciler.kube.cluster import Reader
from reconciler.web.outbound import Http

_COMMAND = "kubectl bind apiservice"


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
            raise ConfigError("either a URL or --file is needed, and not both", where=_COMMAND)
        if any(self.secret) != all(self.secret):
            both = "--remote-kubeconfig-namespace and --remote-kubeconfig-name need each other"
            raise ConfigError(both, where=_COMMAND)
        if not any(self.secret) and self.kubeconfig is None:
            needed = "a remote kubeconfig is needed: --remote-kubeconfig, or a Secret"
            raise ConfigError(needed, where=_COMMAND)

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
        grant = Grant([request], content, response.remote_of(content, bind.networks))
        await bind.app.identity(write=True)
        seen = await bind.app.seen()
        decision = bind.decision(seen)
        return await tabled(bind, await bind.finish(SignedIn(grant), seen, decision))


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
