"""Which konnector an app cluster gets, and with what rights (D.5, F30, F40)."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from klutchctl.binding import Rights, konnector, response
from klutchctl.binding.konnector import Decision, Served
from klutchctl.binding.progress import BindEnded, NotInTime, Progress
from klutchctl.binding.response import Wanted
from reconciler.api import API_SERVICE_EXPORT_REQUEST
from reconciler.blueprints import policies, rbac
from reconciler.core.errors import AlreadyExists, ConfigError, Forbidden
from reconciler.core.refs import GroupResource, Ref
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
        # Another image is the provider's offer alone, and nothing is said of the same.
        (OURS, "", "", False, Decision()),
        (OURS, "", OURS, False, Decision()),
    ],
)
def test_decisions(there, chosen, offered, skip, decision):
    found = konnector.decide(
        None if there is None else live(there), chosen=chosen, offered=offered, skip=skip
    )
    assert found == decision


def test_the_first_konnector_of_a_provider_is_named_before_it_is_there():
    decision = konnector.decide(None, chosen="", offered=OURS, skip=False)
    assert (decision.image, decision.fresh) == (OURS, True)
    assert f"the provider's konnector {OURS}" in decision.note


PINNED = f"{tagged('v0.1.0')}@sha256:aa"


@pytest.mark.parametrize(
    ("there", "offered"),
    [
        (OURS, tagged("v0.10.0")),
        (OURS, tagged("v0.1.9")),
        (OURS, f"{tagged('v0.2.1')}@sha256:bb"),
        (OURS, tagged("latest")),
        (PINNED, tagged("v99.0.0")),
        (PINNED, tagged("v0.1.0")),
        (OFFICIAL, OURS),
    ],
)
def test_no_provider_replaces_the_konnector_that_is_there(there, offered):
    """It reads the Secrets of all other providers, too: a flag takes the offer, nothing else."""
    decision = konnector.decide(live(there), chosen="", offered=offered, skip=False)
    assert not decision.image
    assert there in decision.note
    assert f"--konnector-image {offered}" in decision.note


def test_without_any_image_nothing_is_begun():
    with pytest.raises(ConfigError, match="--konnector-image"):
        konnector.decide(None, chosen="", offered="", skip=False)


@pytest.mark.parametrize(
    ("rights", "served", "without", "policy"),
    [
        (True, True, False, True),
        (True, True, True, False),
        (True, False, True, False),
        (False, False, False, True),  # nothing is given
        (True, False, False, None),
    ],
)
def test_rights_come_with_their_policy_or_a_flag_says_that_they_do_not(
    rights, served, without, policy
):
    decision = Decision(OURS, rights=rights)
    if policy is None:
        with pytest.raises(ConfigError, match="--no-policy"):
            konnector.bounded(decision, served=served, without=without)
    else:
        found = konnector.bounded(decision, served=served, without=without)
        assert found == replace(decision, policy=policy)


@pytest.mark.parametrize(
    ("state", "selector", "namespaces"),
    [
        ("Accepted", {"namespaces": ["shop"]}, ["shop"]),
        ("Accepted", {"namespaces": ["*", "kube-system"]}, ["*", "kube-system"]),
        ("Accepted", {}, ["*"]),  # as an API server fills it in
        ("Rejected", {"namespaces": ["kube-system"]}, []),
    ],
)
def test_the_policy_reaches_as_far_as_accepted_claims(state, selector, namespaces):
    claims = [{**objects.SECRETS, "selector": selector, "state": state}]
    one = Served(DATABASES, "kubeconfig-x", claims)
    assert konnector.policy([one]) == policies.konnector(namespaces)


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
    may = allowed(konnector.rules(served((Wanted(DATABASES), claims)), Rights.MINIMAL))
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
    patch = konnector.widened(
        {"metadata": {"resourceVersion": "3"}, "rules": [dict(one) for one in held]}, stated
    )
    if rules is None:
        assert patch is None
    else:
        assert patch == {"metadata": {"resourceVersion": "3"}, "rules": rules}


REF = Ref("provider", API_SERVICE_EXPORT_REQUEST, objects.SPACE, "databases.shop.example")
FORBIDDEN = Forbidden("never", ref=REF, verb="create")


@dataclass
class FakeProvider:
    """Answers creates and reads from two lists; the last of each goes on for ever."""

    creates: list[Any]
    reads: list[Any]
    name: str = "provider"
    made: list[Any] = field(default_factory=list)

    async def create(self, manifest, kind, *, manager):
        self.made.append(manifest["metadata"])
        found = self.creates.pop(0) if len(self.creates) > 1 else self.creates[0]
        if isinstance(found, Exception):
            raise found
        return {**manifest, "metadata": {"namespace": objects.SPACE, "name": found}}

    async def get(self, ref):
        return self.reads.pop(0) if len(self.reads) > 1 else self.reads[0]


def status(phase, **more):
    return {"status": {"phase": phase, **more}}


@pytest.fixture
def quick(monkeypatch):
    """Let all times pass at once."""
    sleep = asyncio.sleep
    monkeypatch.setattr(response, "_SECONDS", 0.02)
    monkeypatch.setattr(response, "_RIGHTS_SECONDS", 0.02)
    monkeypatch.setattr("klutchctl.binding.response.asyncio.sleep", lambda _: sleep(0))


async def requested(provider: Any) -> None:
    progress = Progress(write=lambda _: None)
    await response.request_exports(provider, objects.SPACE, [objects.request()], progress)


async def test_a_request_is_waited_for(quick):
    provider = FakeProvider(["a"], [status(""), status("Pending"), status("Succeeded")])
    await requested(provider)
    assert provider.made == [{"name": "databases.shop.example", "namespace": objects.SPACE}]


async def test_a_right_that_comes_late_and_a_name_that_is_taken_are_no_failure(quick):
    taken = AlreadyExists("taken", ref=REF, verb="create")
    provider = FakeProvider([FORBIDDEN, taken, "a"], [status("Succeeded")])
    await requested(provider)
    assert provider.made[-1] == {
        "generateName": "databases.shop.example-",
        "namespace": objects.SPACE,
    }


@pytest.mark.parametrize(
    ("creates", "reads", "error", "why"),
    [
        ([FORBIDDEN], [], Forbidden, "never"),
        (["a"], [status("Failed", terminalMessage="no such service")], BindEnded, "no such"),
        (["a"], [None], BindEnded, "has deleted"),
        (["a"], [status("Pending", conditions=[{"message": "no template"}])], NotInTime,
         "no template"),
        (["a"], [status("Pending")], NotInTime, "it gives no reason"),
    ],
)  # fmt: skip
async def test_what_is_not_served_says_why(quick, creates, reads, error, why):
    with pytest.raises(error, match=why) as caught:
        await requested(FakeProvider(creates, reads))
    assert type(caught.value) is error
