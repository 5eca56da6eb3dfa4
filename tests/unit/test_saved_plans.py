"""`klutchctl apply PLANFILE`: the fleet is read as it was when the plan was made, or not at all."""

import shutil
from pathlib import Path

import pytest
import yaml

from klutchctl import main, repository
from reconciler.planning import planfile
from reconciler.planning.changes import Plan
from tests.support.checkouts import Checkout
from tests.support.fleet_texts import BINDING, GOOD


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.chdir(tmp_path)
    named = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("cp", "shop")]
    known = {
        "contexts": named,
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    Path("kubeconfig").write_text(yaml.safe_dump(known))
    monkeypatch.setenv("KUBECONFIG", "kubeconfig")
    made = Checkout(tmp_path)
    made.write(GOOD)
    return made


def save(checkout: Checkout, revision: str) -> None:
    """Save a plan by which nothing is to be done."""
    fleet = repository.fleet_in(checkout.folder, check_owner=True)
    plan = Plan(
        fleet=fleet.name,
        revision=revision,
        digest=fleet.digest,
        changes=(),
        sections={},
        repository=str(checkout.folder),
    )
    Path("a.plan").write_bytes(planfile.dump(planfile.identified(plan)))


CHANGED = BINDING.replace("name: db", "name: other")
EDITED = {"changed": CHANGED, "being edited": "wrong: ["}


@pytest.mark.parametrize("text", EDITED.values(), ids=EDITED)
def test_a_plan_of_a_commit_is_applied_whatever_stands_in_the_folder(checkout, text):
    save(checkout, checkout.commit())
    checkout.write({"bindings/db.yaml": text})
    assert main.run(["apply", "a.plan"]) == 0


def test_a_plan_of_a_commit_is_applied_without_the_folder(checkout):
    save(checkout, checkout.commit())
    shutil.rmtree(checkout.folder)
    assert main.run(["apply", "a.plan"]) == 0


@pytest.mark.parametrize(("text", "code"), [(CHANGED, 7), ("wrong: [", 3)], ids=EDITED)
def test_a_plan_of_no_commit_needs_the_files_as_they_were(checkout, text, code):
    checkout.commit()
    save(checkout, "")
    assert main.run(["apply", "a.plan"]) == 0
    checkout.write({"bindings/db.yaml": text})
    assert main.run(["apply", "a.plan"]) == code


def test_another_commit_is_no_substitute(checkout):
    save(checkout, "")
    checkout.write({"bindings/db.yaml": CHANGED})
    other = checkout.commit()
    checkout.write({"bindings/db.yaml": BINDING})
    save(checkout, other)
    checkout.write({"bindings/db.yaml": CHANGED})
    assert main.run(["apply", "a.plan"]) == 7


def test_changed_files_make_a_plan_stale_whose_commit_is_gone(checkout, capsys):
    save(checkout, "a" * 40)
    checkout.commit()
    checkout.write({"bindings/db.yaml": CHANGED})
    assert main.run(["apply", "a.plan"]) == 7
    assert "what a shallow clone lacks, fetch" in capsys.readouterr().err
