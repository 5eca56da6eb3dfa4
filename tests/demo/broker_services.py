"""The part of the demo in which a service broker provides, by way of klutch-osb."""

from collections.abc import Mapping

import psycopg

from tests.demo.developer import DATABASE_BINDING, DATABASE_INSTANCE, Developer, ask
from tests.demo.place import OTHER, Place
from tests.demo.telling import Story, fail

NAME = "invoices"


async def use_the_broker(place: Place, story: Story) -> None:
    """Have a database of the broker, other credentials for it, and nothing of it any more."""
    async with place.app_cluster(OTHER) as cluster:
        one = Developer(cluster, NAME)
        with story.step("A developer claims by what a service broker offers: a database, a login"):
            await one.claim_a_database_of_the_broker()
            await one.is_ready(DATABASE_BINDING)
            first = await one.credentials()
            await ask(first, "CREATE TABLE invoices AS SELECT 'paid' AS line")
        with story.step("Rotate: the Secret gets a new login; the old one still works"):
            await one.rotate("1")
            second = await one.other_credentials(first)
            for login in (first, second):
                if await ask(login, "SELECT line FROM invoices") != ["paid"]:
                    fail("a login does not see the row")
        with story.step("Delete both: the database and its logins are gone"):
            await one.is_rid_of(DATABASE_BINDING, DATABASE_INSTANCE)
            for login in (first, second):
                await _is_refused(login)


async def _is_refused(credentials: Mapping[str, str]) -> None:
    try:
        await ask(credentials, "SELECT 1")
    except psycopg.OperationalError:
        print(f"   {credentials['username']} is refused", flush=True)
    else:
        fail("a login is left of a database that was deleted")
