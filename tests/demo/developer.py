"""What a developer does: claims in an app cluster, and SQL with the credentials that arrive."""

import base64
from collections.abc import Mapping
from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo

from reconciler.blueprints.objects import build
from reconciler.core import conditions
from reconciler.core.manifest import Manifest, get_list, get_map, get_text, name_of
from reconciler.core.refs import NAMESPACE, SECRET, Kind, Ref
from reconciler.kube.client import KubeCluster
from tests.demo.place import TEAM
from tests.support import removal
from tests.support.eventually import eventually

GROUP: Final = "anynines.com"
INSTANCE: Final = Kind(GROUP, "v1", "PostgresqlInstance", "postgresqlinstances")
BINDING: Final = Kind(GROUP, "v1", "ServiceBinding", "servicebindings")
BACKUP: Final = Kind(GROUP, "v1", "Backup", "backups")
RESTORE: Final = Kind(GROUP, "v1", "Restore", "restores")
DATABASE: Final = Kind(GROUP, "v1", "PostgresqlDatabase", "postgresqldatabases")
# Those of the operator itself.
_OWN: Final = "servicebindings.anynines.com"
OPERATORS_INSTANCE: Final = Kind("postgresql.anynines.com", "v1beta3", "Postgresql", "postgresqls")
OPERATORS_BINDING: Final = Kind(_OWN, "v1beta3", "ServiceBinding", "servicebindings")
# Those of the service broker.
BROKERS: Final = "services.acme.example"
DATABASE_INSTANCE: Final = Kind(BROKERS, "v1", "DatabaseInstance", "databaseinstances")
DATABASE_BINDING: Final = Kind(BROKERS, "v1", "DatabaseBinding", "databasebindings")
_WITHIN: Final = 240.0  # seconds


class Developer:
    """One who knows an app cluster, and nothing of the control plane."""

    def __init__(self, cluster: KubeCluster, database: str) -> None:
        self._cluster, self._database = cluster, database

    async def claim_a_database(self) -> None:
        """Ask for a database and for credentials, as one would in one file."""
        about = {"service": "a9s-postgresql14", "plan": "postgresql-single-nano"}
        await self._have_a_namespace()
        await self._claim(INSTANCE, self._database, about)
        await self._claim(BINDING, self._database, self._about())

    async def claim_a_database_of_the_operator(self) -> None:
        """Ask for the same by the operator's own kinds."""
        await self._have_a_namespace()
        await self._claim(OPERATORS_INSTANCE, self._database, {"connections": 5})
        await self._claim(OPERATORS_BINDING, self._database, {"instanceRef": self._database})

    async def claim_a_composite_resource(self) -> None:
        """Ask for a database and credentials in one, by a kind that Crossplane 2.x composes."""
        await self._have_a_namespace()
        await self._claim(DATABASE, self._database, {"sessions": 5})

    async def claim_a_database_of_the_broker(self) -> None:
        """Ask for the same by what a service broker offers."""
        await self._have_a_namespace()
        await self._claim(DATABASE_INSTANCE, self._database, {"plan": "small"})
        await self._claim(DATABASE_BINDING, self._database, {"instanceRef": self._database})

    async def rotate(self, request: str) -> None:
        """Ask for other credentials for a database of the broker."""
        ref = Ref(self._cluster.name, DATABASE_BINDING, TEAM, self._database)
        wanted: Manifest = {"spec": {"rotation": {"request": request}}}
        await self._cluster.merge_patch(ref, wanted, manager="dev")
        print(f"   {DATABASE_BINDING} {TEAM}/{ref.name}: rotation.request: {request}", flush=True)

    async def other_credentials(self, before: Mapping[str, str]) -> Mapping[str, str]:
        """Wait until the Secret has other credentials than these, and return them."""

        async def changed() -> Mapping[str, str] | None:
            found = await self._read_credentials()
            return found if found.get("username", "") not in ("", before["username"]) else None

        found = await eventually(changed, within=_WITHIN)
        assert found is not None
        return found

    async def is_rid_of(self, *kinds: Kind) -> None:
        """Delete claims, and wait until they are gone."""
        refs = [Ref(self._cluster.name, kind, TEAM, self._database) for kind in kinds]
        for ref in refs:
            await removal.remove(self._cluster, ref)

        async def gone() -> bool:
            return not [ref for ref in refs if await self._cluster.get(ref) is not None]

        await eventually(gone, within=_WITHIN)
        for ref in refs:
            print(f"   {ref.kind} {TEAM}/{ref.name} in {self._cluster.name} is gone", flush=True)

    async def is_ready(self, kind: Kind, name: str = "") -> None:
        """Wait until a claim says that it is Ready."""
        ref = Ref(self._cluster.name, kind, TEAM, name or self._database)

        async def ready() -> bool:
            live = await self._cluster.get(ref)
            said = conditions.parse(get_list(live, "status", "conditions"))
            found = conditions.find(said, "Ready")
            status = "" if found is None else found.status
            output = ", ".join(f"{one.type} {one.status} ({one.reason})" for one in said)
            assert status == conditions.TRUE, f"{ref} says {output or 'nothing'}"
            return True

        await eventually(ready, within=_WITHIN)
        print(f"   {kind} {TEAM}/{ref.name} in {self._cluster.name} is Ready", flush=True)

    async def credentials(self) -> Mapping[str, str]:
        """Wait for the Secret with the credentials, and return what it says."""
        found = await eventually(self._read_credentials, within=_WITHIN)
        where = f"Secret {TEAM}/{self._secret} in {self._cluster.name}"
        print(f"   {where}: {', '.join(sorted(found))}")
        return found

    @property
    def _secret(self) -> str:
        return f"{self._database}-creds"

    async def _read_credentials(self) -> Mapping[str, str]:
        """Return what the Secret says, nothing where there is none."""
        live = await self._cluster.get(Ref(self._cluster.name, SECRET, TEAM, self._secret))
        data = get_map(live, "data")
        return {key: base64.b64decode(get_text(data, key)).decode() for key in data}

    async def secrets(self) -> list[str]:
        found = await self._cluster.list(SECRET, namespace=TEAM)
        return [name_of(one) for one in found.items]

    async def back_up(self, name: str) -> None:
        """Ask for a backup, and wait for it."""
        await self._claim(BACKUP, name, self._about())
        await self.is_ready(BACKUP, name)

    async def restore(self, name: str, backup: str) -> None:
        """Ask for a backup to be put back, and wait for it."""
        await self._claim(RESTORE, name, {**self._about(), "backupRef": backup})
        await self.is_ready(RESTORE, name)

    async def _have_a_namespace(self) -> None:
        await self._cluster.apply(build(NAMESPACE, TEAM), NAMESPACE, manager="dev", force=True)

    def _about(self) -> dict[str, str]:
        return {"instanceRef": self._database, "serviceInstanceType": "postgresql"}

    async def _claim(self, kind: Kind, name: str, spec: Mapping[str, str | int]) -> None:
        made = build(kind, name, namespace=TEAM, spec=dict(spec))
        await self._cluster.apply(made, kind, manager="dev", force=True)
        output = ", ".join(f"{key}: {value}" for key, value in spec.items())
        print(f"   {kind} {TEAM}/{name} in {self._cluster.name}: {output}", flush=True)


async def ask(credentials: Mapping[str, str], *statements: str) -> list[str]:
    """Run statements with exactly these credentials; return the first column of the last."""
    way = make_conninfo(
        host=credentials["host"],
        port=credentials["port"],
        dbname=credentials["database"],
        user=credentials["username"],
        password=credentials["password"],
    )
    rows: list[str] = []
    async with await psycopg.AsyncConnection.connect(way, autocommit=True) as connection:
        for statement in statements:
            print(f"   {credentials['database']}=> {statement}", flush=True)
            answer = await connection.execute(statement.encode())
            rows = [str(row[0]) for row in await answer.fetchall()] if answer.description else []
    return rows
