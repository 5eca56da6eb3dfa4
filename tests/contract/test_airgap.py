"""The bundle for installations without a network: whole, and enough."""

import hashlib
import itertools
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from reconciler.core.refs import DEPLOYMENT
from tests.images import archive
from tests.release import archives, building, bundle
from tests.support import helm
from tests.support import programs as machines
from tests.support.books import ROOT
from tests.support.shells import ran

KINDS: Final = ("oci.tar", "cdx.json")  # of files, for each image
# The first of them builds Helm, where no earlier run did.
pytestmark = pytest.mark.timeout(1_800)
REGISTRY = "mirror.acme.example:5000"


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


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """Return the folder of a bundle, as it was unpacked, with images of one file each."""
    folder = tmp_path_factory.mktemp("airgap")
    images(folder)
    with building.checked_out(ROOT) as checkout:
        packed = [folder / f"{name}.{kind}" for name in building.IMAGES for kind in KINDS]
        packed += [*building.charts(checkout, folder), *building.crds(checkout, folder)]
        bundle.write(folder / "bundle.tar", checkout, packed)
    with tarfile.open(folder / "bundle.tar") as tar:
        tar.extractall(folder, filter="data")
    return folder / "bundle"


def listed(folder):
    """Return the digests and files of the list to mirror, by repository and tag."""
    lines = (folder / bundle.IMAGES).read_text().splitlines()
    return {image: (digest, file) for image, digest, file in map(str.split, lines)}


def test_each_image_of_the_list_is_in_the_archive_by_its_digest(unpacked):
    images = listed(unpacked)
    assert {file for _, file in images.values()} == {
        path.relative_to(unpacked).as_posix() for path in (unpacked / "images").glob("*.tar")
    }
    for digest, file in images.values():
        assert archive.read(unpacked / file).digest == digest


ALL: dict[str, dict[str, Any]] = {
    "klutch-bind": {
        "controlPlaneMode": {"enabled": True},
        "door": {"enabled": True},
        "osb": {"enabled": True, "dataservices": True},
    },
    "konnector": {"rbac": "Full"},
    "klutchctl-controller": {"monitoring": {"enabled": True}},
}


def test_charts_and_manifests_name_no_other_image(unpacked, tmp_path):
    """Each option of the charts is on, so that whatever they can run is seen."""
    charts = {path.name.rpartition("-")[0]: path for path in (unpacked / "charts").iterdir()}
    assert charts.keys() == ALL.keys()
    rendered = [helm.rendered(tmp_path, charts[name], values) for name, values in ALL.items()]
    texts = [json.dumps(one) for one in itertools.chain(*rendered)]
    texts += [path.read_text() for path in (unpacked / "manifests").rglob("*.yaml")]
    named = {one for text in texts for one in re.findall(r"[\w.-]+(?:/[\w.-]+)+:\d[\w.-]*", text)}
    assert named == {f"registry.example.com/{image}" for image in listed(unpacked)}
    every = {
        container["image"]
        for one in itertools.chain(*rendered)
        if one["kind"] == DEPLOYMENT.kind
        for container in one["spec"]["template"]["spec"]["containers"]
    }
    assert every == named  # and none by another form of a name


def test_crds_are_all_that_there_are(unpacked):
    files = [*(unpacked / "crds").iterdir()]
    made = [one for file in files for one in yaml.safe_load_all(file.read_text())]
    wanted = [path.stem for name in ("crds", "dataservices") for path in schemas(name)]
    assert sorted(one["metadata"]["name"] for one in made) == sorted(wanted)


def schemas(name):
    return (ROOT / "schemas" / name).glob("*.yaml")


# Only the loopback device, so that servers of a sandbox listen; and no route.
ALONE = """
set -eu
"$PYTHON" -c 'if True:
    import fcntl, socket, struct
    fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 1))
    try:
        socket.create_connection(("192.0.2.1", 443), 5)
    except OSError as error:
        assert error.strerror == "Network is unreachable", error
    else:
        raise SystemExit("the network is there")
'
trap '"$PYTHON" -m klutchctl sandbox down --delete >/dev/null' EXIT
"$PYTHON" -m klutchctl sandbox up --app-clusters 0 >/dev/null
export KUBECONFIG="$XDG_STATE_HOME/klutchctl/sandbox/default/kubeconfig"
export HELM_KUBECONTEXT=control-plane
. "$1" >&2
cd "$ROOT"
"$PYTHON" -c 'if True:
    import asyncio, json, os, pathlib
    from reconciler.core.refs import DEPLOYMENT
    from tests.support.programs import Machine
    async def workloads():
        machine = Machine(pathlib.Path(os.environ["HOME"]), {})
        async with machine.connect("control-plane") as cluster:
            return list((await cluster.list(DEPLOYMENT)).items)
    print(json.dumps(asyncio.run(workloads())))
'
"""
# Copies an image to a folder, in place of a registry.
SKOPEO = """#!/bin/sh
[ "$1 $2" = "copy --preserve-digests" ] && [ "$#" = 4 ] || exit 1
mkdir -p "$MIRROR/$(dirname "${4#docker://}")"
cp "${3#oci-archive:}" "$MIRROR/${4#docker://}"
"""


def has_own_network():
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(not has_own_network(), reason="needs root, for a network of its own")
def test_the_bundle_installs_as_it_says_with_every_outside_address_blocked(
    unpacked, programs, tmp_path
):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "helm").symlink_to(helm.program())
    (tools / "skopeo").write_text(SKOPEO)
    (tools / "skopeo").chmod(0o755)
    install = (unpacked / "INSTALL.md").read_text()
    steps = re.findall(r"```sh\n(.*?)```", install, re.DOTALL)
    (tmp_path / "steps.sh").write_text("\n".join([f"cd {unpacked}", *steps]))
    machine = machines.furnished(tmp_path, programs)
    own = {
        "HOME": str(tmp_path),
        "MIRROR": str(tmp_path / "mirror"),
        "PATH": f"{tools}:{machine.environ['PATH']}",
        "PYTHON": sys.executable,
        "REGISTRY": REGISTRY,
        "ROOT": str(ROOT),
    }
    alone = ["unshare", "--net", "bash", "-c", ALONE, "bash", tmp_path / "steps.sh"]
    done = ran(alone, cwd=ROOT, env={**machine.environ, **own})
    assert done.returncode == 0, done.stderr
    mirrored = {
        path.relative_to(tmp_path / "mirror").as_posix(): archive.read(path).digest
        for path in (tmp_path / "mirror").rglob("*")
        if path.is_file()
    }
    images = listed(unpacked)
    assert mirrored == {f"{REGISTRY}/{image}": digest for image, (digest, _) in images.items()}
    pulled = {
        container["image"]
        for one in json.loads(done.stdout)
        for container in one["spec"]["template"]["spec"]["containers"]
    }
    by_digest = {f"{name.rpartition(':')[0]}@{digest}" for name, digest in mirrored.items()}
    assert pulled == by_digest
