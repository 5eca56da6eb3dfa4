"""What the operator is called in the cluster and in the server: kinds, keys, names. Pure.

What belongs to an object in PostgreSQL is named after its uid: an object of the same name, in
another namespace or made anew, never finds what was another's.
"""

from typing import Final

from postgresql_server.works import database_name
from reconciler.core import keys
from reconciler.core.manifest import (
    Manifest,
    annotations_of,
    get_text,
    name_of,
    namespace_of,
    uid_of,
)
from reconciler.core.refs import Kind, ObjectKey

POSTGRESQL: Final = Kind("postgresql.anynines.com", "v1beta3", "Postgresql", "postgresqls")
BINDING: Final = Kind(
    "servicebindings.anynines.com", "v1beta3", "ServiceBinding", "servicebindings"
)
BACKUP: Final = Kind("backups.anynines.com", "v1beta3", "Backup", "backups")
RESTORE: Final = Kind("backups.anynines.com", "v1beta3", "Restore", "restores")
# By way of Crossplane a Postgresql is a part of such a claim, with its name and namespace.
CLAIM: Final = Kind("anynines.com", "v1", "PostgresqlInstance", "postgresqlinstances")

MANAGER: Final = "postgresql-operator"
FINALIZER: Final = "postgresql.anynines.com/operator"
ROTATE: Final = "postgresql.anynines.com/rotate"
SERVICE: Final = "anynines.com/service"  # a label of a binding that its Secret has too
CREDENTIALS: Final = "postgresql.anynines.com/credentials"  # a label, on our Secrets only


def database_of(instance: Manifest) -> str:
    """Return the name of the database of a Postgresql, which is also that of its owner."""
    return database_name(_hex(instance))


def login_of(binding: Manifest) -> str:
    """Return the role of a ServiceBinding."""
    return "binding_" + _hex(binding)


def job_of(live: Manifest) -> str:
    """Return the role that a Backup or Restore has while it runs."""
    return "job_" + _hex(live)


def secret_of(binding: Manifest) -> str:
    """Return the name of the Secret with the credentials."""
    return get_text(binding, "spec", "secretName") or f"{name_of(binding)}-creds"


def phase_of(live: Manifest | None) -> str:
    """Return how far an object is, "" where nothing was said or there is none."""
    return get_text(live, "status", "phase")


def key_of(live: Manifest) -> ObjectKey:
    """Return the key of an object."""
    return ObjectKey(namespace_of(live), name_of(live))


def instance_key_of(live: Manifest) -> ObjectKey:
    """Return the key of the Postgresql that an object is about."""
    return ObjectKey(namespace_of(live), get_text(live, "spec", "instanceRef"))


def is_part(instance: Manifest) -> bool:
    """Return whether a Postgresql is a part of a claim, as its composition notes."""
    return annotations_of(instance).get(keys.ADOPT) == keys.NOT_ADOPTED


def _hex(live: Manifest) -> str:
    return uid_of(live).replace("-", "")
