"""Everything that can be wrong with a fleet repository: code, line and column, all at once.

A CA file holds public certificates and nothing else.
"""

from pathlib import Path

import pytest

from reconciler.core.errors import Origin, Problem, Severity
from reconciler.fleet import clusters
from reconciler.fleet.files import Snapshot
from reconciler.fleet.load import load
from reconciler.fleet.wording import CODES
from tests.support import bad_fleets
from tests.support.fleet_texts import ACB_CONTROL_PLANE, CLUSTER, POLICY, document, tree


def brief(problem):
    return f"{problem.origin} {problem.code}"


SELECT = bad_fleets.SELECT
LONG = "a-long-name-of-32-characters-xxx"
X_TEMPLATE = document("Template", "x", "{resources: [{group: g, resource: rs}]}")
X_BINDING = bad_fleets.binding(f"{{template: x, {SELECT}}}", "x")
BARE_BINDING = bad_fleets.binding(f"{{resources: [{{group: g, resource: rs}}], {SELECT}}}", "x")
BOTH = document("Binding", "db", "{template: pg, clusters: {names: [shop, x]}}")
LIMITED = POLICY.replace("[pg]", "[pg, x]").replace("]}", "], limits: {bindingsPerCluster: 1}}")


def allowing(name, template):
    return POLICY.replace("name: team", f"name: {name}").replace("[pg]", f"[{template}]")


DENIED = {
    "a template that is not allowed": {
        "templates/x.yaml": X_TEMPLATE,
        "bindings/x.yaml": X_BINDING,
    },
    "a cluster that is not allowed": {
        "clusters/x.yaml": bad_fleets.other("x", "x"),
        "bindings/db.yaml": BOTH,
    },
    "resources without a template": {"bindings/x.yaml": BARE_BINDING},
    "a Policy that lets its own writer in": {"bindings/p.yaml": allowing("own", "pg")},
    "a Template beside the Bindings": {"bindings/t.yaml": X_TEMPLATE},
    "too many Bindings": {
        "policies/p.yaml": LIMITED,
        "templates/x.yaml": X_TEMPLATE,
        "bindings/x.yaml": X_BINDING,
    },
    "a Policy that allows nothing": {
        "policies/p.yaml": document("Policy", "team", "{paths: ['bindings/**']}")
    },
}
ALLOWED = {
    "what the Policy names": {},
    "another path": {"policies/p.yaml": POLICY.replace("bindings/*", "elsewhere/*")},
    "what one of two Policies names": {
        "policies/x.yaml": allowing("more", "x"),
        "templates/x.yaml": X_TEMPLATE,
        "bindings/x.yaml": X_BINDING,
    },
}
WIDE = "{resource: secrets, version: v1, owner: Provider}"
NAMED = "{resource: secrets, version: v1, owner: Provider, names: [a]}"
WARNED = {
    "a long space name": {
        "planes/eu.yaml": ACB_CONTROL_PLANE,
        "clusters/x.yaml": bad_fleets.other(LONG, LONG),
    },
    "a dependency that no cluster shares": {
        "clusters/x.yaml": bad_fleets.other("x", "x"),
        "bindings/db.yaml": document(
            "Binding", "db", f"{{template: pg, {SELECT}, dependsOn: [z]}}"
        ),
        "bindings/z.yaml": document("Binding", "z", "{template: pg, clusters: {names: [x]}}"),
    },
    "claims on all Secrets, of a Template and of a Binding without one": {
        "templates/wide.yaml": document(
            "Template", "wide", f"{{resources: [{{group: g, resource: rs}}], claims: [{WIDE}]}}"
        ),
        "bindings/wide.yaml": document(
            "Binding",
            "wide",
            f"{{resources: [{{group: g, resource: rs}}], {SELECT}, claims: [{NAMED}, {WIDE}]}}",
        ),
    },
}

TABLES = {
    Severity.INVALID: bad_fleets.INVALID,
    Severity.DENIED: {name: {"policies/p.yaml": POLICY, **row} for name, row in DENIED.items()},
    Severity.WARNING: WARNED,
}


@pytest.mark.parametrize("severity", TABLES)
def test_what_is_wrong_is_reported_with_its_place(severity, golden):
    lines = []
    for name, changes in TABLES[severity].items():
        loaded, problems = load(tree(changes))
        assert (loaded is not None) == (severity is Severity.WARNING)
        assert {problem.severity for problem in problems} == {severity}
        lines.append(name)
        for problem in problems:
            lines.append(f"  {brief(problem)}: {problem.message}")
            if problem.hint:
                lines.append(f"    {problem.hint}")
    reported = "".join(f"{line}\n" for line in lines)
    assert not any(secret in reported for secret in (bad_fleets.CANARY, "MIIB"))
    golden(reported, f"problems.{severity.name.lower()}.txt")


@pytest.mark.parametrize("changes", ALLOWED.values(), ids=ALLOWED.keys())
def test_what_policies_allow(changes):
    fleet, problems = load(tree({"policies/p.yaml": POLICY, **changes}))
    assert fleet is not None
    assert problems == ()


def test_a_file_that_was_not_read_is_reported_once_and_nothing_is_called_unknown():
    good = tree({"templates/pg.yaml": None})
    unread = {"templates/pg.yaml": Problem(Origin("templates/pg.yaml"), "not-a-file", "is a link")}
    loaded, problems = load(Snapshot(good.files, "", unread=unread))
    assert loaded is None
    assert [brief(one) for one in problems] == ["templates/pg.yaml not-a-file"]


def test_one_mistake_in_a_cluster_is_not_many():
    changes = {
        "clusters/shop.yaml": CLUSTER.replace("controlPlane", "controlPlan"),
        "bindings/x.yaml": bad_fleets.binding("{template: pg, clusters: {names: [shop]}}", "x"),
    }
    _, problems = load(tree(changes))
    assert [brief(one) for one in problems] == [
        "clusters/shop.yaml:4:7 missing-field",
        "clusters/shop.yaml:4:43 unknown-key",
    ]


def test_a_problem_that_many_clusters_have_is_reported_once():
    changes = {f"clusters/c{n}.yaml": bad_fleets.other(f"c{n}", f"c{n}") for n in range(9)}
    spec = f"template: pg, clusters: {{names: [{', '.join(f'c{n}' for n in range(9))}]}}"
    changes["bindings/db.yaml"] = bad_fleets.binding(
        f"{{{spec}, parameters: {{a: '${{cluster.labels.x}}'}}}}"
    )
    _, (problem,) = load(tree(changes))
    assert problem.message == "the cluster label x is missing in c0, c1, c2 and 6 more"


# Of files that are fetched (tests/unit/source), pull requests, and a Fleet that says too little.
ELSEWHERE = {
    "fleet-renamed",
    "not-a-file",
    "not-a-folder",
    "policy-default",
    *("unlisted-file", "unread-file"),
    "too-many-files",
    "tree-too-large",
    "unreadable-file",
}


def test_every_code_has_a_row():
    rows = [changes for table in TABLES.values() for changes in table.values()]
    shown = {problem.code for changes in rows for problem in load(tree(changes))[1]}
    assert CODES.keys() - shown == ELSEWHERE


PEM = Path(__file__).parents[2].joinpath("kit", "ca.pem").read_bytes()
KEY = bad_fleets.KEY.encode()


def test_certificates_are_read_without_what_stands_between():
    assert (
        clusters.read_certificates(b"subject=ca canary\n" + PEM + b"\n" + PEM)
        == (PEM + PEM).decode()
    )
    assert clusters.read_certificates(PEM.replace(b"\n", b"\r\n")) == PEM.decode()


REFUSED = {
    "nothing": (b"", "not-certificates"),
    "text": (b"canary", "not-certificates"),
    "not text": (b"\xff\xfe" + PEM, "not-certificates"),
    "a private key": (KEY, "private-key"),
    "a certificate and its key": (PEM + KEY, "private-key"),
    "an old kind of key": (KEY.replace(b" PRIVATE", b" EC PRIVATE"), "private-key"),
    "a public key": (PEM.replace(b"CERTIFICATE", b"PUBLIC KEY"), "not-certificates"),
    "a block that is cut": (PEM[:-30], "not-certificates"),
    "a second block that is cut": (PEM + PEM[:-30], "not-certificates"),
    "half a certificate": (PEM[:100] + PEM[-30:], "not-certificates"),
    "a secret in a block": (
        b"-----BEGIN CERTIFICATE-----\nY2FuYXJ5\n-----END CERTIFICATE-----\n",
        "not-certificates",
    ),
}


@pytest.mark.parametrize(("content", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_anything_else_is_refused_and_not_quoted(content, code):
    with pytest.raises(clusters.NotCertificates) as caught:
        clusters.read_certificates(content)
    assert caught.value.code == code
    assert "canary" not in str(caught.value)
