"""The operator of fleet-example on a real API server and a real PostgreSQL server."""

import logging
import stat

import psycopg
import pytest

from postgresql_operator.dumps import TOOLS
from postgresql_operator.wire import BACKUP, BINDING, POSTGRESQL, RESTORE
from postgresql_server.postgres import Postgres, ServerTrouble
from reconciler.core.errors import Rejected
from reconciler.core.manifest import get_int, get_text
from reconciler.core.refs import SECRET
from tests.support import operated
from tests.support.eventually import eventually


def refused(one: operated.User, reported):
    with pytest.raises(psycopg.OperationalError) as failure:
        one.ask(reported, "SELECT 1")
    return str(failure.value)


async def test_the_whole_day(place, shop, server, caplog):
    caplog.set_level(logging.DEBUG)
    async with operated.operating(place):
        reported = await operated.bound(shop)
        live = await shop.phase(POSTGRESQL, "orders", "Ready")
        assert reported["port"] == str(get_int(live, "status", "port")) == str(server.port)
        assert reported["database"] == get_text(live, "status", "database")
        assert (reported["hosts"], reported["name"]) == (reported["host"], reported["database"])
        assert reported["uri"].startswith(
            f"postgresql://{reported['username']}:{reported['password']}@"
        )
        operated.written(shop, reported)

        await shop.make(BACKUP, "nightly", instanceRef="orders")
        live = await shop.phase(BACKUP, "nightly", "Completed")
        (file,) = place.data.iterdir()
        assert get_int(live, "status", "size") == file.stat().st_size > 0
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        shop.ask(reported, "DROP TABLE kept")

        await shop.make(RESTORE, "back", backupRef="nightly", instanceRef="orders")
        await shop.phase(RESTORE, "back", "Completed")
        assert operated.rows(shop, reported) == [operated.GUARDED]
        operated.written(shop, reported, "later")

        for kind, name in ((RESTORE, "back"), (BACKUP, "nightly"), (BINDING, "orders")):
            await shop.delete(kind, name)
            await shop.gone(kind, name)
        assert list(place.data.iterdir()) == []
        assert "authentication failed" in refused(shop, reported)
        assert await shop.get(SECRET, "orders-creds") is None
        await shop.delete(POSTGRESQL, "orders")
        await shop.gone(POSTGRESQL, "orders")
    assert reported["database"] not in server.databases()
    assert {reported["database"], reported["username"]} & server.roles() == set()
    said = caplog.text + await shop.shown() + server.log.read_text()
    assert reported["username"] in said
    assert reported["password"] not in said


async def test_the_same_names_elsewhere_do_not_mix(place, shop, bank):
    async with operated.operating(place):
        mine, theirs = await operated.bound(shop), await operated.bound(bank)
        assert mine["database"] != theirs["database"]
        operated.written(shop, mine)
        operated.written(bank, theirs, "theirs")
        assert (operated.rows(shop, mine), operated.rows(bank, theirs)) == (
            [operated.GUARDED],
            ["theirs"],
        )
        for other in (theirs["database"], "postgres", "template1"):
            assert "permission denied" in refused(shop, mine | {"database": other})
        await bank.make(RESTORE, "back", backupRef="nightly", instanceRef="orders")
        await shop.make(BACKUP, "nightly", instanceRef="orders")
        await shop.phase(BACKUP, "nightly", "Completed")
        await bank.said(RESTORE, "back", operated.has_reason("BackupNotCompleted"))
        assert operated.rows(bank, theirs) == ["theirs"]


async def test_what_a_role_made_outlives_it(place, shop):
    async with operated.operating(place):
        mine = await operated.bound(shop)
        await shop.make(BINDING, "batch", instanceRef="orders")
        await shop.phase(BINDING, "batch", "Ready")
        other = await shop.credentials("batch")
        operated.written(shop, mine)
        shop.ask(mine, "SET ROLE NONE; CREATE SCHEMA own; CREATE TABLE own.kept (row text)")
        await shop.delete(BINDING, "orders")
        await shop.gone(BINDING, "orders")
        assert operated.rows(shop, other) == [operated.GUARDED]
        shop.ask(other, "INSERT INTO own.kept VALUES ('more')")
        assert shop.ask(other, "SELECT count(*) FROM own.kept") == [(1,)]


async def test_the_number_of_sessions_follows(place, shop, server):
    query = "SELECT datconnlimit FROM pg_database WHERE datname = '{}'"
    async with operated.operating(place):
        reported = await operated.bound(shop, connections=7)
        assert server.ask(query.format(reported["database"])) == [(7,)]
        await shop.change(POSTGRESQL, "orders", {"spec": {"connections": 30}})
        await eventually(lambda: server.ask(query.format(reported["database"])) == [(30,)])


EVIL = """
CREATE FUNCTION climb(text) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
  BEGIN
    SET ROLE NONE; EXECUTE 'ALTER ROLE ' || session_user || ' SUPERUSER';
    EXECUTE 'CREATE ROLE climbed SUPERUSER';
  EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL;
  END;
  RETURN true;
END $$;
CREATE TABLE kept (row text CHECK (climb(row)));
INSERT INTO kept VALUES ('x')
"""


async def test_what_a_tenant_wrote_never_runs_as_an_administrator(place, shop, server):
    async with operated.operating(place):
        reported = await operated.bound(shop)
        shop.ask(reported, EVIL)
        await shop.make(BACKUP, "nightly", instanceRef="orders")
        await shop.make(RESTORE, "back", backupRef="nightly", instanceRef="orders")
        await shop.phase(RESTORE, "back", "Completed")
    assert "climbed" not in server.roles()
    assert not any(role.startswith("job_") for role in server.roles())


async def test_a_restore_that_fails_changes_nothing_and_says_why(place, shop):
    async with operated.operating(place):
        reported = await operated.bound(shop)
        operated.written(shop, reported)
        await shop.make(BACKUP, "nightly", instanceRef="orders")
        await shop.phase(BACKUP, "nightly", "Completed")
        shop.ask(reported, "CREATE VIEW upon AS SELECT row FROM kept")
        operated.written(shop, reported, "later")
        await shop.make(RESTORE, "back", backupRef="nightly", instanceRef="orders")
        live = await shop.phase(RESTORE, "back", "Failed")
        why = get_text(live, "status", "conditions", 0, "message")
        assert "pg_restore" in why
        assert "other objects depend on it" in why
        assert operated.GUARDED not in await shop.shown()
        assert operated.rows(shop, reported) == [operated.GUARDED, "later"]


async def test_a_backup_waits_for_a_session_to_be_free(place, shop):
    async with operated.operating(place):
        reported = await operated.bound(shop, connections=1)
        with psycopg.connect(reported["uri"]):
            await shop.make(BACKUP, "nightly", instanceRef="orders")
            live = await shop.said(BACKUP, "nightly", operated.is_in_trouble)
            assert "too many connections" in get_text(live, "status", "conditions", 0, "message")
            assert get_text(live, "status", "phase") != "Failed"
        await shop.phase(BACKUP, "nightly", "Completed")


HALF_A_DUMP = """#!/bin/sh
for one in "$@"; do case "$one" in --file=*) echo half > "${one#--file=}";; esac; done
echo "pg_dump: error: No space left on device" >&2
exit 1
"""


async def test_a_backup_that_fails_leaves_nothing_on_the_disk(plane, server, shop, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        script = folder / name
        script.write_text(HALF_A_DUMP)
        script.chmod(0o755)
    place = operated.Place(plane, server, tmp_path / "data", folder)
    async with operated.operating(place):
        await operated.bound(shop)
        await shop.make(BACKUP, "nightly", instanceRef="orders")
        live = await shop.phase(BACKUP, "nightly", "Failed")
        assert "No space left" in get_text(live, "status", "conditions", 0, "message")
        assert list(place.data.iterdir()) == []


async def test_a_restore_whose_end_fails_is_not_done_twice(place, shop, server, monkeypatch):
    real = Postgres.shut_out
    refusals = set[str]()

    async def shut_out(self, work):
        if not refusals and operated.rows(shop, reported) == ["restored"]:
            refusals.add(work.role)
            operated.written(shop, reported, "later")
            raise ServerTrouble("sorry, too many clients already")
        await real(self, work)

    async with operated.operating(place):
        reported = await operated.bound(shop)
        operated.written(shop, reported, "restored")
        await shop.make(BACKUP, "nightly", instanceRef="orders")
        await shop.phase(BACKUP, "nightly", "Completed")
        shop.ask(reported, "DELETE FROM kept")
        monkeypatch.setattr(Postgres, "shut_out", shut_out)
        await shop.make(RESTORE, "back", backupRef="nightly", instanceRef="orders")
        await shop.phase(RESTORE, "back", "Completed")
        assert operated.rows(shop, reported) == ["restored", "later"]
        assert refusals
        assert not refusals & server.roles()


WRAPPER = """#!/bin/sh
tr '\\0' ' ' < /proc/$$/cmdline >> "{said}"
exec "{real}" "$@"
"""


async def test_no_process_is_reported_a_password_as_an_argument(plane, server, shop, tmp_path):
    folder, said = tmp_path / "bin", tmp_path / "arguments"
    folder.mkdir()
    for name in ("pg_dump", "pg_restore"):
        script = folder / name
        script.write_text(WRAPPER.format(said=said, real=server.binaries / name))
        script.chmod(0o755)
    async with operated.operating(operated.Place(plane, server, tmp_path / "data", folder)):
        reported = await operated.bound(shop)
        await shop.make(BACKUP, "nightly", instanceRef="orders")
        await shop.make(RESTORE, "back", backupRef="nightly", instanceRef="orders")
        await shop.phase(RESTORE, "back", "Completed")
    words = said.read_text().split()
    assert {"--format=custom", "--single-transaction"} <= set(words)
    superuser = server.address.read_text().split(":")[2].split("@")[0]
    assert not [word for word in words if reported["password"] in word or superuser in word]
    assert not [word for word in words if "postgresql://" in word or "password" in word]


INVALID = {
    "no instance": (BINDING, {}),
    "an empty one": (BACKUP, {"instanceRef": ""}),
    "a Restore without its Backup": (RESTORE, {"instanceRef": "orders"}),
    "a policy that there is not": (POSTGRESQL, {"deletionPolicy": "Whenever"}),
    "no sessions": (POSTGRESQL, {"connections": 0}),
}


@pytest.mark.parametrize(("kind", "spec"), INVALID.values(), ids=INVALID.keys())
async def test_what_makes_no_sense_is_refused(shop, kind, spec):
    with pytest.raises(Rejected):
        await shop.make(kind, "one", **spec)


CHANGES = {
    "an instance": (BINDING, {"instanceRef": "orders"}, {"instanceRef": "other"}),
    "a Secret's name": (BINDING, {"instanceRef": "orders"}, {"secretName": "other"}),
    "what was dumped": (BACKUP, {"instanceRef": "orders"}, {"instanceRef": "other"}),
    "what is restored": (
        RESTORE,
        {"instanceRef": "orders", "backupRef": "nightly"},
        {"backupRef": "other"},
    ),
}


@pytest.mark.parametrize(("kind", "spec", "change"), CHANGES.values(), ids=CHANGES.keys())
async def test_what_cannot_change_is_refused(shop, kind, spec, change):
    await shop.make(kind, "one", **spec)
    with pytest.raises(Rejected, match="immutable"):
        await shop.change(kind, "one", {"spec": change})
