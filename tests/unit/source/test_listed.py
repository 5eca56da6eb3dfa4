"""Lists of a fleet's files in kustomizations and Pods, beside the files."""

import pytest

from reconciler.fleet.files import Snapshot
from reconciler.source.gather import Unreadable
from reconciler.source.listed import problems

FLEET = Snapshot({"fleet.yaml": b"", "clusters/shop.yaml": b""}, "", "fleet.yaml")
BOTH = "[fleet.yaml, shop=clusters/shop.yaml]"
MOUNTED = "[{key: fleet.yaml, path: fleet.yaml}, {key: shop, path: clusters/shop.yaml}]"


def found(listed=BOTH, mounted=MOUNTED, *, name="fleet", above="", absent=()):
    """Return what a kustomization and a Pod lack; `above` is its folder."""
    volume = f"{{configMap: {{name: {name}, items: {mounted}}}}}"
    files = {
        f"{above}kustomization.yaml": "resources: [pod.yaml, https://x.example/y.yaml, ../z.yaml]\n"
        f"configMapGenerator: [{{name: fleet, files: {listed}}}]\n",
        f"{above}pod.yaml": f"spec: {{volumes: [{volume}]}}",
        **dict.fromkeys(FLEET.files, ""),
    }

    def load(path):
        if path not in files or path in absent:
            raise Unreadable("missing-file", "does not exist")
        return files[path].encode()

    kustomization = f"{above}kustomization.yaml"
    return [f"{one.origin}: {one.message}" for one in problems(kustomization, load, FLEET)]


SHOP = "clusters/shop.yaml"
LACKS = {
    "nothing": (found(), []),
    "a file": (
        found("[fleet.yaml]", "[{key: fleet.yaml, path: fleet.yaml}]"),
        [f"kustomization.yaml:2:43: leaves out {SHOP} of the fleet"],
    ),
    "a file that is gone": (
        found(absent={SHOP}),
        [f"kustomization.yaml:2:56: lists {SHOP}, which does not exist"],
    ),
    "a key": (
        found(mounted="[{key: fleet.yaml, path: fleet.yaml}]"),
        ["pod.yaml:1:51: leaves out key shop"],
    ),
    "its place": (
        found(mounted=MOUNTED.replace(SHOP, "x.yaml")),
        [f"pod.yaml:1:107: key shop is {SHOP}, and comes as x.yaml"],
    ),
    "nothing, from below": (
        found("[../fleet.yaml, shop=../clusters/shop.yaml]", above="deploy/"),
        [],
    ),
    "nothing, since another ConfigMap is mounted": (found(mounted="[{key: x}]", name="y"), []),
    "nothing, since it lists no fleet": (found("[a.txt]"), []),
    "nothing, since it is no list": (found("3"), []),
}


@pytest.mark.parametrize(("lacks", "want"), LACKS.values(), ids=LACKS)
def test_what_a_list_lacks(lacks, want):
    assert lacks == want
