"""Fleet repositories that are wrong in one way each, and the problems that this must give.

A row is what differs from a good repository, and `path:line:column code` for each problem.
"""

from collections.abc import Mapping
from typing import Any

from tests.support.fleet_texts import (
    ACB_CONTROL_PLANE,
    API,
    BINDING,
    CONTROL_PLANE,
    FLEET,
    document,
)

CANARY = "hunter2canary"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIBcanary\n-----END PRIVATE KEY-----\n"


def fleet(spec):
    return document("Fleet", "acme", spec)


def cluster(spec, name="shop", labels="{env: prod}"):
    return document("Cluster", name, spec, labels=labels)


def binding(spec, name="db"):
    return document("Binding", name, spec)


def template(spec):
    return document("Template", "pg", spec)


def db(more):
    """Return the Binding with more in its spec, from column 47 of line 4."""
    return {"bindings/db.yaml": binding(f"{{template: pg, {SELECT}, {more}}}")}


def shop(more):
    """Return the Cluster with more in its spec, from column 61 of line 4."""
    return {"clusters/shop.yaml": cluster(f"{{{ACCESS}, controlPlane: eu, {more}}}")}


SELECT = "clusters: {names: [shop]}"
ACCESS = "access: {kubeconfigContext: shop}"
LONG = "a-name-that-has-exactly-forty-characters"


def other(name, context):
    return cluster(f"{{access: {{kubeconfigContext: {context}}}, controlPlane: eu}}", name, "{}")


FILES = {
    "an empty first file": ({"fleet.yaml": ""}, "fleet.yaml:1:1 empty-fleet"),
    "a first file of comments": ({"fleet.yaml": "# hello\n---\n"}, "fleet.yaml:1:1 empty-fleet"),
    "no first file": ({"fleet.yaml": None}, ". no-entry-file"),
    "two first files": ({"klutch-fleet.yaml": FLEET}, ". two-entry-files"),
    "no Fleet": ({"fleet.yaml": CONTROL_PLANE}, "fleet.yaml:1:1 no-fleet"),
    "a Rancher fleet.yaml": (
        {"fleet.yaml": "defaultNamespace: x\nhelm: {chart: y}\n"},
        "fleet.yaml:1:1 rancher-fleet",
    ),
    "a list": ({"fleet.yaml": "- 1\n"}, "fleet.yaml:1:1 wrong-type"),
    "not UTF-8": ({"bindings/x.yaml": b"a: \xff"}, "bindings/x.yaml:1:4 not-utf-8"),
    "not YAML": ({"bindings/x.yaml": "a: [\n"}, "bindings/x.yaml:2:1 not-yaml"),
    "an alias bomb": (
        {"bindings/x.yaml": "a: &a [x,x]\nb: &b [*a,*a]\n"},
        "bindings/x.yaml:2:8 yaml-alias",
    ),
    "a tag": ({"bindings/x.yaml": "a: !!str x\n"}, "bindings/x.yaml:1:4 yaml-tag"),
    "a merge key": ({"bindings/x.yaml": "<<: {a: b}\n"}, "bindings/x.yaml:1:1 yaml-merge-key"),
    "a key twice": ({"bindings/x.yaml": "a: 1\na: 2\n"}, "bindings/x.yaml:2:1 duplicate-key"),
    "a bomb of brackets": (
        {"bindings/x.yaml": "a: " + "[" * 9999},
        "bindings/x.yaml:1:67 too-deep",
    ),
    "a file that is too large": (
        {"bindings/x.yaml": b"#" * (1 << 20) + b"\n"},
        "bindings/x.yaml file-too-large",
    ),
    "no apiVersion": ({"bindings/x.yaml": "kind: Binding\n"}, "bindings/x.yaml:1:1 missing-field"),
    "no kind": ({"bindings/x.yaml": API}, "bindings/x.yaml:1:1 missing-field"),
    "another apiVersion": (
        {"bindings/x.yaml": "kind: ConfigMap\napiVersion: v1\n"},
        "bindings/x.yaml:2:13 unknown-api-version",
    ),
    "an unknown kind": (
        {"bindings/x.yaml": f"{API}kind: Bindng\n"},
        "bindings/x.yaml:2:7 unknown-kind",
    ),
    "an included Fleet": ({"bindings/x.yaml": FLEET}, "bindings/x.yaml:3:18 second-fleet"),
    "two documents alike": (
        {"bindings/e.yaml": f"{BINDING}---\n{BINDING}", "bindings/db.yaml": None},
        "bindings/e.yaml:8:18 duplicate-document",
    ),
}

FORMS = {
    "an unknown key": (
        db("dependOn: []"),
        "bindings/db.yaml:4:49 unknown-key",
    ),
    "an unknown key of the document": (
        {"bindings/db.yaml": BINDING + "status: {}\n"},
        "bindings/db.yaml:5:1 unknown-key",
    ),
    "no spec": (
        {"bindings/db.yaml": f"{API}kind: Binding\nmetadata: {{name: db}}\n"},
        "bindings/db.yaml:1:1 missing-field",
    ),
    "no name": (
        {"bindings/x.yaml": f"{API}kind: Template\nmetadata: {{}}\nspec: {{resources: []}}\n"},
        "bindings/x.yaml:3:11 missing-field",
        "bindings/x.yaml:4:19 bad-value",
    ),
    "a name that is too long": (
        {
            "templates/x.yaml": document(
                "Template", "x" * 41, "{resources: [{group: g, resource: rs}]}"
            )
        },
        "templates/x.yaml:3:18 bad-value",
    ),
    "a number for text": (
        {"fleet.yaml": fleet("{include: ['*/*.yaml'], vars: {a: 1}}")},
        "fleet.yaml:4:41 wrong-type",
    ),
    "a null for a list": (
        db("claims: "),
        "bindings/db.yaml:4:57 wrong-type",
    ),
    "none of the allowed values": (
        {"planes/eu.yaml": document("ControlPlane", "eu", f"{{{ACCESS}, mode: direct}}")},
        "planes/eu.yaml:4:49 not-one-of",
    ),
    "out of range": (
        {"fleet.yaml": fleet("{include: ['*/*.yaml'], prune: {maxDeletePercent: 101}}")},
        "fleet.yaml:4:57 bad-value",
    ),
    "an infinite parameter": (
        db("parameters: {a: .inf}"),
        "bindings/db.yaml:4:65 not-a-number",
    ),
    "two ways of access": (
        {
            "clusters/shop.yaml": cluster(
                "{access: {kubeconfigContext: a, inCluster: true}, controlPlane: eu}"
            )
        },
        "clusters/shop.yaml:4:16 bad-value",
    ),
    "no way of access": (
        {"clusters/shop.yaml": cluster("{access: {}, controlPlane: eu}")},
        "clusters/shop.yaml:4:16 bad-value",
    ),
    "a template and resources": (
        {
            "bindings/db.yaml": binding(
                f"{{template: pg, resources: [{{group: g, resource: rs}}], {SELECT}}}"
            )
        },
        "bindings/db.yaml:4:7 bad-value",
    ),
    "an endpoint without TLS": (
        shop("endpoint: 'http://x'"),
        "clusters/shop.yaml:4:71 bad-value",
    ),
    "an endpoint with a password": (
        shop(f"endpoint: 'https://u:{CANARY}@x'"),
        "clusters/shop.yaml:4:71 bad-value",
    ),
    "a uid that is none": (
        shop(f"identity: {CANARY}"),
        "clusters/shop.yaml:4:71 bad-value",
    ),
    "a label value": (
        {
            "clusters/shop.yaml": cluster(f"{{{ACCESS}, controlPlane: eu}}", labels="{env: 'a b'}"),
            "bindings/db.yaml": None,
        },
        "clusters/shop.yaml:3:33 bad-value",
    ),
    "a plural that is none": (
        {"templates/pg.yaml": template("{resources: [{group: g, resource: PGs}]}")},
        "templates/pg.yaml:4:41 bad-value",
    ),
    "all and some names": (
        {
            "templates/pg.yaml": template(
                "{resources: [{group: g, resource: rs}], claims: [{resource: s2, version: v1,"
                " owner: Provider, names: ['*', a]}]}"
            )
        },
        "templates/pg.yaml:4:108 bad-value",
    ),
    "an operator without values": (
        {
            "bindings/db.yaml": binding(
                "{template: pg, clusters: {matchExpressions: [{key: a, operator: In}]}}"
            )
        },
        "bindings/db.yaml:4:52 bad-value",
    ),
    "a path that leaves the repository": (
        {"fleet.yaml": fleet("{include: ['../*.yaml']}")},
        "fleet.yaml:4:18 bad-path",
    ),
    "an absolute path": (
        shop("caFile: /etc/passwd"),
        "clusters/shop.yaml:4:69 bad-path",
    ),
    "mistakes in the Fleet do not hide others": (
        {
            "fleet.yaml": fleet("{include: ['*/*.yaml'], x: 1}"),
            "bindings/x.yaml": binding("{}", "x"),
        },
        "bindings/x.yaml:4:7 missing-field",
        "fleet.yaml:4:31 unknown-key",
    ),
}

REFERENCES = {
    "an include that matches nothing": (
        {"fleet.yaml": fleet("{include: ['*/*.yaml', nowhere/*]}")},
        "fleet.yaml:4:30 include-matches-nothing",
    ),
    "an unknown control plane": (
        {"clusters/shop.yaml": cluster(f"{{{ACCESS}, controlPlane: ue}}")},
        "clusters/shop.yaml:4:57 unknown-control-plane",
    ),
    "an unknown template": (
        {"bindings/db.yaml": binding(f"{{template: gp, {SELECT}}}")},
        "bindings/db.yaml:4:18 unknown-template",
    ),
    "an unknown cluster": (
        {"bindings/db.yaml": binding("{template: pg, clusters: {names: [shop, shp]}}")},
        "bindings/db.yaml:4:47 unknown-cluster",
    ),
    "an unknown excluded cluster": (
        {"bindings/db.yaml": binding("{template: pg, clusters: {names: [shop], exclude: [shp]}}")},
        "bindings/db.yaml:4:58 unknown-cluster",
    ),
    "a selector that matches nothing": (
        {"bindings/db.yaml": binding("{template: pg, clusters: {matchLabels: {env: x}}}")},
        "bindings/db.yaml:4:32 selector-matches-nothing",
    ),
    "a selector that says nothing": (
        {"bindings/db.yaml": binding("{template: pg, clusters: {}}")},
        "bindings/db.yaml:4:32 selector-matches-nothing",
    ),
    "an unknown dependency": (
        db("dependsOn: [bd]"),
        "bindings/db.yaml:4:61 unknown-binding",
    ),
    "a Binding that waits for itself": (
        db("dependsOn: [db]"),
        "bindings/db.yaml:4:61 dependency-cycle",
    ),
    "two Bindings that wait for each other": (
        {
            "bindings/db.yaml": binding(f"{{template: pg, {SELECT}, dependsOn: [x]}}"),
            "bindings/x.yaml": binding(
                f"{{resources: [{{group: g, resource: rs}}], {SELECT}, dependsOn: [db]}}", "x"
            ),
        },
        "bindings/db.yaml:4:61 dependency-cycle",
    ),
    "two units alike": (
        {"bindings/x.yaml": binding(f"{{template: pg, {SELECT}}}", "x")},
        "bindings/x.yaml:3:18 duplicate-unit",
    ),
    "two clusters that are one": (
        {"clusters/x.yaml": other("x", "shop")},
        "clusters/x.yaml:3:18 duplicate-access",
    ),
    "two clusters with one space": (
        {
            "planes/eu.yaml": ACB_CONTROL_PLANE,
            "clusters/x.yaml": cluster(
                "{access: {inCluster: true}, controlPlane: eu, appClusterBinding: {name: shop}}",
                "x",
                "{}",
            ),
        },
        "clusters/x.yaml:3:18 duplicate-space",
    ),
    "a space with too long a name": (
        {
            "planes/eu.yaml": ACB_CONTROL_PLANE,
            "clusters/x.yaml": cluster(
                "{access: {inCluster: true}, controlPlane: eu,"
                f" appClusterBinding: {{namespace: {LONG}}}}}",
                "x-and-more-than-ten",
                "{}",
            ),
        },
        "clusters/x.yaml:3:18 space-name-too-long",
    ),
    "a konnector without an image": (
        shop("konnector: {deploy: true}"),
        "clusters/shop.yaml:4:81 no-konnector-image",
    ),
    "parameters that the mode does not carry": (
        {
            "planes/eu.yaml": ACB_CONTROL_PLANE,
            "bindings/db.yaml": binding(f"{{template: pg, {SELECT}, parameters: {{a: {CANARY}}}}}"),
        },
        "bindings/db.yaml:4:61 parameters-not-carried",
    ),
    "a CA file that is not there": (
        shop("caFile: ca.pem"),
        "clusters/shop.yaml:4:69 missing-file",
    ),
    "a CA file with a private key": (
        {
            "clusters/shop.yaml": cluster(f"{{{ACCESS}, controlPlane: eu, caFile: ca.pem}}"),
            "ca.pem": KEY,
        },
        "clusters/shop.yaml:4:69 private-key",
    ),
    "a CA file of something else": (
        {
            "clusters/shop.yaml": cluster(f"{{{ACCESS}, controlPlane: eu, caFile: ca.pem}}"),
            "ca.pem": CANARY,
        },
        "clusters/shop.yaml:4:69 not-certificates",
    ),
}

SUBSTITUTION = {
    "a reference that is not closed": (
        db("parameters: {a: 'x ${cluster.name'}"),
        "bindings/db.yaml:4:65 bad-reference",
    ),
    "a reference that does not exist": (
        db("parameters: {a: '${env.HOME}'}"),
        "bindings/db.yaml:4:65 bad-reference",
    ),
    "an unknown variable": (
        db("parameters: {a: '${vars.x}'}"),
        "bindings/db.yaml:4:65 unknown-variable",
    ),
    "a label that a cluster does not have": (
        db("parameters: {a: '${cluster.labels.x}'}"),
        "bindings/db.yaml:4:65 missing-label",
    ),
    "a cluster where none is meant": (
        {"bindings/db.yaml": binding(f"{{template: '${{cluster.name}}', {SELECT}}}")},
        "bindings/db.yaml:4:18 misplaced-reference",
    ),
    "a variable in a variable": (
        {"fleet.yaml": fleet("{include: ['*/*.yaml'], vars: {a: b, c: '${vars.a}'}}")},
        "fleet.yaml:4:47 misplaced-reference",
    ),
    "a name that is known only per cluster and is none": (
        {"bindings/db.yaml": binding(
            f"{{template: pg, {SELECT}, claims: [{{resource: secrets, version: v1, owner: Provider,"
            " names: ['${cluster.name}_']}]}"
        )},
        "bindings/db.yaml:4:116 bad-value",
    ),
}  # fmt: skip

CLAIM = "{resource: secrets, version: v1, owner: Provider"


def claiming(*claims):
    return db(f"claims: [{', '.join(claims)}]")


CLAIMS = {
    "more names than the ceiling": (
        claiming(f"{CLAIM}, names: [a, c]}}"), "bindings/db.yaml:4:58 claim-outside-ceiling",
    ),
    "all names": (claiming(f"{CLAIM}}}"), "bindings/db.yaml:4:58 claim-outside-ceiling"),
    "another owner": (
        claiming("{resource: secrets, version: v1, owner: Consumer, names: [a]}"),
        "bindings/db.yaml:4:58 claim-outside-ceiling",
    ),
    "another resource": (
        claiming("{resource: configmaps, version: v1, owner: Provider, names: [a]}"),
        "bindings/db.yaml:4:58 claim-outside-ceiling",
    ),
    "a claim twice": (
        claiming(f"{CLAIM}, names: [a, b]}}", f"{CLAIM}, names: [b, a]}}"),
        "bindings/db.yaml:4:124 duplicate-claim",
    ),
}  # fmt: skip

# A row is (changes, *wanted).
INVALID: Mapping[str, Any] = {**FILES, **FORMS, **REFERENCES, **SUBSTITUTION, **CLAIMS}
