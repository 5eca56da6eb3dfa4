"""Objects of the example operator as an API server would have them, and what is said of them."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from typing import TypeAlias

from postgresql_operator.outcome import Outcome
from postgresql_operator.wire import BACKUP, BINDING, CREDENTIALS, FINALIZER, POSTGRESQL, RESTORE
from postgresql_server.works import Place
from reconciler.core.decision import Apply, Create, Delete, Patch
from reconciler.core.manifest import finalizers_of, get_text
from reconciler.core.refs import Kind
from reconciler.core.secret import Secret

CLUSTER = "eu"
PLACE = Place("127.0.0.1", 5432)
NOW = datetime(2026, 11, 22, 3, 4, 5, tzinfo=UTC)
FRESH = Secret("a-new-password")
INSTANCE_UID = "11111111-2222-3333-4444-555555555555"
BINDING_UID = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
JOB_UID = "99999999-8888-7777-6666-555555555555"
DATABASE = "instance_11111111222233334444555555555555"
LOGIN = "binding_aaaaaaaabbbbccccddddeeeeeeeeeeee"
JOB = "job_99999999888877776666555555555555"


def live(
    kind: Kind,
    name,
    uid,
    *,
    spec=None,
    status=None,
    held=True,
    deleting=False,
    annotations=None,
    labels=None,
):
    metadata = {"namespace": "shop", "name": name, "uid": uid, "resourceVersion": "7"}
    if held:
        metadata["finalizers"] = [FINALIZER]
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-22T03:00:00Z"
        metadata.setdefault("finalizers", ["example.com/else"])
    if annotations:
        metadata["annotations"] = annotations
    if labels:
        metadata["labels"] = labels
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        "spec": spec or {},
        "status": status or {},
    }


def instance(*, phase="Ready", database=DATABASE, uid=INSTANCE_UID, **how):
    status = {"phase": phase, "database": database} if phase else {}
    return live(POSTGRESQL, "orders", uid, status=status, **how)


def binding(*, phase="", secret_name="", **how):
    spec = {"instanceRef": "orders"} | ({"secretName": secret_name} if secret_name else {})
    return live(BINDING, "web", BINDING_UID, spec=spec, status={"phase": phase}, **how)


def backup(*, phase="", uid=JOB_UID, **how):
    spec = {"instanceRef": "orders"}
    return live(BACKUP, "nightly", uid, spec=spec, status={"phase": phase}, **how)


def restore(*, phase="", **how):
    spec = {"instanceRef": "orders", "backupRef": "nightly"}
    return live(RESTORE, "back", JOB_UID, spec=spec, status={"phase": phase}, **how)


def secret(password="known", *, owner=BINDING_UID, rotation=None, **changed):
    values = {
        "host": "127.0.0.1",
        "hosts": "127.0.0.1",
        "port": "5432",
        "name": DATABASE,
        "database": DATABASE,
        "username": LOGIN,
        "password": password,
        "uri": f"postgresql://{LOGIN}:{password}@127.0.0.1:5432/{DATABASE}",
    } | changed
    owned = {"apiVersion": BINDING.api_version, "kind": "ServiceBinding", "name": "web"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "namespace": "shop",
            "name": "web-creds",
            "uid": "5ec2e700-0000-0000-0000-000000000000",
            "resourceVersion": "3",
            "labels": {CREDENTIALS: "true"},
            "ownerReferences": [{**owned, "uid": owner}],
            **({"annotations": {"postgresql.anynines.com/rotate": rotation}} if rotation else {}),
        },
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in values.items()},
    }


def verifier_of(password, *, salt=b"salt", rounds=4096):
    """Return what PostgreSQL keeps of a password, as RFC 5802 and 7677 have it."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    parts = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256${rounds}:{parts[0]}${parts[1]}:{parts[2]}"


# Works, steps, phase, conditions with their reasons.
Gist: TypeAlias = tuple[list[str], list[str], str, dict[str, str]]


def gist(outcome: Outcome) -> Gist:
    decision = outcome.decision
    said = {one.type: one.reason or one.status for one in decision.conditions}
    return (
        [type(work).__name__ for work in outcome.works],
        [_step(step) for task in decision.tasks for step in task.steps],
        get_text(dict(decision.fields), "phase"),
        said,
    )


def _step(step):
    match step:
        case Create(kind) | Apply(kind):
            return f"{type(step).__name__} {kind}"
        case Delete(ref):
            return f"Delete {ref.kind}"
        case Patch(ref, body):
            return f"{'hold' if FINALIZER in finalizers_of(body) else 'release'} {ref.kind}"
    raise AssertionError(step)
