"""Laws of reading a fleet repository, for whatever hypothesis comes up with."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.fleet.files import Patterns, Snapshot
from reconciler.fleet.load import load
from reconciler.fleet.wording import CODES
from tests.support.bad_fleets import INVALID
from tests.support.fleet_texts import API, GOOD, POLICY, tree

CANARY = "hunter2canary"
KINDS = ["Fleet", "ControlPlane", "Cluster", "Template", "Binding", "Policy", "Bindng"]
WORDS = [
    "spec", "metadata", "name", "labels", "include", "vars", "prune", "mode", "access",
    "kubeconfigContext", "inCluster", "controlPlane", "konnector", "deploy", "image", "template",
    "resources", "group", "resource", "clusters", "matchLabels", "matchExpressions", "names",
    "optional", "parameters", "claims", "owner", "dependsOn", "paths", "allow", "templates",
    "acme", "eu", "shop", "pg", "db", "*", "*/*.yaml", "**", "../x", "Provider", "Direct", "off",
    "${cluster.name}", "${vars.x}", "${cluster.labels.env}", "$${x}", "${", CANARY,
]  # fmt: skip
SCALARS = st.sampled_from(WORDS) | st.none() | st.booleans() | st.integers(-3, 3) | st.floats()
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)
    ),
    max_leaves=12,
)


def flow(value):
    """Write a value as YAML that our reader takes: JSON, and words as they are."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float():
            return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(str(value), str(value))
        case list():
            return f"[{', '.join(map(flow, value))}]"
        case dict():
            return "{" + ", ".join(f"'{key}': {flow(one)}" for key, one in value.items()) + "}"
        case _:
            return f"'{value}'"


@st.composite
def documents(draw):
    metadata = draw(VALUES | st.just({"name": "shop"}) | st.just({"name": "db"}))
    lines = [f"kind: {draw(st.sampled_from(KINDS))}", f"metadata: {flow(metadata)}"]
    return API + "\n".join([*lines, f"spec: {flow(draw(VALUES))}", ""])


PATHS = st.sampled_from(["fleet.yaml", "bindings/x.yaml", "clusters/y.yaml", "ca.pem", "t/z.yaml"])
TEXTS = documents() | st.text(max_size=40)
TREES = st.dictionaries(PATHS, TEXTS, max_size=4)


def is_reported(problems):
    assert all(problem.code in CODES for problem in problems)
    assert all(problem.message.isprintable() for problem in problems)
    return True


@given(TREES | st.dictionaries(PATHS, st.binary(max_size=60), max_size=3))
@example({"fleet.yaml": "a: *b"})
def test_whatever_is_written_gives_a_fleet_or_problems(changes):
    fleet, problems = load(tree(changes))
    assert is_reported(problems)
    assert fleet is not None or problems


@given(st.sampled_from(sorted(INVALID)), st.data())
def test_a_changed_byte_never_breaks_the_loader(name, data):
    files = dict(tree(INVALID[name]).files)
    path = data.draw(st.sampled_from(sorted(files)))
    content = bytearray(files[path])
    if content:
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    assert is_reported(load(Snapshot({**files, path: bytes(content)}, ""))[1])


@given(st.sampled_from(["value", "label", "parameter", "endpoint", "image", "ca"]), st.data())
def test_no_value_is_quoted(place, data):
    # In no place where a secret could end up by mistake.
    odd = data.draw(st.sampled_from(["", " ", "\n", ": ", "!", "@", "${", "}"]))
    text = (odd + CANARY + odd).replace("\n", "\\n")
    spec = {
        "value": f'access: {{kubeconfigContext: shop}}, controlPlane: eu, identity: "{text}"',
        "label": 'access: {kubeconfigContext: shop}, controlPlane: "' + text + '"',
        "parameter": f'access: "{text}", controlPlane: eu',
        "endpoint": f'access: {{kubeconfigContext: shop}}, controlPlane: eu, endpoint: "{text}"',
        "image": 'access: {inCluster: true}, controlPlane: eu, konnector: {image: "' + text + '"}',
        "ca": f'access: {{inCluster: true}}, controlPlane: eu, suspend: {{reason: ["{text}"]}}',
    }[place]
    changes = {
        "clusters/shop.yaml": f"{API}kind: Cluster\nmetadata: {{name: shop}}\nspec: {{{spec}}}\n"
    }
    if place == "label" and not odd.strip():
        return  # the name of a control plane that does not exist is told
    assert not any(CANARY in str(problem) for problem in load(tree(changes))[1])


@given(st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_matter(order):
    files = list(tree({"policies/p.yaml": POLICY}).files.items())
    order.shuffle(files)
    assert load(Snapshot(dict(files), "")) == load(tree({"policies/p.yaml": POLICY}))


@given(st.randoms(use_true_random=False))
def test_the_order_of_documents_changes_only_places(order):
    texts = [text for path, text in GOOD.items() if path != "fleet.yaml"]
    order.shuffle(texts)
    fleet, problems = load(Snapshot({"fleet.yaml": "---\n".join([FLEET, *texts]).encode()}, ""))
    assert problems == ()
    assert fleet is not None
    assert placeless(fleet) == placeless(load(tree())[0])


FLEET = GOOD["fleet.yaml"].replace("include: ['*/*.yaml'], ", "")


def placeless(fleet):
    """Return what a fleet says, without where it says so."""
    return (
        [replace(one, origin=None) for one in fleet.clusters.values()],
        [replace(one, origin=None) for one in fleet.control_planes.values()],
        [
            replace(
                one, origin=None, claims=tuple(replace(claim, origin=None) for claim in one.claims)
            )
            for one in fleet.units.values()
        ],
    )


NAMES = st.text("ab.*", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
SEGMENTS = st.lists(NAMES, min_size=1, max_size=4)


@given(SEGMENTS)
def test_every_path_matches_itself(segments):
    path = "/".join(segment.replace("*", "b") for segment in segments)
    assert Patterns([path]).matches(path)


@given(SEGMENTS, SEGMENTS)
def test_two_stars_cover_what_any_pattern_matches(pattern, path):
    names = [name.replace("*", "b").replace(".", "a") for name in path]
    if Patterns(["/".join(pattern)]).matches("/".join(names)):
        assert Patterns(["**"]).matches("/".join(names))


def test_the_texts_are_what_they_seem():
    assert load(tree())[0] is not None
