"""The scripted backup manager: numbers that grow, jobs that go on, and what it refuses."""

from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from tests.support import osb_faults
from tests.support.osb_backup_manager import BackupManager, managing

I1 = "/instances/i1"


@pytest.fixture
def manager() -> Iterator[BackupManager]:
    with managing(lambda instance: instance != "unknown") as made:
        yield made


async def ask(manager: BackupManager, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    headers = {"Authorization": aiohttp.encode_basic_auth(manager.user, manager.password)}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, manager.url + path, json=body) as response,
    ):
        return response.status, await response.json() if method != "HEAD" else None


async def test_a_backup_is_made_restored_and_deleted(manager):
    assert (await ask(manager, "HEAD", "/instances"))[0] == 200
    status, made = await ask(manager, "POST", f"{I1}/backups")
    path = f"{I1}/backups/{made['id']}"
    assert status == 201
    assert (await ask(manager, "POST", f"{path}/restore"))[0] == 422
    seen = [(await ask(manager, "GET", path))[1]["status"] for _ in range(3)]
    assert seen == ["queued", "running", "done"]
    status, restore = await ask(manager, "POST", f"{path}/restore")
    assert status == 202
    assert (await ask(manager, "POST", f"{path}/restore"))[0] == 409
    seen = [
        (await ask(manager, "GET", f"{I1}/restores/{restore['id']}"))[1]["status"] for _ in range(3)
    ]
    assert seen == ["queued", "running", "done"]
    assert (await ask(manager, "DELETE", path))[0] == 200
    assert (await ask(manager, "GET", path))[0] == 404
    assert manager.violations == []


async def test_a_post_whose_answer_is_lost_left_a_newer_number(manager):
    manager.faults.add("create-backup", osb_faults.says(500, processed=True), times=1)
    assert (await ask(manager, "POST", f"{I1}/backups"))[0] == 500
    (number,) = manager.of("i1")
    assert (await ask(manager, "GET", f"{I1}/backups"))[1][0]["id"] == number
    second = (await ask(manager, "POST", f"{I1}/backups"))[1]["id"]
    assert second == number + 1


async def test_what_cannot_be_is_refused_and_noted(manager):
    assert (await ask(manager, "PUT", I1, {"encryption_key": "12345678"}))[0] == 200
    assert manager.settings == {"i1": {"encryption_key": "12345678"}}
    assert (await ask(manager, "POST", "/instances/unknown/backups"))[0] == 404
    assert manager.violations == []
    assert (await ask(manager, "PUT", I1, {"another": 1}))[0] == 400
    assert (await ask(manager, "GET", "/instances/i1/other"))[0] == 404
    assert len(manager.violations) == 2
    manager.answers_health = False
    assert (await ask(manager, "GET", "/v2/healthy"))[0] == 404
