"""The files of the example's broker follow from its catalogue, and a fleet may have them."""

import shutil

from klutchctl import main
from klutchctl.entry import ExitCode
from tests.support.operated import SERVICES

OSB = SERVICES / "osb"


def test_they_are_what_the_saved_catalogue_makes(capsys):
    saved = ["--catalog", str(OSB / "catalog.json")]
    code = main.run(["catalog", str(OSB / "broker.yaml"), *saved, "--check"])
    output = capsys.readouterr()
    assert code == ExitCode.SUCCESS, output.out
    assert output.err == ""


def test_a_fleet_with_them_and_with_what_is_direct_is_valid(tmp_path, capsys):
    fleet = tmp_path / "fleet"
    shutil.copytree(SERVICES.parent, fleet, ignore=shutil.ignore_patterns("services"))
    for overlay in (SERVICES / "direct", OSB / "overlay"):
        shutil.copytree(overlay, fleet, dirs_exist_ok=True)
    shutil.copytree(OSB / "fleet", fleet / "templates", dirs_exist_ok=True)
    code = main.run(["validate", str(fleet)])
    assert code == ExitCode.SUCCESS, capsys.readouterr().out
