"""How the operator of fleet-example lets go of databases, and what keeps it from that."""

import os
import signal

import psycopg

from postgresql_operator.wire import BACKUP, BINDING, POSTGRESQL
from tests.support import operated


async def test_a_policy_may_let_it_go_at_once(place, shop, server):
    async with operated.operating(place):
        reported = await operated.bound(shop, deletionPolicy="Immediate")
        with psycopg.connect(reported["uri"]):
            await shop.delete(POSTGRESQL, "orders")
            await shop.gone(POSTGRESQL, "orders")
        assert reported["database"] not in server.databases()
        await shop.said(BINDING, "orders", operated.has_reason("InstanceNotReady"))
        await shop.delete(BINDING, "orders")
        await shop.gone(BINDING, "orders")
    assert reported["username"] not in server.roles()


async def test_a_backup_that_was_asked_for_ends_before_its_database_goes(place, shop):
    async with operated.operating(place):
        reported = await operated.bound(shop, connections=1)
        with psycopg.connect(reported["uri"]):
            await shop.make(BACKUP, "last", instanceRef="orders")
            await shop.said(BACKUP, "last", operated.is_in_trouble)
            await shop.delete(POSTGRESQL, "orders")
            await shop.delete(BINDING, "orders")  # ends the session
            await shop.gone(BINDING, "orders")
        await shop.phase(BACKUP, "last", "Completed")
        await shop.gone(POSTGRESQL, "orders")


async def test_a_tenant_keeps_nobody_from_tidying_up(place, shop, bank, server):
    async with operated.operating(place):
        reported, victim = await operated.bound(shop), await operated.bound(bank)
        operated.written(shop, reported)
        shop.ask(reported, f"GRANT SELECT ON kept TO {victim['username']}")
        for change in ("IS_TEMPLATE true", "SET default_transaction_read_only = on"):
            shop.ask(reported, f"ALTER DATABASE {reported['database']} {change}")
        for one in (bank, shop):
            for kind in (BINDING, POSTGRESQL):
                await one.delete(kind, "orders")
                await one.gone(kind, "orders")
    assert {reported["database"], victim["database"]} & server.databases() == set()


async def test_a_drop_that_was_cut_off_is_completed(place, shop, server):
    async with operated.operating(place):
        reported = await operated.bound(shop, deletionPolicy="Immediate")
    # As PostgreSQL leaves it: nobody gets in, and it can be dropped, but not altered.
    marked = f"UPDATE pg_database SET datconnlimit = -2 WHERE datname = '{reported['database']}'"
    server.ask(marked)
    async with operated.operating(place):
        await shop.delete(POSTGRESQL, "orders")
        await shop.gone(POSTGRESQL, "orders")
    assert reported["database"] not in server.databases()


async def test_a_drop_that_waits_for_one_session_does_not_wait_for_ever(place, shop, server):
    async with operated.operating(place):
        reported = await operated.bound(shop, deletionPolicy="Immediate")
        with psycopg.connect(server.address.read_text().strip()) as session:
            # It does not answer the server, as one that begins just now never does.
            deaf = session.info.backend_pid
            os.kill(deaf, signal.SIGSTOP)
            try:
                await shop.delete(POSTGRESQL, "orders")
                await shop.said(POSTGRESQL, "orders", operated.is_in_trouble)
            finally:
                os.kill(deaf, signal.SIGCONT)
            await shop.gone(POSTGRESQL, "orders")
    assert reported["database"] not in server.databases()
