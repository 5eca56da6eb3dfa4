"""Fleet repositories that are wrong in one way each: what differs from a good one.

Which problems this must give is in `expected` beside the tests of the fleet.
"""

from collections.abc import Mapping
from typing import Any

from tests.support import fleet_texts

CANARY = "hunter2canary"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIBcanary\n-----END PRIVATE KEY-----\n"


def fleet(spec):
    return fleet_texts.document("Fleet", "acme", spec)


def cluster(spec, name="shop", labels="{env: prod}"):
    return fleet_texts.document("Cluster", name, spec, labels=labels)


def binding(spec, name="db"):
    return fleet_texts.document("Binding", name, spec)


def template(spec):
    return fleet_texts.document("Template", "pg", spec)


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
    "an empty first file": {"fleet.yaml": ""},
    "a first file of comments": {"fleet.yaml": "# hello\n---\n"},
    "no first file": {"fleet.yaml": None},
    "two first files": {"klutch-fleet.yaml": fleet_texts.FLEET},
    "no Fleet": {"fleet.yaml": fleet_texts.CONTROL_PLANE},
    "a Rancher fleet.yaml": {"fleet.yaml": "defaultNamespace: x\nhelm: {chart: y}\n"},
    "a list": {"fleet.yaml": "- 1\n"},
    "not UTF-8": {"bindings/x.yaml": b"a: \xff"},
    "not YAML": {"bindings/x.yaml": "a: [\n"},
    "an alias bomb": {"bindings/x.yaml": "a: &a [x,x]\nb: &b [*a,*a]\n"},
    "a tag": {"bindings/x.yaml": "a: !!str x\n"},
    "a merge key": {"bindings/x.yaml": "<<: {a: b}\n"},
    "a key twice": {"bindings/x.yaml": "a: 1\na: 2\n"},
    "a bomb of brackets": {"bindings/x.yaml": "a: " + "[" * 9999},
    "a file that is too large": {"bindings/x.yaml": b"#" * (1 << 20) + b"\n"},
    "no apiVersion": {"bindings/x.yaml": "kind: Binding\n"},
    "no kind": {"bindings/x.yaml": fleet_texts.API},
    "another apiVersion": {"bindings/x.yaml": "kind: ConfigMap\napiVersion: v1\n"},
    "an unknown kind": {"bindings/x.yaml": f"{fleet_texts.API}kind: Bindng\n"},
    "an included Fleet": {"bindings/x.yaml": fleet_texts.FLEET},
    "two documents alike": {
        "bindings/e.yaml": f"{fleet_texts.BINDING}---\n{fleet_texts.BINDING}",
        "bindings/db.yaml": None,
    },
}

FORMS = {
    "an unknown key": db("dependOn: []"),
    "an unknown key of the document": {"bindings/db.yaml": fleet_texts.BINDING + "status: {}\n"},
    "no spec": {"bindings/db.yaml": f"{fleet_texts.API}kind: Binding\nmetadata: {{name: db}}\n"},
    "no name": {
        "bindings/x.yaml": f"{fleet_texts.API}kind: Template\nmetadata: {{}}\n"
        "spec: {resources: []}\n"
    },
    "a name that is too long": {
        "templates/x.yaml": fleet_texts.document(
            "Template", "x" * 41, "{resources: [{group: g, resource: rs}]}"
        )
    },
    "a number for text": {"fleet.yaml": fleet("{include: ['*/*.yaml'], vars: {a: 1}}")},
    "a bomb of a variable": {
        "fleet.yaml": fleet(f"{{include: ['*/*.yaml'], vars: {{a: {'x' * 1025}}}}}")
    },
    "a null for a list": db("claims: "),
    "none of the allowed values": {
        "planes/eu.yaml": fleet_texts.document("ControlPlane", "eu", f"{{{ACCESS}, mode: direct}}")
    },
    "out of range": {
        "fleet.yaml": fleet("{include: ['*/*.yaml'], prune: {maxDeletePercent: 101}}")
    },
    "an infinite parameter": db("parameters: {a: .inf}"),
    "two ways of access": {
        "clusters/shop.yaml": cluster(
            "{access: {kubeconfigContext: a, inCluster: true}, controlPlane: eu}"
        )
    },
    "no way of access": {"clusters/shop.yaml": cluster("{access: {}, controlPlane: eu}")},
    "a template and resources": {
        "bindings/db.yaml": binding(
            f"{{template: pg, resources: [{{group: g, resource: rs}}], {SELECT}}}"
        )
    },
    "an endpoint without TLS": shop("endpoint: 'http://x'"),
    "an endpoint with a password": shop(f"endpoint: 'https://u:{CANARY}@x'"),
    "a uid that is none": shop(f"identity: {CANARY}"),
    "a label value": {
        "clusters/shop.yaml": cluster(f"{{{ACCESS}, controlPlane: eu}}", labels="{env: 'a b'}"),
        "bindings/db.yaml": None,
    },
    "a plural that is none": {
        "templates/pg.yaml": template("{resources: [{group: g, resource: PGs}]}")
    },
    "all and some names": {
        "templates/pg.yaml": template(
            "{resources: [{group: g, resource: rs}], claims: [{resource: s2, version: v1,"
            " owner: Provider, names: ['*', a]}]}"
        )
    },
    "an operator without values": {
        "bindings/db.yaml": binding(
            "{template: pg, clusters: {matchExpressions: [{key: a, operator: In}]}}"
        )
    },
    "a path that leaves the repository": {"fleet.yaml": fleet("{include: ['../*.yaml']}")},
    "an absolute path": shop("caFile: /etc/passwd"),
    "mistakes in the Fleet do not hide others": {
        "fleet.yaml": fleet("{include: ['*/*.yaml'], x: 1}"),
        "bindings/x.yaml": binding("{}", "x"),
    },
}

REFERENCES = {
    "an include that matches nothing": {"fleet.yaml": fleet("{include: ['*/*.yaml', nowhere/*]}")},
    "an unknown control plane": {"clusters/shop.yaml": cluster(f"{{{ACCESS}, controlPlane: ue}}")},
    "an unknown template": {"bindings/db.yaml": binding(f"{{template: gp, {SELECT}}}")},
    "an unknown cluster": {
        "bindings/db.yaml": binding("{template: pg, clusters: {names: [shop, shp]}}")
    },
    "an unknown excluded cluster": {
        "bindings/db.yaml": binding("{template: pg, clusters: {names: [shop], exclude: [shp]}}")
    },
    "a selector that matches nothing": {
        "bindings/db.yaml": binding("{template: pg, clusters: {matchLabels: {env: x}}}")
    },
    "a selector that says nothing": {"bindings/db.yaml": binding("{template: pg, clusters: {}}")},
    "an unknown dependency": db("dependsOn: [bd]"),
    "a Binding that waits for itself": db("dependsOn: [db]"),
    "two Bindings that wait for each other": {
        "bindings/db.yaml": binding(f"{{template: pg, {SELECT}, dependsOn: [x]}}"),
        "bindings/x.yaml": binding(
            f"{{resources: [{{group: g, resource: rs}}], {SELECT}, dependsOn: [db]}}", "x"
        ),
    },
    "two units alike": {"bindings/x.yaml": binding(f"{{template: pg, {SELECT}}}", "x")},
    "two clusters that are one": {"clusters/x.yaml": other("x", "shop")},
    "two clusters with one space": {
        "planes/eu.yaml": fleet_texts.ACB_CONTROL_PLANE,
        "clusters/x.yaml": cluster(
            "{access: {inCluster: true}, controlPlane: eu, appClusterBinding: {name: shop}}",
            "x",
            "{}",
        ),
    },
    "a space with too long a name": {
        "planes/eu.yaml": fleet_texts.ACB_CONTROL_PLANE,
        "clusters/x.yaml": cluster(
            "{access: {inCluster: true}, controlPlane: eu,"
            f" appClusterBinding: {{namespace: {LONG}}}}}",
            "x-and-more-than-ten",
            "{}",
        ),
    },
    "a konnector without an image": shop("konnector: {deploy: true}"),
    "parameters that the mode does not carry": {
        "planes/eu.yaml": fleet_texts.ACB_CONTROL_PLANE,
        "bindings/db.yaml": binding(f"{{template: pg, {SELECT}, parameters: {{a: {CANARY}}}}}"),
    },
    "a CA file that is not there": shop("caFile: ca.pem"),
    "a CA file with a private key": {
        "clusters/shop.yaml": cluster(f"{{{ACCESS}, controlPlane: eu, caFile: ca.pem}}"),
        "ca.pem": KEY,
    },
    "a CA file of something else": {
        "clusters/shop.yaml": cluster(f"{{{ACCESS}, controlPlane: eu, caFile: ca.pem}}"),
        "ca.pem": CANARY,
    },
}

SUBSTITUTION = {
    "a reference that is not closed": db("parameters: {a: 'x ${cluster.name'}"),
    "a reference that does not exist": db("parameters: {a: '${env.HOME}'}"),
    "a bomb of konnectors": {
        "fleet.yaml": fleet(
            "{include: ['*/*.yaml'], konnector: {image: '${cluster.name}', overrides: {a: ["
            f"{','.join(['x'] * 1000)}]}}}}}}"
        ),
    },
    "a bomb of clusters": {
        "clusters/x.yaml": "---\n".join(other(f"x{n}", f"x{n}") for n in range(1000)),
        "bindings/x.yaml": binding(
            "{template: pg, clusters: {matchExpressions: [{key: x, operator: DoesNotExist}]},"
            f" parameters: {{a: [{','.join(['x'] * 1000)}, '${{cluster.name}}']}}}}",
            "x",
        ),
    },
    "an unknown variable": db("parameters: {a: '${vars.x}'}"),
    "a label that a cluster does not have": db("parameters: {a: '${cluster.labels.x}'}"),
    "a cluster where none is meant": {
        "bindings/db.yaml": binding(f"{{template: '${{cluster.name}}', {SELECT}}}")
    },
    "a variable in a variable": {
        "fleet.yaml": fleet("{include: ['*/*.yaml'], vars: {a: b, c: '${vars.a}'}}")
    },
    "a name that is known only per cluster and is none": {
        "bindings/db.yaml": binding(
            f"{{template: pg, {SELECT}, claims: [{{resource: secrets, version: v1, owner: Provider,"
            " names: ['${cluster.name}_']}]}"
        )
    },
}

CLAIM = "{resource: secrets, version: v1, owner: Provider"


def claiming(*claims):
    return db(f"claims: [{', '.join(claims)}]")


CLAIMS = {
    "more names than the ceiling": claiming(f"{CLAIM}, names: [a, c]}}"),
    "all names": claiming(f"{CLAIM}}}"),
    "another owner": claiming("{resource: secrets, version: v1, owner: Consumer, names: [a]}"),
    "another resource": claiming(
        "{resource: configmaps, version: v1, owner: Provider, names: [a]}"
    ),
    "a claim twice": claiming(f"{CLAIM}, names: [a, b]}}", f"{CLAIM}, names: [b, a]}}"),
}

INVALID: Mapping[str, Any] = {**FILES, **FORMS, **REFERENCES, **SUBSTITUTION, **CLAIMS}
