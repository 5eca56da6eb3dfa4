"""T12: what no Policy matches may do nothing where the Fleet says so, on real API servers."""

from dataclasses import dataclass

from reconciler.fleet.values import Mode
from tests.support.apply_runs import staged
from tests.support.applying import Fleet


@dataclass
class Denying(Fleet):
    """The files of a fleet that allows nothing by itself."""

    def write(self) -> None:
        super().write()
        file = self.folder / "fleet.yaml"
        file.write_text(file.read_text().replace("default: Allow", "default: Deny"))


async def test_what_no_policy_allows_is_not_applied(
    control_plane, app_cluster, namespace, tmp_path
):
    made = staged(
        control_plane, app_cluster, namespace=namespace, mode=Mode.DIRECT, folder=tmp_path
    )
    async with made as scene:
        old = scene.fleet
        scene.fleet = Denying(old.folder, old.name, old.mode, old.group)
        marks = scene.marks()
        run = await scene.apply(code=4)
        assert "no Policy has a path for this file" in run.stderr
        assert [w for audit, mark in marks for w in audit.writes_since(mark)] == []
