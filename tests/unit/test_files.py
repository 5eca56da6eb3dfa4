"""Files and folders that are there whole, or not at all."""

from klutchctl import files


def test_a_folder_goes_with_what_a_killed_removal_has_left(tmp_path):
    folder, other = tmp_path / "demo", tmp_path / "other"
    left = tmp_path / ".demo.going-x" / "it"
    for one in (folder, other, left):
        one.mkdir(parents=True)
        (one / "state.json").write_text("{}")
    files.remove_folder(folder)
    assert list(tmp_path.iterdir()) == [other]
    files.remove_folder(folder)
    assert list(tmp_path.iterdir()) == [other]


def test_a_link_that_somebody_put_there_is_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (tmp_path / ".demo.going-x").symlink_to(precious)
    files.remove_folder(tmp_path / "demo")
    assert precious.is_dir()
