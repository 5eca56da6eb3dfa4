"""What a rollout does to pods and leadership, as a watch saw it, and an image to roll to."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from reconciler.core.manifest import Manifest, get_int, get_maps, get_text, labels_of, name_of
from reconciler.core.refs import Kind

POD: Final = Kind("", "v1", "Pod", "pods")


@dataclass
class Leaders:
    """Who held a Lease, and when it was renewed."""

    renewals: list[tuple[str, datetime]] = field(default_factory=list)

    def see(self, event: str, lease: Manifest) -> None:
        """Note a write of the Lease; one that gives it back renews it for nobody."""
        holder = get_text(lease, "spec", "holderIdentity")
        if event != "DELETED" and holder:
            renewed = datetime.fromisoformat(get_text(lease, "spec", "renewTime"))
            self.renewals.append((holder, renewed))

    def gaps(self) -> list[float]:
        """Return the seconds between the last renewal of each holder and the first of the next."""
        pairs = zip(self.renewals, self.renewals[1:], strict=False)
        return [(new - old).total_seconds() for (one, old), (other, new) in pairs if one != other]


@dataclass
class Pods:
    """The pods that there were, by their ReplicaSet, and how often a container began anew."""

    generations: dict[str, str] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)

    def see(self, _: str, pod: Manifest) -> None:
        name = name_of(pod)
        self.generations[name] = generation_of(pod)
        counts = [
            get_int(one, "restartCount") or 0
            for one in get_maps(pod, "status", "containerStatuses")
        ]
        self.restarts[name] = max([self.restarts.get(name, 0), *counts])

    def of(self, generation: str) -> set[str]:
        return {name for name, one in self.generations.items() if one == generation}


def generation_of(pod: Manifest) -> str:
    """Return what tells the ReplicaSet of a pod from others of the same Deployment."""
    return labels_of(pod)["pod-template-hash"]


def write_newer(source: Path, target: Path, *, name: str, tag: str) -> None:
    """Write an OCI archive again with a label more, and so another digest, as `name`:`tag`."""
    with tarfile.open(source) as archive:
        files = {
            one.name.removeprefix("./"): file.read()
            for one in archive
            if (file := archive.extractfile(one)) is not None
        }
    index = json.loads(files["index.json"])
    (image,) = index["manifests"]
    manifest = json.loads(files[_blob(image)])
    config = json.loads(files[_blob(manifest["config"])])
    config["config"].setdefault("Labels", {})["org.opencontainers.image.version"] = tag
    manifest["config"] = _put(files, config, manifest["config"])
    image = _put(files, manifest, image)
    image["annotations"] = {"org.opencontainers.image.ref.name": f"{name}:{tag}"}
    files["index.json"] = json.dumps({**index, "manifests": [image]}).encode()
    with tarfile.open(target, "w") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _blob(described: Mapping[str, Any]) -> str:
    return f"blobs/{described['digest'].replace(':', '/')}"


def _put(files: dict[str, bytes], value: Any, described: Mapping[str, Any]) -> dict[str, Any]:
    """Add a blob in place of the one that was described, and return how it is described."""
    content = json.dumps(value).encode()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    made = {**described, "digest": digest, "size": len(content)}
    files[_blob(made)] = content
    return made
