"""What the example operator decides about a Backup and a Restore."""

import pytest

from postgresql_operator.job import SeenBackup, SeenRestore, decide_backup, decide_restore
from postgresql_operator.outcome import Discard, Dump, Load
from postgresql_server.works import ShutOut
from tests.unit.services.objects import (
    CLUSTER,
    DATABASE,
    JOB,
    JOB_UID,
    NOW,
    backup,
    gist,
    instance,
    restore,
)

SOURCE_UID = "77777777-0000-0000-0000-000000000000"


def seen_backup(live, *, served=instance(), size=None):  # noqa: B008
    return SeenBackup(CLUSTER, live, instance=served, size=size)


def seen_restore(live, *, served=instance(), phase="Completed", readable=True, done=False):  # noqa: B008
    source = None if phase is None else backup(phase=phase, uid=SOURCE_UID)
    return SeenRestore(CLUSTER, live, served, source=source, readable=readable, done=done)


BACKUPS = {
    "a new one is held first": (seen_backup(backup(held=False)), ([], ["hold Backup"], "", {})),
    "it waits for its instance": (
        seen_backup(backup(), served=None),
        ([], [], "Pending", {"Completed": "InstanceNotReady"}),
    ),
    "it says that it runs": (
        seen_backup(backup(phase="Pending")),
        ([], [], "Running", {"Completed": "Running"}),
    ),
    "and runs then, also after a crash": (
        seen_backup(backup(phase="Running")),
        (["Dump"], [], "", {}),
    ),
    "a file that is there is its end, also after a crash": (
        seen_backup(backup(phase="Running"), size=42),
        ([], [], "Completed", {"Completed": "True"}),
    ),
    "it does not run twice": (seen_backup(backup(phase="Completed"), size=42), ([], [], "", {})),
    "also where its file is gone": (seen_backup(backup(phase="Completed")), ([], [], "", {})),
    "a failure is for good": (seen_backup(backup(phase="Failed")), ([], [], "", {})),
    "what goes takes its file along": (
        seen_backup(backup(phase="Completed", deleting=True), size=42),
        (["ShutOut", "Discard"], ["release Backup"], "", {}),
    ),
}
RESTORES = {
    "a new one is held first": (seen_restore(restore(held=False)), ([], ["hold Restore"], "", {})),
    "it waits for its instance": (
        seen_restore(restore(), served=None),
        ([], [], "Pending", {"Completed": "InstanceNotReady"}),
    ),
    "and for its Backup": (
        seen_restore(restore(), phase=None),
        ([], [], "Pending", {"Completed": "BackupNotCompleted"}),
    ),
    "also while that runs": (
        seen_restore(restore(), phase="Running"),
        ([], [], "Pending", {"Completed": "BackupNotCompleted"}),
    ),
    "a Backup that failed is the end": (
        seen_restore(restore(), phase="Failed"),
        ([], [], "Failed", {"Completed": "Failed"}),
    ),
    "so is one without its file": (
        seen_restore(restore(), readable=False),
        ([], [], "Failed", {"Completed": "Failed"}),
    ),
    "it says that it runs": (
        seen_restore(restore()),
        ([], [], "Running", {"Completed": "Running"}),
    ),
    "and runs then, also after a crash": (
        seen_restore(restore(phase="Running")),
        (["Load"], [], "", {}),
    ),
    "what ran is completed and does not run again, though the crash was late": (
        seen_restore(restore(phase="Running"), done=True),
        (["ShutOut"], [], "Completed", {"Completed": "True"}),
    ),
    "it does not run twice": (seen_restore(restore(phase="Completed")), ([], [], "", {})),
    "what goes leaves the data": (
        seen_restore(restore(phase="Completed", deleting=True), done=True),
        (["ShutOut", "Discard"], ["release Restore"], "", {}),
    ),
}


@pytest.mark.parametrize(("facts", "want"), BACKUPS.values(), ids=BACKUPS.keys())
def test_decide_backup(facts, want):
    assert gist(decide_backup(facts, now=NOW)) == want


@pytest.mark.parametrize(("facts", "want"), RESTORES.values(), ids=RESTORES.keys())
def test_decide_restore(facts, want):
    assert gist(decide_restore(facts, now=NOW)) == want


def test_a_dump_is_named_after_the_uid_and_of_the_instance_that_is_meant():
    outcome = decide_backup(seen_backup(backup(phase="Running")), now=NOW)
    assert outcome.works == (Dump(JOB_UID, JOB, DATABASE),)


def test_a_restore_takes_the_file_of_its_backup():
    outcome = decide_restore(seen_restore(restore(phase="Running")), now=NOW)
    assert outcome.works == (Load(JOB_UID, JOB, SOURCE_UID, DATABASE),)


def test_a_run_that_was_left_behind_ends_with_its_object():
    outcome = decide_backup(seen_backup(backup(phase="Running", deleting=True)), now=NOW)
    assert outcome.works == (ShutOut(JOB), Discard(JOB_UID))
