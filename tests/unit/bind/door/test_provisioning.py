"""What makes the binding space of an identity's app cluster, and what is refused."""

import base64
from dataclasses import replace
from typing import Final

import pytest
import yaml

from bind.bounds import RESTRICTED
from bind.door import provisioning
from bind.door.identity import Identity, Refused
from bind.door.provisioning import Content, Outcome, Seen, Space, SpaceTerms, Wait, Wanted
from reconciler.blueprints import objects, rbac
from reconciler.blueprints.objects import UNMARKED, Marks
from reconciler.core import keys, manifest, names
from reconciler.core.decision import Create, Patch
from reconciler.core.manifest import Manifest, put
from tests.support.kubeconfigs import b64

ISSUER: Final = "https://idp.example.org"
ALICE: Final = Identity(ISSUER, "alice", "oidc:alice")
TERMS: Final = SpaceTerms(
    "cluster-", "Shop Inc", "https://api.example.org:6443", ca="PEM", labels=RESTRICTED
)
SERVICE: Final = frozenset({"databases.shop.example"})
WANTED: Final = Wanted(ALICE, "4ceiSr", TERMS, SERVICE)
SPACE: Final = WANTED.name


def live(made: Manifest, **metadata: str) -> Manifest:
    held = {"uid": f"uid-{manifest.name_of(made)}", "resourceVersion": "7", **metadata}
    return put(made, {**manifest.get_map(made, "metadata"), **held}, "metadata")


def namespace(
    identity: str = "alice#4ceiSr",
    issuer: str = ISSUER,
    name: str = SPACE,
    bound: str = "databases.shop.example",
    released: str = "",
    **labels: str,
) -> Manifest:
    notes = {keys.IDENTITY: identity, keys.ISSUER: issuer, keys.MAY_BIND: bound}
    notes |= {keys.RELEASED: released}
    notes = {key: value for key, value in notes.items() if value}
    return live(objects.namespace(name, marks=Marks(labels, notes)))


def token(value: str = "t0ken", ca: str = "other PEM") -> Manifest:
    data = {"token": b64(value), "ca.crt": b64(ca)}
    return live({**objects.token_secret(SPACE, names.BINDER, marks=UNMARKED), "data": data})


def cluster_binding(secret: str = "kubeconfig", marks: Marks = UNMARKED) -> Manifest:
    spec = {"providerPrettyName": "x"}
    return live(objects.cluster_binding(SPACE, kubeconfig_name=secret, spec=spec, marks=marks))


def stored(text: str, **fields: bool) -> Manifest:
    secret = objects.kubeconfig_secret(SPACE, "kubeconfig", content=text, marks=UNMARKED)
    return live({**secret, **fields})


ACCOUNT: Final = live(objects.service_account(SPACE, names.BINDER, marks=UNMARKED))
GRANTED: Final = live(rbac.binding_in_space(SPACE))
HALF: Final = Content(cluster_binding(), ACCOUNT, token(), None, GRANTED)


def decide(content: Content = HALF, *spaces: Manifest, wanted: Wanted = WANTED) -> Outcome:
    return provisioning.decide(Seen("cp", spaces or (namespace(),), content), wanted)


def kubeconfig(content: Content = HALF, wanted: Wanted = WANTED) -> str:
    (step,) = steps(decide(content, wanted=wanted))
    assert isinstance(step, Create)
    return base64.b64decode(manifest.get_text(step.manifest, "data", "kubeconfig")).decode()


def steps(outcome: Outcome) -> tuple[Create | Patch, ...]:
    assert isinstance(outcome, tuple), outcome
    return outcome


def test_a_space_begins_with_a_namespace_that_says_whose_it_is() -> None:
    (step,) = steps(provisioning.decide(Seen("cp"), WANTED))
    assert isinstance(step, Create)
    assert manifest.name_of(step.manifest) == SPACE
    assert manifest.labels_of(step.manifest) == RESTRICTED
    said = manifest.annotations_of(step.manifest)
    assert said == {
        keys.IDENTITY: "alice#4ceiSr",
        keys.ISSUER: ISSUER,
        keys.MAY_BIND: "databases.shop.example",
    }


@pytest.mark.parametrize(("owned", "refused"), [(49, False), (50, True), (51, True)])
def test_a_new_space_needs_room(owned: int, refused: bool) -> None:
    outcome = provisioning.decide(Seen("cp", owned=owned), WANTED)
    assert isinstance(outcome, Refused) == refused
    if isinstance(outcome, Refused):
        assert (outcome.code, outcome.reason) == ("forbidden", "quota")


@pytest.mark.parametrize(
    ("spaces", "says"),
    [
        ([namespace("bob#4ceiSr")], "is taken"),
        ([namespace(issuer="https://former.example.org")], "another issuer"),
        ([namespace(), namespace(name="cluster-7fk2q")], "two binding spaces"),
        ([live(namespace(), deletionTimestamp="2026-11-25T10:00:00Z")], "is being deleted"),
    ],
)
def test_what_is_not_the_one_space_of_the_identity_is_left_alone(
    spaces: list[Manifest], says: str
) -> None:
    outcome = decide(HALF, *spaces)
    assert isinstance(outcome, Refused)
    assert outcome.code == "conflict"
    assert says in str(outcome)


def test_the_first_bind_says_who_vouches_for_a_space_of_the_original() -> None:
    (step,) = steps(decide(HALF, namespace(issuer="", name="cluster-7fk2q", bound="")))
    assert isinstance(step, Patch)
    assert manifest.annotations_of(step.body) == {
        keys.ISSUER: ISSUER,
        keys.MAY_BIND: "databases.shop.example",
    }
    assert manifest.resource_version_of(step.body) == "7"
    assert manifest.uid_of(step.body) == "uid-cluster-7fk2q"


QUEUES: Final = "queues.shop.example"
FLEET: Final = {keys.FLEET: "shop"}
LET_GO: Final = {**FLEET, "released": "2026-11-25T10:00:00Z"}
BOTH: Final = "databases.shop.example,queues.shop.example"
NOTED: Final = {
    "another service": (namespace(bound=QUEUES), (), BOTH),
    "what it has counts only before the first note": (namespace(bound=QUEUES), ("x.y",), BOTH),
    "of a version before, with nothing": (namespace(bound=""), (), "databases.shop.example"),
    "of a version before, with what it has": (namespace(bound=""), (QUEUES,), BOTH),
    "the same service": (namespace(), (QUEUES,), None),
    "two services, one of them again": (namespace(bound=BOTH), (), None),
    "taken over by a fleet": (namespace(bound=QUEUES, **FLEET), (), None),
    "taken over before any note": (namespace(bound="", **FLEET), (), None),
    "let go by a fleet": (namespace(bound=QUEUES, **LET_GO), (), BOTH),
    "let go by a fleet, with what it has": (namespace(bound="", **LET_GO), (QUEUES,), BOTH),
}


@pytest.mark.parametrize(("there", "held", "noted"), NOTED.values(), ids=NOTED)
def test_what_is_bound_is_noted_before_anything_else(
    there: Manifest, held: tuple[str, ...], noted: str | None
) -> None:
    seen = Seen("cp", (there,), HALF, resources=frozenset(held))
    (step,) = steps(provisioning.decide(seen, WANTED))
    if noted is None:
        assert isinstance(step, Create)  # of the Secret that HALF lacks
        return
    assert isinstance(step, Patch)
    assert manifest.annotations_of(step.body) == {keys.MAY_BIND: noted}
    assert manifest.resource_version_of(step.body) == "7"


def test_a_space_fills_one_thing_after_the_other() -> None:
    made = []
    for content in (Content(), Content(cluster_binding()), replace(HALF, token=None), HALF):
        created = steps(decide(content))
        made.append([str(one.kind) for one in created if isinstance(one, Create)])
    assert made == [["ClusterBinding"], ["ServiceAccount", "Secret"], ["Secret"], ["Secret"]]


@pytest.mark.parametrize("part", ["cluster_binding", "account", "token", "kubeconfig"])
def test_what_is_being_deleted_is_waited_for(part: str) -> None:
    going = live({"metadata": {"name": "x"}}, deletionTimestamp="2026-11-25T10:00:00Z")
    full = replace(HALF, kubeconfig=stored(kubeconfig()))
    assert isinstance(decide(replace(full, **{part: going})), Wait)


def test_the_token_is_waited_for_and_its_certificate_where_there_is_no_other() -> None:
    bare = replace(WANTED, terms=replace(TERMS, ca=""))
    assert isinstance(decide(replace(HALF, token=token(""))), Wait)
    assert isinstance(decide(replace(HALF, token=token(ca="")), wanted=bare), Wait)
    assert isinstance(decide(replace(HALF, token=token(ca=""))), tuple)


@pytest.mark.parametrize(("ca", "used"), [("PEM", "PEM"), ("", "other PEM")])
def test_the_kubeconfig_leads_into_the_space(ca: str, used: str) -> None:
    terms = replace(TERMS, ca=ca, tls_server_name="api.internal")
    document = yaml.safe_load(kubeconfig(wanted=replace(WANTED, terms=terms)))
    assert document["current-context"] == "default"
    assert document["contexts"][0]["context"]["namespace"] == SPACE
    assert document["users"] == [{"name": "default", "user": {"token": "t0ken"}}]
    assert document["clusters"][0]["cluster"] == {
        "server": TERMS.server,
        "certificate-authority-data": b64(used),
        "tls-server-name": "api.internal",
    }


def test_a_kubeconfig_that_differs_is_repaired_whole() -> None:
    secret = {**stored("old"), "data": {"kubeconfig": b64("old"), "more": b64("x")}}
    (step,) = steps(decide(replace(HALF, kubeconfig=secret)))
    assert isinstance(step, Patch)
    assert step.body["data"] == {"kubeconfig": b64(kubeconfig()), "more": None}
    assert manifest.resource_version_of(step.body) == "7"


def test_ready_is_a_space_whose_konnector_has_its_rights() -> None:
    full = replace(HALF, kubeconfig=stored(kubeconfig()))
    ready = decide(full)
    assert ready == Space(SPACE, kubeconfig().encode())
    assert "t0ken" not in repr(ready)
    assert isinstance(decide(replace(full, role_binding=None)), Wait)
    foreign = live(rbac.binding_in_space("other"), namespace=SPACE)
    assert isinstance(decide(replace(full, role_binding=foreign)), Wait)


@pytest.mark.parametrize(
    "content",
    [
        replace(HALF, cluster_binding=cluster_binding(secret=names.BINDER)),
        replace(
            HALF,
            cluster_binding=cluster_binding(
                marks=Marks(keys.app_cluster_binding_labels("shop", "edge"))
            ),
        ),
        replace(HALF, token=live({"metadata": {"name": names.BINDER}, "type": "Opaque"})),
        replace(HALF, kubeconfig=stored("old", immutable=True)),
    ],
    ids=["the secret of the token", "of control-plane mode", "no token", "immutable"],
)
def test_what_others_made_of_a_space_is_not_mended(content: Content) -> None:
    outcome = decide(content)
    assert isinstance(outcome, Refused)
    assert outcome.code == "conflict"


def test_the_secret_of_a_space_that_is_there_keeps_its_name() -> None:
    assert provisioning.kubeconfig_place(cluster_binding("own")) == ("own", "kubeconfig")
    assert provisioning.kubeconfig_place(None) == ("kubeconfig", "kubeconfig")


def test_spaces_that_go_make_room() -> None:
    going = live(namespace(), deletionTimestamp="2026-11-25T10:00:00Z")
    assert provisioning.owned([namespace(), going]) == 1
