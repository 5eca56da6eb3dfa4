"""A bind as files of a fleet: valid, with what was accepted as the most there may be."""

import os

import pytest
import yaml

from klutchctl import main
from klutchctl.binding import fleet_file
from klutchctl.binding.response import Wanted
from klutchctl.settings import Settings
from reconciler.blueprints import consent
from reconciler.core.errors import ConfigError, InvalidRepository
from reconciler.core.refs import GroupResource
from reconciler.fleet import reference_index
from tests.support.binding_objects import CONFIG_MAP, SECRETS
from tests.support.fleet_texts import GOOD

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
    query = reference_index.parse_label_query("env=prod")
    chosen = Settings(os.environ, selector=query)
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
