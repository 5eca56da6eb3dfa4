"""Expected outputs as files: `pytest tests/golden --update-golden` writes them anew."""

from pathlib import Path

import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="Write the expected outputs anew."
    )


@pytest.fixture
def golden(request):
    """Compare a text with an expected output, a file beside the test."""
    update = request.config.getoption("--update-golden", default=False)

    def compare(text: str, name: str) -> None:
        file = Path(request.path).parent / "expected" / name
        if update:
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(text.encode())
        assert file.is_file(), f"{name} is new: run pytest tests/golden --update-golden"
        assert text == file.read_bytes().decode(), f"{name} differs"

    return compare
