"""What a fleet has come to in both clusters, as a text that two runs of one story share.

Uids, times, versions and tokens differ between runs and stand as what they are of: a uid as the
object that bears it, a token as a token. So an owner that is gone, or a kubeconfig with a token
of yesterday, shows as a difference.
"""

import base64
import binascii
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconciler import api
from reconciler.core import field_set, keys, names, refs
from reconciler.core.errors import NotServed
from reconciler.core.manifest import Manifest, get_text, is_deleting, name_of, uid_of
from reconciler.core.refs import Kind, Ref
from tests.support.applying import Scene
from tests.support.clusters import LiveCluster

UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
# Of a token in a note of credentials: salted with the uid of the object that bears it. Of a process
# of a konnector: by chance.
_DIGEST: Final = re.compile(r'(?<=\\"token\\": \\")[0-9a-f]{16}|(?<="message": "test )[0-9a-f]{8}')
_OF_SPACE: Final = (
    refs.SERVICE_ACCOUNT,
    refs.SECRET,
    api.CLUSTER_BINDING,
    api.API_SERVICE_BINDING,
    api.API_SERVICE_EXPORT,
    api.API_SERVICE_EXPORT_REQUEST,
    api.API_SERVICE_NAMESPACE,
)
# What other tests have as well, without a place or a label of its own.
_SHARED: Final = frozenset({refs.NAMESPACE, refs.CRD, api.API_SERVICE_BINDING})
DROPPED: Final = ("resourceVersion", "generation", "creationTimestamp", "managedFields")
_OURS: Final = frozenset({keys.MANAGER_CLI, keys.MANAGER_NOTES})


@dataclass(frozen=True, slots=True)
class _Found:
    place: str
    kind: Kind
    live: Manifest

    @property
    def title(self) -> str:
        namespace = get_text(self.live, "metadata", "namespace")
        return f"{self.place} {self.kind.kind} {namespace}/{name_of(self.live)}"


async def end_state(scene: Scene) -> dict[str, str]:
    """Return every object of ours and of the service in both clusters, by its place."""
    found = [one async for one in _everything(scene)]
    tokens = {
        token: f"<token of {one.title}>"
        for one in found
        if one.kind == refs.SECRET and (token := _decoded(get_text(one.live, "data", "token")))
    }
    uids = {uid_of(one.live): f"<{one.title}>" for one in found}
    for live, place in ((scene.plane, "plane"), (scene.app, "app")):
        system = await live.cluster.get(Ref(live.name, refs.NAMESPACE, "", names.KUBE_SYSTEM))
        uids[uid_of(system or {})] = f"<the {place} cluster>"
    own = _own_words(scene)

    def told(text: str) -> str:
        for word, stands_for in (*tokens.items(), *own):
            text = text.replace(word, stands_for)
        text = UID.sub(lambda match: uids.get(match[0], "<what is gone>"), text)
        for word, stands_for in own:  # in the names of what a uid stands for
            text = text.replace(word, stands_for)
        return _DIGEST.sub("<digest>", TIME.sub("<time>", text))

    return {told(one.title): told(_text(one)) for one in found}


def differences(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """Return what only one of two states holds, for people."""
    return [
        f"{title}\n  - {one.get(title)}\n  + {other.get(title)}"
        for title in sorted(one.keys() | other.keys())
        if one.get(title) != other.get(title)
    ]


def _own_words(scene: Scene) -> list[tuple[str, str]]:
    """Return the words that differ between two stories, the longest first."""
    words = [
        (scene.space, "<space>"),
        (names.kubeconfig_secret(scene.space), "<kubeconfig secret>"),
        (scene.app_namespace, "<app namespace>"),
        (scene.offer.group, "<group>"),
        (scene.offer.group.partition(".")[0], "<group>"),
        (scene.fleet.name, "<fleet>"),
    ]
    return sorted(words, key=lambda pair: -len(pair[0]))


async def _everything(scene: Scene) -> AsyncIterator[_Found]:
    plane, app, bind = scene.plane, scene.app, names.KLUTCH_NAMESPACE
    service, fleet = scene.offer.kind, f"{keys.FLEET}={scene.fleet.name}"
    places = [
        *(("plane", kind, scene.space, "") for kind in _OF_SPACE),
        *(("plane", kind, scene.fleet.name, "") for kind in (api.APP_CLUSTER_BINDING, refs.SECRET)),
        ("plane", refs.NAMESPACE, "", ""),
        ("plane", service, "", ""),
        ("app", api.API_SERVICE_BINDING, bind, ""),
        *(("app", kind, bind, fleet) for kind in (refs.SECRET, refs.SERVICE_ACCOUNT)),
        *(("app", kind, "", fleet) for kind in (refs.CLUSTER_ROLE, refs.CLUSTER_ROLE_BINDING)),
        ("app", refs.CRD, "", ""),
        ("app", service, "", ""),
        ("app", refs.SECRET, scene.app_namespace, ""),
    ]
    for place, kind, namespace, labels in places:
        live = plane if place == "plane" else app
        for one in await _listed(live, kind, namespace, labels=labels):
            if kind not in _SHARED or name_of(one).startswith(_names(scene)):
                yield _Found(place, kind, one)


def _names(scene: Scene) -> tuple[str, ...]:
    """Return how what is the scene's is called where other tests are as well."""
    return scene.space, scene.fleet.name, scene.offer.name


async def _listed(
    live: LiveCluster, kind: Kind, namespace: str, *, labels: str
) -> Sequence[Manifest]:
    try:
        return (await live.cluster.list(kind, namespace=namespace, labels=labels)).items
    except NotServed:
        return ()


def _text(found: _Found) -> str:
    live: dict[str, Any] = json.loads(json.dumps(found.live))
    metadata = live["metadata"]
    ours = sorted("/".join(path) for path in _leaves(found.live)) if found.kind != refs.CRD else []
    for key in DROPPED:
        metadata.pop(key, None)
    metadata["deleting"] = is_deleting(found.live)
    if found.kind == refs.SECRET:
        data = {key: _decoded(value) for key, value in live.get("data", {}).items()}
        live["data"] = {key: value for key, value in data.items() if key != "ca.crt"}
    if found.kind in (refs.CRD, refs.NAMESPACE):
        live = {"metadata": metadata}
    return json.dumps([live, ours], sort_keys=True).replace("\\n", "\n")


def _leaves(live: Manifest) -> set[tuple[str, ...]]:
    """Return the fields that are ours; whether by POST or by apply is a matter of history."""
    paths = set(field_set.paths(field_set.owned(live, *_OURS)))
    inner = {path[:length] for path in paths for length in range(len(path))}
    return {path for path in paths - inner if path[-1] != "f:kubernetes.io/metadata.name"}


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value).decode()
    except (binascii.Error, UnicodeDecodeError):
        return value
