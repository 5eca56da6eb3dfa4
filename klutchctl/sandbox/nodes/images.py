"""OCI archives that nodes get, since no registry is needed: named for the shipped manifests."""

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from klutchctl.sandbox.nodes.pause import Machine
from reconciler.core.errors import ConfigError

_REGISTRY: Final = "registry.example.com/klutchctl"
_REFERENCE: Final = "org.opencontainers.image.ref.name"
_CONTAINERD: Final = "io.containerd.image.name"
_WHOLE: Final = re.compile(r"[^/]+[.:][^/]*/.+|localhost/.+")
_LAYOUT: Final = b'{"imageLayoutVersion": "1.0.0"}'
# What reading another file, or a part of one, may end with.
_NOT_ONE: Final = (
    *(OSError, EOFError, tarfile.TarError, ValueError),
    *(LookupError, TypeError, AttributeError),
)


@dataclass(frozen=True, slots=True)
class Archive:
    """An OCI archive with one image, the name that it gets in a node, and the digest there."""

    path: Path
    name: str
    digest: str


def read_folder(folder: Path) -> Sequence[Archive]:
    """Return the archives (*.tar) of a folder.

    Raises ConfigError where there is none, and for two of one name: each would replace the other.
    """
    if not folder.is_dir():
        raise ConfigError("is no folder", where=str(folder))
    found = [read(path) for path in sorted(folder.glob("*.tar"))]
    if not found:
        raise ConfigError(
            "holds no image",
            where=str(folder),
            hint="Images are OCI archives there, with names that end with .tar",
        )
    paths: dict[str, Path] = {}
    for one in found:
        other = paths.setdefault(one.name, one.path)
        if other != one.path:
            message = f"holds {one.name}, the same image as {other.name}"
            raise ConfigError(message, where=str(one.path), hint="Leave one of them there")
    return found


def read(path: Path) -> Archive:
    """Return what an archive says of its image. Raises ConfigError."""
    try:
        with tarfile.open(path) as archive:
            index = archive.extractfile("index.json")
            content = index.read() if index else b""
            (image,) = json.loads(content)["manifests"]
            name = _name(path, image.get("annotations") or {})
            return Archive(path, name, _digest(content))
    except _NOT_ONE as error:
        raise ConfigError(
            "is no OCI archive with one image", where=str(path), hint="`make images` writes some"
        ) from error


def _name(path: Path, annotations: Mapping[str, str]) -> str:
    """Return the name of an image: a plain word is that of one of ours, as manifests have it."""
    said = annotations.get(_CONTAINERD) or annotations.get(_REFERENCE) or path.name.split(".")[0]
    if _WHOLE.fullmatch(said):
        return said if ":" in said.rpartition("/")[2] else f"{said}:latest"
    name, _, tag = said.partition(":")
    return f"{_REGISTRY}/{name}:{tag or metadata.version('klutchctl')}"


def pause(machine: Machine) -> bytes:
    """Return an OCI archive, the same each time, whose only file is the program that waits."""
    layer = _tar({"pause": (machine.program(), 0o755)})
    run = {"Entrypoint": ["/pause"], "User": "65535:65535"}
    root = {"type": "layers", "diff_ids": [_digest(layer)]}
    config = _json(
        {"architecture": machine.architecture, "os": "linux", "config": run, "rootfs": root}
    )
    described = _described(config, "config.v1+json")
    layers = [_described(layer, "layer.v1.tar")]
    manifest = _json({"schemaVersion": 2, "config": described, "layers": layers})
    index = _json({"schemaVersion": 2, "manifests": [_described(manifest, "manifest.v1+json")]})
    blobs = {f"blobs/{_digest(one).replace(':', '/')}": one for one in (layer, config, manifest)}
    files = {"oci-layout": _LAYOUT, "index.json": index, **blobs}
    return _tar({name: (content, 0o644) for name, content in files.items()})


def _described(content: bytes, kind: str) -> Mapping[str, Any]:
    media_type = f"application/vnd.oci.image.{kind}"
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _tar(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()
