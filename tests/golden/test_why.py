"""What `klutchctl why` prints of a snapshot, to the byte."""

import pytest

from klutchctl import main
from reconciler.core.live import dump_live
from tests.support.scenes import applied, binding, cluster, fleet, fleet_head, plane
from tests.support.worlds import POSTGRES

NAMED = fleet_head() + plane() + cluster() + binding()
FILES = {"why": NAMED, "why-left": NAMED[: NAMED.rindex("---")].replace("100", "0", 1)}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("form", "extension"), [("text", "txt"), ("json", "json")])
def test_an_output(golden, tmp_path, monkeypatch, capsys, *, name, form, extension):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text(FILES[name])
    live = applied().live(fleet(plane(), cluster(), binding()))
    (tmp_path / "live.json").write_bytes(dump_live(live))
    assert main.run(["why", f"shop/{POSTGRES}", "--snapshot", "live.json", "-o", form]) == 0
    golden(capsys.readouterr().out, f"{name}.{extension}")
