"""Which konnector an app cluster gets, and with what rights (D.5, F30, F40)."""

from typing import Any

import pytest

from klutchctl.binding import konnector
from klutchctl.binding.konnector import Decision, Rights
from klutchctl.binding.response import Wanted
from reconciler.blueprints import rbac
from reconciler.core.errors import ConfigError
from reconciler.core.refs import GroupResource
from tests.support import binding_objects as objects

OURS = "registry.example:5000/konnector:v0.2.0"
OFFICIAL = "public.ecr.aws/w5n9a2g2/klutch/konnector:v1.5.0"
DATABASES = GroupResource("shop.example", "databases")


def live(image):
    containers = [{"name": "konnector", "image": image, "env": [{"name": "A", "value": "1"}]}]
    spec = {"template": {"spec": {"containers": containers}}}
    return {"metadata": {"name": "konnector", "resourceVersion": "5"}, "spec": spec}


def tagged(tag):
    return f"registry.example:5000/konnector:{tag}"


@pytest.mark.parametrize(
    ("there", "chosen", "offered", "skip", "decision"),
    [
        # A flag wins, also over --skip-konnector.
        (None, OURS, "", False, Decision(OURS, fresh=True)),
        (None, OURS, OFFICIAL, True, Decision(OURS, fresh=True)),
        (OURS, OURS, "", False, Decision(OURS)),
        (OFFICIAL, OURS, "", False, Decision(OURS)),
        # Nobody's business.
        (None, "", OURS, True, Decision(rights=False)),
        (OURS, "", tagged("v0.3.0"), True, Decision(rights=False)),
        # What the provider's door names.
        (None, "", OURS, False, Decision(OURS, fresh=True)),
        (OURS, "", "", False, Decision()),
        (OURS, "", OURS, False, Decision()),
        (OURS, "", tagged("v0.10.0"), False, Decision(tagged("v0.10.0"))),
        (OURS, "", tagged("0.2.1"), False, Decision(tagged("0.2.1"))),
        (tagged("latest"), "", OURS, False, Decision()),
        (OURS, "", tagged("latest"), False, Decision()),
        (OURS, "", tagged(f"v1.{'9' * 5_000}.0"), False, Decision()),
        ("registry.example:5000/konnector", "", OURS, False, Decision()),
        (f"{tagged('v0.1.0')}@sha256:aa", "", OURS, False, Decision(OURS)),
    ],
)
def test_decisions(there, chosen, offered, skip, decision):
    found = konnector.decide(
        None if there is None else live(there), chosen=chosen, offered=offered, skip=skip
    )
    assert found == decision


@pytest.mark.parametrize(
    ("there", "offered", "note"), [(OFFICIAL, OURS, "suggests"), (OURS, tagged("v0.1.9"), "newer")]
)
def test_another_konnector_and_a_newer_one_are_left_with_a_word(there, offered, note):
    decision = konnector.decide(live(there), chosen="", offered=offered, skip=False)
    assert not decision.image
    assert note in decision.note


def test_without_any_image_nothing_is_begun():
    with pytest.raises(ConfigError, match="--konnector-image"):
        konnector.decide(None, chosen="", offered="", skip=False)


def test_of_a_live_deployment_the_image_alone_is_changed():
    before = live(OURS)
    patch: Any = konnector.image_patch(before, OFFICIAL)
    assert patch["metadata"] == {"resourceVersion": "5"}
    assert patch["spec"] == live(OFFICIAL)["spec"]
    assert before == live(OURS)


def test_the_deployment_is_the_originals_and_confined_where_it_does_with_less():
    # 03-default-mode-oidc/14-bind.cli-requests.yaml, 17
    made: Any = konnector.deployment(OURS, Rights.FULL)
    assert (made["metadata"]["labels"], made["spec"]["replicas"]) == ({"app": "konnector"}, 2)
    [container] = made["spec"]["template"]["spec"]["containers"]
    assert container.keys() == {"name", "image", "env", "readinessProbe"}
    minimal: Any = konnector.deployment(OURS, Rights.MINIMAL)
    [confined] = minimal["spec"]["template"]["spec"]["containers"]
    assert confined["securityContext"]["runAsNonRoot"] is True


def test_the_originals_konnector_needs_all_rights_and_ours_does_not():
    assert konnector.usual_rights(OFFICIAL) is Rights.FULL
    assert [konnector.usual_rights(one) for one in (OURS, "")] == [Rights.MINIMAL] * 2


def accepted(*claims, state="Accepted"):
    return [{**claim, "state": state} for claim in claims]


def allowed(rules):
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if not rule.get("resourceNames")
    }


def served(*bound, secret="kubeconfig-x8t4d", live=()):
    return konnector.with_bound(live, bound, secret)


def test_minimal_rights_are_those_of_what_is_bound_and_accepted():
    claims = [*accepted(objects.CONFIG_MAP), *accepted(objects.SECRETS, state="Rejected")]
    one = (Wanted(DATABASES), claims)
    may = allowed(konnector.rules(served(one), Rights.MINIMAL))
    assert {("shop.example", "databases", "create"), ("", "configmaps", "patch")} <= may
    assert not {("", "secrets", "create"), ("", "secrets", "get")} & may  # rejected
    assert ("", "configmaps", "delete") not in may  # goes up only
    down = (Wanted(DATABASES), accepted(objects.SECRETS))
    may = allowed(konnector.rules(served(down), Rights.MINIMAL))
    assert ("", "secrets", "delete") in may


def test_what_was_bound_before_keeps_its_rights_and_each_provider_its_secret():
    before = objects.binding("kubeconfig-old", claims=accepted(objects.SECRETS))
    queues: Any = (Wanted(GroupResource("shop.example", "queues")), [])
    rules: Any = konnector.rules(served(queues, live=[before]), Rights.MINIMAL)
    may = allowed(rules)
    assert {("shop.example", one, "create") for one in ("databases", "queues")} <= may
    assert ("", "secrets", "delete") in may
    named = [rule["resourceNames"] for rule in rules if rule["resources"] == ["secrets"]
             and "resourceNames" in rule]  # fmt: skip
    assert named == [["kubeconfig-old"], ["kubeconfig-x8t4d"]]


def test_full_rights_are_all():
    assert konnector.rules([], Rights.FULL) == rbac.FULL


def role(*rules):
    return {"metadata": {"resourceVersion": "3"}, "rules": [dict(rule) for rule in rules]}


def rule(resource, *verbs, group="", only=None):
    made = {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    return made if only is None else {**made, "resourceNames": only}


@pytest.mark.parametrize(
    ("held", "stated", "rules"),
    [
        ([rule("pods", "get")], [rule("pods", "get")], None),
        ([rule("pods", "get", "list")], [rule("pods", "get")], None),
        ([rule("pods", "*")], [rule("pods", "get")], None),
        (rbac.FULL, [rule("pods", "get")], None),
        ([rule("pods", "get")], [rule("pods", "get", only=["a"])], None),
        ([rule("pods", "get", only=["a", "b"])], [rule("pods", "get", only=["a"])], None),
        # It grows, and nothing that it had is taken away.
        ([rule("jobs", "get")], [rule("pods", "get")], [rule("jobs", "get"), rule("pods", "get")]),
        ([rule("pods", "get")], [rule("pods", "get", "list")], [rule("pods", "get", "list")]),
        (
            [rule("pods", "get", only=["a"])],
            [rule("pods", "get", only=["b"])],
            [rule("pods", "get", only=["a"]), rule("pods", "get", only=["b"])],
        ),
        ([rule("pods", "get", only=["a"])], [rule("pods", "get")], [rule("pods", "get")]),
        (
            [rule("pods", "get", group="x")],
            [rule("pods", "get")],
            [rule("pods", "get", group="x"), rule("pods", "get")],
        ),
    ],
)
def test_rights_grow_and_never_shrink(held, stated, rules):
    patch = konnector.widened(role(*held), stated)
    if rules is None:
        assert patch is None
    else:
        assert patch == {"metadata": {"resourceVersion": "3"}, "rules": rules}
