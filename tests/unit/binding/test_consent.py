"""How claims are answered: by a person, a pipe, flags or a page (D.6, F20, F23)."""

import io
import os

import pytest
import yaml

from klutchctl import main
from klutchctl.binding import Claims, decisions, fleet_file
from klutchctl.binding.decisions import Answers, Verdict
from klutchctl.binding.progress import NoConsent
from klutchctl.binding.response import Wanted
from klutchctl.settings import Settings
from reconciler.blueprints import consent
from reconciler.core.errors import ConfigError, InvalidRepository
from reconciler.core.refs import GroupResource
from reconciler.fleet import reference_index
from tests.support.binding_objects import CONFIG_MAP, SECRETS
from tests.support.fleet_texts import GOOD

WANTED = Wanted(GroupResource("shop.example", "databases"), [SECRETS, CONFIG_MAP])
OPTIONAL = Wanted(WANTED.resource, [CONFIG_MAP])


def answered(text="", *, claims=Claims.ASK, accept=(), wanted=WANTED, page=None):
    asked: list[str] = []
    answers = Answers(claims, frozenset(accept), asked.append, io.StringIO(text).readline)
    return [claim["state"] for claim in answers.of(wanted, page)], asked


@pytest.mark.parametrize(
    ("text", "states", "questions"),
    [
        ("yes\nyes\n", ["Accepted", "Accepted"], 2),
        ("y\nn", ["Accepted", "Rejected"], 2),  # both from one pipe, the last without its end
        (" YES \nNo\n", ["Accepted", "Rejected"], 2),
        ("what\n\nyes\nmaybe\nno\n", ["Accepted", "Rejected"], 5),
    ],
)
def test_answers_come_from_one_reader_until_each_is_yes_or_no(text, states, questions):
    found, asked = answered(text)
    assert found == states
    assert len(asked) == questions


def test_a_question_ends_as_that_of_the_original():
    _, asked = answered("yes\nno\n")
    assert asked[1].startswith("The provider asks for this (optional): Read ConfigMaps in your")
    assert asked[1].endswith("\nDo you accept this Permission? [No,Yes]\n")


@pytest.mark.parametrize(
    ("claims", "accept", "states"),
    [
        (Claims.ALL, (), ["Accepted", "Accepted"]),
        (Claims.REQUIRED, (), ["Accepted", "Rejected"]),
        (Claims.REQUIRED, ("configmaps",), ["Accepted", "Accepted"]),
        (Claims.NONE, ("secrets",), ["Accepted", "Rejected"]),
        (Claims.ASK, ("secrets", "configmaps"), ["Accepted", "Accepted"]),
    ],
)
def test_flags_answer_without_a_question(claims, accept, states):
    assert answered(claims=claims, accept=accept) == (states, [])


@pytest.mark.parametrize(
    ("claims", "rejected"), [(Claims.REQUIRED, ["configmaps"]), (Claims.ALL, []), (Claims.ASK, [])]
)
def test_what_a_flag_rejects_is_named_since_nobody_was_asked(claims, rejected):
    answers = Answers(claims, (), ask=print, read=lambda _: "yes\n")
    states = [{"resource": "secrets", "state": "Accepted"}]
    states += [{"resource": "configmaps", "state": "Accepted" if rejected == [] else "Rejected"}]
    assert answers.rejected_unasked(states) == rejected


@pytest.mark.parametrize(
    ("text", "claims"), [("no\nyes\n", Claims.ASK), ("", Claims.NONE), ("yes\n", Claims.ASK)]
)
def test_a_required_claim_that_is_rejected_and_no_answer_end_the_bind(text, claims):
    with pytest.raises(NoConsent):
        answered(text, claims=claims)


def test_an_optional_claim_may_be_rejected():
    assert answered(claims=Claims.NONE, wanted=OPTIONAL)[0] == ["Rejected"]


def test_a_pipe_of_nonsense_ends():
    with pytest.raises(NoConsent, match="yes or no"):
        answered("what\n" * 1000)


def test_only_kinds_that_are_claimed_can_be_accepted():
    decisions.require_known({"secrets", "configmaps"}, [WANTED])
    with pytest.raises(ConfigError, match=r"pods.*configmaps, secrets"):
        decisions.require_known({"pods"}, [WANTED])


# The door leaves out, or says, what an API server fills in.
PAGE = [{**SECRETS, "group": "", "state": "Accepted"}, {**CONFIG_MAP, "state": "Accepted"}]
SECRETS_ONLY = [PAGE[0], {**CONFIG_MAP, "state": "Rejected"}]


@pytest.mark.parametrize(
    ("flags", "page", "states", "questions"),
    [
        ({"text": "yes\n"}, PAGE, ["Accepted", "Accepted"], 1),
        ({"text": "yes\n"}, SECRETS_ONLY, ["Accepted", "Rejected"], 1),
        ({"text": "no\n", "wanted": OPTIONAL}, PAGE, ["Rejected"], 1),
        ({"claims": Claims.NONE, "wanted": OPTIONAL}, PAGE, ["Rejected"], 0),
        ({"claims": Claims.NONE, "accept": ["secrets"]}, PAGE, ["Accepted", "Rejected"], 0),
        ({"claims": Claims.REQUIRED}, PAGE, ["Accepted", "Rejected"], 0),
        ({"claims": Claims.ALL}, SECRETS_ONLY, ["Accepted", "Rejected"], 0),
        ({"text": "yes\n", "accept": ["configmaps"]}, PAGE, ["Accepted", "Accepted"], 1),
        ({"accept": ["configmaps"], "wanted": OPTIONAL}, [], ["Rejected"], 0),
    ],
)
def test_a_page_proposes_in_one_question_and_flags_narrow_it(flags, page, states, questions):
    """S2: a hostile door answers for the person."""
    found, asked = answered(page=page, **flags)
    assert (found, len(asked)) == (states, questions)
    assert all(one.startswith("The provider reports") for one in asked)


@pytest.mark.parametrize(
    "page",
    [
        [],
        [{**SECRETS, "state": "Rejected"}],
        [{**SECRETS, "selector": {"names": ["one"]}, "state": "Accepted"}],  # another claim
    ],
)
def test_a_required_claim_that_the_page_did_not_agree_to_ends_the_bind(page):
    with pytest.raises(NoConsent, match="secrets"):
        answered("yes\n", page=page, claims=Claims.ALL)


IN_SYSTEM = {**SECRETS, "selector": {"namespaces": ["*", "kube-system"], "owner": "Provider"}}
OF_APPS = {**SECRETS, "selector": {"names": ["*"], "namespaces": ["*"], "owner": "Consumer"}}
BOTH = {**SECRETS, "selector": {"namespaces": ["kube-system", "klutch-bind"]}}
OPENINGS = [
    (IN_SYSTEM, ["secrets in kube-system"]),
    ({**CONFIG_MAP, "selector": {"namespaces": ["klutch-bind"]}}, ["configmaps in klutch-bind"]),
    (OF_APPS, ["secrets of applications"]),
    ({**SECRETS, "autoAdopt": True}, ["secrets of applications"]),
    (BOTH, ["secrets in klutch-bind", "secrets in kube-system", "secrets of applications"]),
]


@pytest.mark.parametrize(("claim", "opened"), OPENINGS)
@pytest.mark.parametrize("proposed", [True, False])
@pytest.mark.parametrize("claims", Claims)
@pytest.mark.parametrize("interactive", [True, False])
def test_what_a_claim_opens_beside_its_kind_is_asked_or_named_whatever_flags_and_page_say(
    claim, opened, proposed, claims, interactive
):
    kinds = ["secrets", "configmaps"]
    asks = claims is Claims.ASK or interactive
    for accept, at_best in (
        (kinds, Verdict.ASK if asks else Verdict.REJECT),
        ([*kinds, *opened], Verdict.ACCEPT),
        (opened, Verdict.ACCEPT),
        (["secrets in kube-public"], None),
    ):
        answers = Answers(claims, accept, print, lambda _: "", interactive=interactive)
        found = answers.verdict(claim, proposed=proposed)
        assert found is not Verdict.ACCEPT or (proposed and {*opened} <= {*accept})
        assert at_best is None or found is (at_best if proposed else Verdict.REJECT)


def test_what_a_flag_rejects_of_the_cluster_itself_is_named_as_accept_takes_it():
    wanted = Wanted(WANTED.resource, [{**OF_APPS, "required": False}])
    answers = Answers(Claims.ALL, (), print, lambda _: "")
    assert answers.rejected_unasked(answers.of(wanted)) == ["secrets of applications"]
    decisions.require_known({"secrets", "secrets of applications"}, [wanted])


QUEUES = Wanted(GroupResource("queues.example", "queues"), [SECRETS, CONFIG_MAP])
CLAIM = {
    "group": "",
    "resource": "secrets",
    "version": "v1",
    "owner": "Provider",
    "names": ["*"],
    "namespaces": ["*"],
}
REJECTED = {
    **CLAIM,
    "resource": "configmaps",
    "owner": "Consumer",
    "names": ["backup-settings"],
    "state": "Rejected",
}

CHOSEN = {"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}]}


@pytest.fixture
def repo(tmp_path):
    for name, text in GOOD.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def settings(**said):
    return Settings(os.environ, clusters=("shop",), **said)


def written(repo, *, choices=(0,), force=False, said=None, wanted=QUEUES):
    said = said or settings()
    target = fleet_file.opened(repo / "bindings" / "queues.yaml", said, force=force)
    claims = consent.accepted(wanted.claims, choices)
    return [*yaml.safe_load_all(target.write([(wanted, claims)], said).read_text())]


def test_a_template_has_what_was_accepted_and_a_binding_who_gets_it(repo, capsys):
    template, binding = written(repo)
    assert template["spec"] == {
        "resources": [{"group": "queues.example", "resource": "queues"}],
        "claims": [CLAIM],
    }
    assert binding["spec"] == {
        "template": template["metadata"]["name"],
        "clusters": {"names": ["shop"]},
        "claims": [{**CLAIM, "state": "Accepted"}, REJECTED],
    }
    assert main.run(["validate", str(repo)]) == 0
    assert "2 bindings -> 2 units" in capsys.readouterr().out


def test_where_all_is_accepted_the_template_says_it_all(repo):
    _, binding = written(repo, choices=(0, 1))
    assert binding["spec"].keys() == {"template", "clusters"}


def test_a_template_that_covers_it_is_taken(repo):
    written(repo)
    (repo / "bindings" / "queues.yaml").rename(repo / "bindings" / "first.yaml")
    text = (repo / "bindings" / "first.yaml").read_text()
    (repo / "bindings" / "first.yaml").write_text(text.split("\n---\n")[0] + "\n")
    [binding] = written(repo)
    assert binding["kind"] == "Binding"


def test_clusters_may_be_chosen_by_labels(repo):
    chosen = Settings(os.environ, selector=reference_index.parse_label_query("env=prod"))
    _, binding = written(repo, said=chosen)
    assert binding["spec"]["clusters"] == CHOSEN
    other = Settings(os.environ, selector=reference_index.parse_label_query("env=none"))
    with pytest.raises(ConfigError, match="matches no cluster"):
        written(repo, said=other, force=True)


def test_a_file_that_is_there_is_replaced_by_force_only(repo):
    written(repo)
    with pytest.raises(ConfigError, match="is there already"):
        written(repo)
    assert len(written(repo, force=True)) == 2


@pytest.mark.parametrize("file", ["queues.yaml", "../elsewhere.yaml"])
def test_the_file_belongs_to_the_fleet(repo, file):
    with pytest.raises(ConfigError):
        fleet_file.opened(repo / file, settings(), force=False)


def test_clusters_are_named_and_known(repo):
    file = repo / "bindings" / "queues.yaml"
    for said in (Settings(os.environ), Settings(os.environ, clusters=("other",))):
        with pytest.raises(ConfigError):
            fleet_file.opened(file, said, force=False)


def test_what_a_fleet_cannot_say_or_forbids_is_not_written(repo):
    unowned = Wanted(QUEUES.resource, [{**SECRETS, "selector": {"names": ["*"]}}])
    with pytest.raises(ConfigError, match="names no owner"):
        written(repo, wanted=unowned)
    policy = {
        "apiVersion": "klutchctl.dev/v1alpha1",
        "kind": "Policy",
        "metadata": {"name": "none"},
        "spec": {"paths": ["bindings/queues.yaml"]},
    }
    (repo / "policies").mkdir(exist_ok=True)
    (repo / "policies" / "none.yaml").write_text(yaml.safe_dump(policy))
    with pytest.raises(InvalidRepository):
        written(repo)
    assert not (repo / "bindings" / "queues.yaml").exists()
