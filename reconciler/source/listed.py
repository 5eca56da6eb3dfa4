"""Compares the lists that pipelines keep of a fleet's files with the files themselves. Pure.

Flux and Argo CD bring files as a ConfigMap: a kustomization lists them, and a Pod lists the keys
that it mounts. Neither complains of a file that is left out, and without it, its units are
released. Files are named relative to the fleet's folder.
"""

import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from reconciler.core.errors import Origin, Problem, Severity
from reconciler.core.yaml_text import Fields, Items, Node, UnreadableText, read, read_all
from reconciler.fleet.files import Snapshot
from reconciler.source.gather import Unreadable

_YAML: Final = (".yaml", ".yml")
KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")


def problems(path: str, load: Callable[[str], bytes], snapshot: Snapshot) -> Iterator[Problem]:
    """Yield what the lists of the kustomization at `path` leave out, or have without a file.

    `load` returns the content of a file, and raises Unreadable. What is no kustomization is left
    to Kustomize.
    """
    try:
        document = read(load(path), path)
        generators = document.sections("configMapGenerator")
        resources = [_beside(path, one) for one in document.texts("resources")]
        resources = [one for one in resources if one.endswith(_YAML) and _is_inside(one)]
        for generator in generators:
            listed = dict(_listed(path, generator))
            if listed.keys() & snapshot.files.keys():
                yield from _differing(generator, listed, load, snapshot)
                keys = {key: file for file, (key, _) in listed.items()}
                for resource in resources:
                    yield from _unmounted(resource, load, generator.text("name"), keys)
    except (UnreadableText, Unreadable):
        return


def _beside(path: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), name))


def _is_inside(path: str) -> bool:
    return not path.startswith(("/", "../")) and ":" not in path  # no URL either


def _listed(path: str, generator: Fields) -> Iterator[tuple[str, tuple[str, Origin]]]:
    """Yield each file, with its key and the place of its line."""
    for number, entry in enumerate(generator.texts("files")):
        key, _, file = entry.rpartition("=")
        files = generator.nodes["files"]
        assert isinstance(files, Items)
        if _is_inside(file := _beside(path, file)):
            yield file, (key or posixpath.basename(file), files.nodes[number].origin)


def _differing(
    generator: Fields,
    listed: Mapping[str, tuple[str, Origin]],
    load: Callable[[str], bytes],
    snapshot: Snapshot,
) -> Iterator[Problem]:
    for file in sorted(snapshot.files.keys() - listed.keys()):
        hint = f"Add the line `- {file.replace('/', '.')}={file}`"
        yield _warning(generator.at("files"), f"leaves out {file} of the fleet", hint)
    for file, (_, origin) in listed.items():
        try:
            load(file)
        except Unreadable as error:
            yield _warning(origin, f"lists {file}, which {error.message}", "Take its line away")


def _unmounted(
    path: str, load: Callable[[str], bytes], name: str, keys: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield the keys of ConfigMap `name` that a volume in the file at `path` leaves out."""
    for volume in (one for node in read_all(load(path), path) for one in _volumes(node)):
        items = {item.text("key"): item for item in volume.sections("items")}
        if volume.text("name") != name or not items:
            continue
        for key in sorted(keys.keys() - items.keys()):
            hint = f"Add the line `- {{key: {key}, path: {keys[key]}}}`"
            yield _warning(volume.at("items"), f"leaves out key {key}", hint)
        for key, item in items.items():
            if keys.get(key, item.text("path")) != item.text("path"):
                wrong = f"key {key} is {keys[key]}, and comes as {item.text('path')}"
                yield _warning(item.at("path"), wrong, f"Let it come as {keys[key]}")


def _warning(origin: Origin, message: str, hint: str) -> Problem:
    return Problem(origin, "unlisted-file", message, hint, severity=Severity.WARNING)


def _volumes(node: Node) -> Iterator[Fields]:
    """Yield each mapping that stands at a key `configMap`."""
    if isinstance(node, Items):
        for one in node.nodes:
            yield from _volumes(one)
    elif isinstance(node, Fields):
        for key, one in node.nodes.items():
            if key == "configMap" and isinstance(one, Fields):
                yield one
            yield from _volumes(one)
