"""Pictures of the site are younger than what they show: `make pictures` takes them again."""

import pytest

from tests.support import books, pictures

RECORD = pictures.record()
CODE = "A = 1\n\ndef f():\n    # why\n    return A\n"


@pytest.mark.parametrize("name", RECORD)
def test_nothing_that_a_picture_shows_changed_since_it_was_taken(name):
    assert pictures.changed(RECORD[name]) == [], f"look, then `make pictures ARGS={name}`"


def test_each_picture_is_in_a_book_is_small_and_names_what_it_shows():
    found = {*pictures.FOLDER.iterdir()} - {pictures.RECORD}
    assert {one.name for one in found} == {name for name, inputs in RECORD.items() if inputs}
    pages = "".join(map(books.text, books.BOOKS))
    assert [one.name for one in found if f"pictures/{one.name}" not in pages] == []
    assert max(one.stat().st_size for one in found) <= 200_000


@pytest.mark.parametrize("name", ["", "a.py", "a.py:f"])
def test_a_change_of_an_input_is_noticed_but_of_no_comment(tmp_path, name):
    def digest(code):
        (tmp_path / "a.py").write_text(code)
        return pictures.digest(name, tmp_path)

    assert digest(CODE) == digest(CODE.replace("why", "because"))
    assert digest(CODE) != digest(CODE.replace("return A", "return 2"))
    assert (digest(CODE) == digest(CODE.replace("1", "2"))) is (":f" in name)
    with pytest.raises((OSError, ValueError)):
        pictures.digest(f"{name}:absent", tmp_path / "b" / "c")
