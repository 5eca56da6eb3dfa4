"""Releases for tests: images of one file each, in archives as real ones are."""

import hashlib
import json
from pathlib import Path
from typing import Final

from tests.release import archives, building

KINDS: Final = ("oci.tar", "cdx.json")  # of files, for each image


def image(path: Path, content: bytes) -> str:
    """Write an OCI archive of an image, and return its digest."""
    blobs = dict([_blob(content), _blob(b'{"config": {}}')])
    layer, config = blobs
    described = {
        "schemaVersion": 2,
        "config": {"digest": f"sha256:{config}"},
        "layers": [{"digest": f"sha256:{layer}", "size": len(content)}],
    }
    name, manifest = _blob(json.dumps(described).encode())
    index = {"schemaVersion": 2, "manifests": [{"digest": f"sha256:{name}"}]}
    files: dict[str, Path | bytes] = {
        "index.json": json.dumps(index).encode(),
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        **{f"blobs/sha256/{one}": text for one, text in {**blobs, name: manifest}.items()},
    }
    archives.pack(path, files, epoch=0, gzipped=False)
    return f"sha256:{name}"


def _blob(content: bytes) -> tuple[str, bytes]:
    return hashlib.sha256(content).hexdigest(), content


def images(folder: Path) -> dict[str, str]:
    """Write an image and an SBOM for each program into a folder; return digests by names."""
    for name in building.IMAGES:
        (folder / f"{name}.cdx.json").write_text("{}")
    return {name: image(folder / f"{name}.oci.tar", name.encode()) for name in building.IMAGES}
