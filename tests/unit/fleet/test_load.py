"""What a fleet repository means once it is resolved."""

import pytest

from reconciler.fleet.files import Snapshot
from reconciler.fleet.load import load
from reconciler.fleet.values import Claim, DeletionPolicy, Mode, Owner, PruneMode, Rbac, UnitKey
from tests.support.fleet_texts import ACB_CONTROL_PLANE, GOOD, TEMPLATE, document, tree

SHOP = UnitKey("shop", "gi.o", "pgs")


def loaded(changes=None):
    fleet, problems = load(tree(changes or {}))
    assert problems == ()
    assert fleet is not None
    return fleet


def db(more):
    spec = f"{{template: pg, clusters: {{names: [shop]}}, {more}}}"
    return {"bindings/db.yaml": document("Binding", "db", spec, labels="{owner: team-a}")}


def cluster(more, name="shop", labels="{env: prod}"):
    spec = f"{{access: {{kubeconfigContext: {name}}}, controlPlane: eu{more}}}"
    return document("Cluster", name, spec, labels=labels)


def test_the_smallest_fleet():
    fleet = loaded()
    assert fleet.name == "acme"
    assert str(fleet.origin) == "fleet.yaml:3:18"
    assert fleet.guards.mode is PruneMode.AUTO
    assert fleet.documents == dict.fromkeys(
        ("Fleet", "ControlPlane", "Cluster", "Template", "Binding"), 1
    )
    assert list(fleet.units) == [SHOP]
    unit = fleet.units[SHOP]
    assert (unit.binding, unit.template, str(unit.origin)) == ("db", "pg", "bindings/db.yaml:3:18")
    assert unit.deletion_policy is DeletionPolicy.RELEASE
    home = fleet.control_planes["eu"]
    assert (home.mode, home.namespace, str(home.access)) == (
        Mode.DIRECT,
        "klutch-fleet",
        "context/cp",
    )
    assert fleet.clusters["shop"].app_cluster_binding == ("klutch-fleet", "shop")


def test_a_fleet_in_one_file():
    text = "---\n".join(
        [document("Fleet", "acme", "{}"), *(GOOD[path] for path in GOOD if path != "fleet.yaml")]
    )
    fleet, problems = load(Snapshot({"klutch-fleet.yaml": text.encode()}, "abc"))
    assert problems == ()
    assert fleet is not None
    assert (fleet.revision, list(fleet.units)) == ("abc", [SHOP])


ACCESS = {
    "a context": ("{kubeconfigContext: x}", "context/x"),
    "a Secret": ("{secretRef: {name: a, key: b}}", "secret/a/b"),
    "in the cluster": ("{inCluster: true}", "in-cluster"),
}


@pytest.mark.parametrize(("access", "want"), ACCESS.values(), ids=ACCESS.keys())
def test_access(access, want):
    text = document("ControlPlane", "eu", f"{{access: {access}}}")
    assert str(loaded({"planes/eu.yaml": text}).control_planes["eu"].access) == want


GUARDS = {
    "off without quotes, which is false to YAML": ("mode: off", "mode", PruneMode.OFF),
    "off": ("mode: 'off'", "mode", PruneMode.OFF),
    "report": ("mode: report", "mode", PruneMode.REPORT),
    "a limit": ("maxDeletes: 0", "max_deletes", 0),
    "a percentage": ("maxDeletePercent: 100", "max_delete_percent", 100),
    "empty": ("allowEmpty: true", "allow_empty", True),
    "in use": ("keepIfInUse: false", "keep_if_in_use", False),
    "leaving": ("onClusterLeave: Block", "on_cluster_leave", DeletionPolicy.BLOCK),
}


@pytest.mark.parametrize(("text", "name", "want"), GUARDS.values(), ids=GUARDS.keys())
def test_guards(text, name, want):
    fleet = document("Fleet", "acme", f"{{include: ['*/*.yaml'], prune: {{{text}}}}}")
    assert getattr(loaded({"fleet.yaml": fleet}).guards, name) == want


DEFAULTS = "{image: 'r/k:1', rbac: Full, overrides: {env: [a], resources: {limits: {cpu: 1}}}}"
KONNECTORS = {
    "nothing said": ("", (False, "r/k:1", Rbac.FULL)),
    "deployed": (", konnector: {deploy: true}", (True, "r/k:1", Rbac.FULL)),
    "its own image": (", konnector: {deploy: true, image: 'r/k:2'}", (True, "r/k:2", Rbac.FULL)),
    "its own rights": (", konnector: {rbac: Minimal}", (False, "r/k:1", Rbac.MINIMAL)),
}


@pytest.mark.parametrize(("more", "want"), KONNECTORS.values(), ids=KONNECTORS.keys())
def test_the_fleets_konnector_is_under_the_clusters(more, want):
    fleet = document("Fleet", "acme", f"{{include: ['*/*.yaml'], konnector: {DEFAULTS}}}")
    found = loaded({"fleet.yaml": fleet, "clusters/shop.yaml": cluster(more)})
    konnector = found.clusters["shop"].konnector
    assert (konnector.deploy, konnector.image, konnector.rbac) == want
    assert konnector.overrides == {"env": ["a"], "resources": {"limits": {"cpu": 1}}}


def test_overrides_are_merged_key_by_key():
    fleet = document("Fleet", "acme", f"{{include: ['*/*.yaml'], konnector: {DEFAULTS}}}")
    more = ", konnector: {overrides: {env: [b], resources: {limits: {memory: 1Gi}}}}"
    found = loaded({"fleet.yaml": fleet, "clusters/shop.yaml": cluster(more)})
    assert found.clusters["shop"].konnector.overrides == {
        "env": ["b"],
        "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
    }


SUBSTITUTED = {
    "a cluster's name": ("${cluster.name}", "shop"),
    "a label": ("${cluster.labels.env}", "prod"),
    "a label with a prefix": ("${cluster.labels.x.io/y}", "z"),
    "a variable": ("a-${vars.tier}-b", "a-gold-b"),
    "several": ("${vars.tier}${cluster.name}", "goldshop"),
    "what a variable holds is not looked at": ("${vars.odd}", "${cluster.name}"),
    "an escape": ("$${cluster.name}", "${cluster.name}"),
    "a dollar": ("$5 $x $", "$5 $x $"),
}


@pytest.mark.parametrize(("text", "want"), SUBSTITUTED.values(), ids=SUBSTITUTED.keys())
def test_substitution_in_parameters(text, want):
    variables = "{tier: gold, odd: '$${cluster.name}'}"
    changes = {
        "fleet.yaml": document("Fleet", "acme", f"{{include: ['*/*.yaml'], vars: {variables}}}"),
        "clusters/shop.yaml": cluster("", labels="{env: prod, x.io/y: z}"),
        **db(f"parameters: {{a: ['{text}', 1], '{text}': null}}"),
    }
    # Only values are replaced: keys are as written.
    assert loaded(changes).units[SHOP].parameters == {"a": [want, 1], text: None}


def test_substitution_elsewhere():
    changes = {
        "fleet.yaml": document(
            "Fleet",
            "acme",
            "{include: ['*/*.yaml'], vars: {domain: example.com, service: pg},"
            " konnector: {image: 'r/${cluster.labels.env}:1'}}",
        ),
        "planes/eu.yaml": document(
            "ControlPlane", "eu", "{access: {inCluster: true}, endpoint: 'https://${vars.domain}'}"
        ),
        "clusters/shop.yaml": cluster(
            ", endpoint: 'https://${cluster.name}.${vars.domain}:6443', konnector: {deploy: true}"
        ),
        "bindings/db.yaml": document(
            "Binding", "db", "{template: '${vars.service}', clusters: {names: [shop]}}"
        ),
    }
    fleet = loaded(changes)
    assert fleet.control_planes["eu"].endpoint == "https://example.com"
    assert fleet.clusters["shop"].endpoint == "https://shop.example.com:6443"
    assert fleet.clusters["shop"].konnector.image == "r/prod:1"
    assert SHOP in fleet.units


def claims(changes):
    return loaded(changes).units[SHOP].claims


def brief(claim: Claim):
    return (claim.resource, claim.owner, claim.names, claim.namespaces, claim.accepted)


def test_without_claims_a_binding_has_those_of_its_template():
    (claim,) = claims({})
    assert brief(claim) == ("secrets", Owner.PROVIDER, ("a", "b"), ("*",), True)
    assert str(claim.origin) == "templates/pg.yaml:4:60"


CLAIM = "resource: secrets, version: v1, owner: Provider"
CLAIMS = {
    "none": ("claims: []", []),
    "some of the names": (
        f"claims: [{{{CLAIM}, names: [b]}}]",
        [("secrets", Owner.PROVIDER, ("b",), ("*",), True)],
    ),
    "some namespaces": (
        f"claims: [{{{CLAIM}, names: [b], namespaces: [x]}}]",
        [("secrets", Owner.PROVIDER, ("b",), ("x",), True)],
    ),
    "objects without a namespace": (
        f"claims: [{{{CLAIM}, names: [b], namespaces: []}}]",
        [("secrets", Owner.PROVIDER, ("b",), (), True)],
    ),
    "a rejected claim may reach further": (
        f"claims: [{{{CLAIM}, state: Rejected}}]",
        [("secrets", Owner.PROVIDER, ("*",), ("*",), False)],
    ),
    "only some labels": (
        f"claims: [{{{CLAIM}, names: [b], labels: {{x: v}}}}]",
        [("secrets", Owner.PROVIDER, ("b",), ("*",), True)],
    ),
}


@pytest.mark.parametrize(("more", "want"), CLAIMS.values(), ids=CLAIMS.keys())
def test_claims(more, want):
    assert [brief(one) for one in claims(db(more))] == want


LABEL_CEILINGS = {
    "the same": ("{x: v}", True),
    "more labels, so fewer objects": ("{x: v, z: w}", True),
    "another value": ("{x: z}", False),
    "one map inside and one outside": ("[{x: v}, {z: w}]", False),
    "no labels, so all objects": ("[]", False),
}


@pytest.mark.parametrize(("labels", "within"), LABEL_CEILINGS.values(), ids=LABEL_CEILINGS.keys())
def test_labels_of_claims(labels, within):
    template = TEMPLATE.replace("names: [a, b]", "labels: {x: v}")
    changes = {"templates/pg.yaml": template, **db(f"claims: [{{{CLAIM}, labels: {labels}}}]")}
    problems = load(tree(changes))[1]
    assert [one.code for one in problems] == ([] if within else ["claim-outside-ceiling"])


NAMESPACE_CEILINGS = {
    "all, and one": ('"*"', "x", True),
    "all, and one of the cluster itself": ('"*"', "x, kube-system", False),
    "one of the cluster itself that is named": ("x, kube-system", "kube-system", True),
}


@pytest.mark.parametrize(
    ("most", "asked", "within"), NAMESPACE_CEILINGS.values(), ids=NAMESPACE_CEILINGS.keys()
)
def test_namespaces_of_the_cluster_itself_are_in_a_ceiling_that_names_them(most, asked, within):
    template = TEMPLATE.replace("names: [a, b]", f"names: ['*'], namespaces: [{most}]")
    changes = {"templates/pg.yaml": template, **db(f"claims: [{{{CLAIM}, namespaces: [{asked}]}}]")}
    problems = load(tree(changes))[1]
    assert [one.code for one in problems] == ([] if within else ["claim-outside-ceiling"])


def test_claims_may_differ_per_cluster():
    template = TEMPLATE.replace("names: [a, b]", "names: ['${cluster.name}-creds']")
    (claim,) = claims({"templates/pg.yaml": template})
    assert claim.names == ("shop-creds",)
    own = db(f"claims: [{{{CLAIM}, names: ['${{cluster.name}}-creds']}}]")
    assert len(claims({"templates/pg.yaml": template, **own})) == 1


def test_dependencies_are_units_of_the_same_cluster():
    changes = {
        "clusters/x.yaml": cluster("", "x", "{}"),
        "bindings/net.yaml": document(
            "Binding",
            "net",
            "{resources: [{group: gi.o, resource: bs}, {group: gi.o, resource: as}],"
            " clusters: {names: [shop, x]}}",
        ),
        **db("dependsOn: [net]"),
    }
    assert loaded(changes).units[SHOP].depends_on == (
        UnitKey("shop", "gi.o", "as"),
        UnitKey("shop", "gi.o", "bs"),
    )


SELECTORS = {
    "labels": ("{matchLabels: {env: prod}}", "a b"),
    "two labels": ("{matchLabels: {env: prod, eu: x}}", "a"),
    "In": ("{matchExpressions: [{key: env, operator: In, values: [test, dev]}]}", "c"),
    "NotIn, also without the label": (
        "{matchExpressions: [{key: env, operator: NotIn, values: [prod]}]}",
        "c d",
    ),
    "Exists": ("{matchExpressions: [{key: eu, operator: Exists}]}", "a"),
    "DoesNotExist": ("{matchExpressions: [{key: env, operator: DoesNotExist}]}", "d"),
    "labels and expressions": (
        "{matchLabels: {env: prod}, matchExpressions: [{key: eu, operator: DoesNotExist}]}",
        "b",
    ),
    "names add": ("{matchLabels: {env: prod}, names: [d]}", "a b d"),
    "exclude takes away": ("{matchLabels: {env: prod}, names: [d], exclude: [a, d]}", "b"),
    "nothing, where that is allowed": ("{matchLabels: {env: x}, optional: true}", ""),
    "no selector, where that is allowed": ("{optional: true}", ""),
}


@pytest.mark.parametrize(("selector", "want"), SELECTORS.values(), ids=SELECTORS.keys())
def test_selectors(selector, want):
    labels = {"a": "{env: prod, eu: x}", "b": "{env: prod}", "c": "{env: test}", "d": "{}"}
    changes = {f"clusters/{name}.yaml": cluster("", name, text) for name, text in labels.items()}
    changes["clusters/shop.yaml"] = None
    spec = f"{{template: pg, clusters: {selector}}}"
    changes["bindings/db.yaml"] = document("Binding", "db", spec)
    assert [key.cluster for key in loaded(changes).units] == want.split()


def test_an_optional_include_may_match_nothing():
    spec = "{include: ['*/*.yaml', {glob: 'none/*', optional: true}]}"
    assert loaded({"fleet.yaml": document("Fleet", "acme", spec)})


def test_files_that_are_not_included_do_not_count():
    assert loaded({"notes.yaml": "helm: {}", "deep/er/x.yaml": "["}).digest == loaded().digest


def test_the_digest_covers_paths_and_bytes():
    digests = {
        loaded(changes).digest
        for changes in (
            {},
            {"bindings/db.yaml": GOOD["bindings/db.yaml"] + "# more\n"},
            {"bindings/db.yaml": None, "bindings/x.yaml": GOOD["bindings/db.yaml"]},
        )
    }
    assert len(digests) == 3


def test_in_the_other_mode():
    fleet = loaded(
        {
            "planes/eu.yaml": ACB_CONTROL_PLANE,
            "clusters/shop.yaml": cluster(
                ", appClusterBinding: {namespace: ns}, suspend: {reason: x}"
            ),
        }
    )
    assert fleet.control_planes["eu"].mode is Mode.APP_CLUSTER_BINDING
    assert fleet.clusters["shop"].app_cluster_binding == ("ns", "shop")
    assert fleet.clusters["shop"].suspended == "x"


def test_a_fleet_that_is_suspended_suspends_each_cluster():
    whole = GOOD["fleet.yaml"].replace("spec: {", "spec: {suspend: {reason: moving}, ", 1)
    fleet = loaded(
        {"fleet.yaml": whole, "clusters/cafe.yaml": cluster(", suspend: {reason: x}", "cafe")}
    )
    assert fleet.suspended == "moving"
    said = {name: one.suspended for name, one in fleet.clusters.items()}
    assert said == {"shop": "moving", "cafe": "x"}


def test_names_of_two_kinds_may_be_equal():
    assert loaded({"clusters/x.yaml": cluster("", "eu", "{}")}).clusters.keys() == {"eu", "shop"}
