"""A whole release, with real images and plug-ins, twice."""

import filecmp
import os
import sys
import tarfile

import pytest

from tests.images import base
from tests.support.books import ROOT
from tests.support.shells import ran

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(7_200),
    pytest.mark.skipif(bool(base.missing()), reason=base.missing() or "images are built"),
]


def released(output, *options):
    command = [sys.executable, "-m", "tests.release", "--output", str(output), *options]
    done = ran(command, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_a_release_is_the_same_from_its_first_layer_and_its_plug_in_starts(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    released(first)
    released(second, "--fresh")
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    assert filecmp.cmpfiles(first, second, names, shallow=False) == (names, [], [])

    (archive,) = first.glob("kubectl-klutchctl-*-linux-amd64.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "plug-in", filter="data")
    command = [tmp_path / "plug-in" / "kubectl-klutchctl", "validate", ROOT / "fleet-example"]
    started = ran(command, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    assert (started.returncode, started.stderr) == (0, "")
    assert "10 units" in started.stdout
