"""Versions of builds, as a ClusterBinding tells them (protocol-konnector.md B, G 21 to 23)."""

from importlib import metadata

import pytest

from konnector.version import konnector_version

BUILDS = {
    "G 21: a release": ("v1.25.2+kube-bind-v0.0.15", "v0.0.15"),
    "G 22: a branch": ("v0.0.0-master+$Format:%H$", "v0.0.0"),
    "commits after a release": ("v1.32.0+kube-bind-v1.5.0-12-gabc", "v1.5.0"),
    "our own": ("0.1.0", "v0.1.0"),
    "our own, before a release": ("1.2.3rc1.dev4+g1234abc", "v1.2.3"),
    "G 23: another prefix": ("v1.25.2+other-v0.0.15", None),
    "G 23: no version after the prefix": ("v1.25.2+kube-bind-master", None),
    "G 23: nothing after the prefix": ("v1.25.2+kube-bind-", None),
    "G 23: garbage": ("garbage", None),
    "G 23: a version of something else": ("v1.25.2", None),
    "nothing": ("", None),
    "a line too many": ("0.1.0\n", None),
}


@pytest.mark.parametrize(("build", "want"), BUILDS.values(), ids=BUILDS.keys())
def test_versions(build, want):
    assert konnector_version(build) == want


def test_our_own_distribution_says_its_version():
    assert konnector_version(metadata.version("klutchctl")) is not None
