"""What `klutchctl render` prints of the last objects of a small fleet, to the byte."""

import json

from klutchctl import main
from tests.support.scenes import binding, cluster, fleet_head, plane


def test_text(golden, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text(fleet_head() + plane() + cluster() + binding())
    assert main.run(["render"]) == 0
    documents = capsys.readouterr().out.split("---\n")
    assert any("cluster shop, in it; only where it is absent" in one for one in documents)
    golden("---\n".join(["", *documents[-2:]]), "render.yaml")


def test_json(golden, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text(fleet_head() + plane() + cluster() + binding())
    assert main.run(["render", "-o", "json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    shown = {**whole, "files": "", "objects": whole["objects"][-1:]}
    golden(json.dumps(shown, indent=2) + "\n", "render.json")
