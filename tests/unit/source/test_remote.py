"""A fleet on a Git server: what is fetched, and what must not happen on the way."""

import asyncio
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pygit2
import pytest
from pygit2.enums import ConfigLevel

from reconciler.core.errors import ConfigError, HostError, KlutchError, Unfetched
from reconciler.source import following
from reconciler.source import remote as remote_source
from reconciler.source.following import Looked
from reconciler.source.remote import Keys, Remote, ssh_key
from reconciler.source.signature import Signature, Unverified, VerificationMode
from reconciler.source.verification import Verification
from tests.support import git_server
from tests.support.checkouts import PERSON, commit_files
from tests.support.fleet_texts import GOOD
from tests.support.git_server import home, repository, server
from tests.support.signing import ALICE, ed25519, signed_commit, signed_tag

__all__ = ["home", "repository", "server"]

pytestmark = pytest.mark.skipif(
    not (shutil.which("git") and shutil.which("ssh-keygen")), reason="needs git and ssh-keygen"
)
TOKEN = "hunter2canary"


def commit(repository, note="x"):
    fleet = {f"fleets/{path}": text.encode() for path, text in GOOD.items()}
    return commit_files(repository, {**fleet, "note": note.encode()})


@pytest.fixture
def remote(server, tmp_path):
    def made(
        ref="main", url="", folder="fleets/", every=0.01, mode=None, accepted="", **keys: Path
    ):
        url = following.git_url(url or f"{server.url}/fleet.git", where="")
        allowed = tmp_path / "allowed"
        allowed.write_text(f"*@acme.example {ed25519().line}\n")
        return Remote(
            url,
            ref,
            folder=folder,
            cache=tmp_path / "cache",
            keys=Keys(**keys),
            every=every,
            verification=mode and Verification(mode, allowed, None, lambda: datetime.now(UTC)),
            accepted=accepted if callable(accepted) else lambda: accepted,
        )

    return made


async def test_a_ref_is_followed(remote, repository):
    first = commit(repository)
    one = remote()
    found = await one.look("")
    assert found.mark == found.snapshot.revision == first
    assert found.snapshot.files == {path: text.encode() for path, text in GOOD.items()}
    assert await one.look(first) is None
    second = commit(repository, "y")
    await one.changed()
    assert (await one.look(first)).mark == second
    # Another one, as after a restart, finds what was fetched, and fetches what is new.
    assert (await remote("HEAD").look("")).mark == second
    assert (await remote("refs/heads/main").look("")).mark == second


async def test_who_follows_another_ref_at_the_same_time_changes_nothing(
    remote, repository, monkeypatch
):
    first = commit(repository)
    repository.references.create("refs/heads/next", first)
    ours, other = remote("next"), remote("main")
    second = commit(repository, "y")
    found = remote_source._followed

    def late(*args, **more):  # `other` fetches before what `ours` fetched is used
        monkeypatch.setattr(remote_source, "_followed", found)
        other._look("")
        return found(*args, **more)

    monkeypatch.setattr(remote_source, "_followed", late)
    assert (await ours.look("")).mark == first
    assert (await other.look("")).mark == second


async def test_history_that_was_rewritten_is_followed(remote, repository):
    commit(repository)
    one = remote()
    assert await one.look("") is not None
    repository.references.delete("refs/heads/main")
    other = commit(repository, "other")
    assert (await one.look("")).mark == other


async def test_an_annotated_tag_is_its_commit(remote, repository):
    found = commit(repository)
    repository.create_tag("v1", pygit2.Oid(hex=found), pygit2.enums.ObjectType.COMMIT, PERSON, "x")
    one = remote("v1")
    assert (await one.look("")).mark == found
    assert await one.look(found) is None


async def test_refs_that_mean_nothing_or_too_much(remote, repository):
    found = commit(repository)
    for ref in ("other", "refs/heads/other", "main~1", "", found[:12], "refs/pull/1/head"):
        with pytest.raises(ConfigError, match="is not in it"):
            await remote(ref).look("")
    repository.references.create("refs/tags/main", found)
    with pytest.raises(ConfigError, match="'main' has several meanings"):
        await remote().look("")


@pytest.mark.parametrize("by_id", [True, False])
async def test_a_commit_is_fetched_by_its_id_or_from_a_history_that_leads_to_it(
    by_id, remote, repository, tmp_path
):
    repository.config["uploadpack.allowReachableSHA1InWant"] = by_id
    made = [commit(repository, str(number)) for number in range(60)]
    repository.references.create("refs/tags/v1", made[-1])
    for back in range(1, 60, 20):
        repository.references.create("refs/heads/main", made[-back], force=True)
        for wanted in (made[-back], made[-back - 10], made[0], made[-1]):
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)
            found = remote(wanted).read()
            assert found.mark == found.snapshot.revision == wanted
            assert found.snapshot.files.keys() == GOOD.keys()


@pytest.mark.parametrize("by_id", [True, False])
async def test_a_commit_that_nothing_leads_to_is_named(by_id, remote, repository):
    repository.config["uploadpack.allowReachableSHA1InWant"] = by_id
    gone = commit(repository)
    repository.references.delete("refs/heads/main")
    kept = commit(repository, "other")
    for wanted in (gone, "f" * 40):
        with pytest.raises(ConfigError, match=f"commit {wanted} is not in it"):
            await remote(wanted).look("")
    assert (await remote(kept).look("")).mark == kept


async def test_a_branch_with_the_name_of_a_commit_is_not_that_commit(remote, repository):
    first = commit(repository)
    repository.references.create(f"refs/heads/{first}", commit(repository, "y"))
    assert (await remote(first).look("")).mark == first


async def test_a_server_that_is_down_is_asked_less_often(remote, repository, server):
    found = commit(repository)
    one = remote()
    assert (await one.look("")).mark == found
    server.broken = True
    for _ in range(3):
        with pytest.raises(Unfetched, match=r"cannot be fetched: .*500"):
            await one.look(found)
    server.broken = False
    assert await one.look(found) is None


async def test_a_token_opens_it_and_is_in_no_error(remote, repository, server, tmp_path):
    found = commit(repository)
    server.token = TOKEN
    with pytest.raises(Unfetched, match="asks for a credential, and there is none"):
        await remote().look("")
    file = tmp_path / "token"
    with pytest.raises(ConfigError, match="token: cannot be read"):
        await remote(token=file).look("")
    file.write_text("wrong-hunter2canary\n")
    with pytest.raises(Unfetched, match="does not accept the credential") as caught:
        await remote(token=file).look("")
    assert TOKEN not in str(caught.value)
    file.write_text(f"{TOKEN}\n")
    assert (await remote(token=file).look("")).mark == found


async def test_a_redirect_leads_to_no_other_host_and_away_from_no_tls(
    remote, repository, server, tmp_path
):
    commit(repository)
    server.token = TOKEN
    (tmp_path / "token").write_text(TOKEN)
    with git_server.served(server.root, tmp_path) as other:
        for place in ("https://127.0.0.1", "http://localhost"):
            server.redirect = f"{place}:{other.port}"
            with pytest.raises(Unfetched, match="cannot redirect from"):
                await remote(token=tmp_path / "token").look("")
        assert other.seen == []


async def test_a_credential_goes_to_no_other_port(remote, repository, server, tmp_path):
    commit(repository)
    server.token = TOKEN
    (tmp_path / "token").write_text(TOKEN)
    with git_server.served(server.root, tmp_path) as other:
        server.redirect, other.token = other.url, TOKEN
        with pytest.raises(Unfetched, match="another host asks for the credential"):
            await remote(token=tmp_path / "token").look("")
        assert {authorization for _, authorization in other.seen} == {""}


async def test_the_git_configuration_of_the_user_leads_nowhere_else(
    remote, repository, server, home, tmp_path
):
    found = commit(repository)
    home.mkdir()
    (home / ".gitconfig").write_text(f'[url "https://localhost:1/"]\n\tinsteadOf = {server.url}/\n')
    pygit2.settings.search_path[ConfigLevel.GLOBAL] = str(home)
    assert (await remote().look("")).mark == found


async def test_a_certificate_that_nobody_vouches_for(remote, repository, server, tmp_path):
    commit(repository)
    (tmp_path / "other").mkdir()
    with git_server.served(server.root, tmp_path / "other") as other:
        with pytest.raises(Unfetched, match="certificate"):
            await remote(url=f"{other.url}/fleet.git").look("")
        assert other.seen == []


async def test_the_authority_of_a_server_is_named(remote, repository, server, tmp_path):
    found = commit(repository)
    (tmp_path / "other").mkdir()
    with git_server.served(server.root, tmp_path / "other") as other:
        url, ca = f"{other.url}/fleet.git", tmp_path / "other" / "ca.crt"
        for bad, why in ((tmp_path / "none", "cannot be read"), (tmp_path / "text", "certificate")):
            (tmp_path / "text").write_text("no PEM")
            with pytest.raises(ConfigError, match=why):
                await remote(url=url, ca=bad).look("")
        assert (await remote(url=url, ca=ca).look("")).mark == found


async def test_ssh_needs_known_hosts(remote, home):
    with pytest.raises(ConfigError, match="nothing vouches for its host key") as caught:
        await remote(url="ssh://git@localhost/fleet.git").look("")
    assert str(home / ".ssh" / "known_hosts") in str(caught.value)


async def test_a_host_that_is_not_there(remote):
    with pytest.raises(Unfetched, match="its host is not found"):
        await remote(url="https://nowhere.invalid/fleet.git").look("")


HEAD, TAG, HISTORY = VerificationMode.HEAD, VerificationMode.TAG, VerificationMode.HISTORY


def signed(repository, note, *, signer=None, **other):
    fleet = {f"fleets/{path}": text.encode() for path, text in GOOD.items()}
    return signed_commit(repository, {**fleet, "note": note.encode()}, signer, **other)


@pytest.fixture
def good(repository):
    return lambda note="x", **other: signed(repository, note, signer=ed25519(), **other)


async def refusal(remote, known=""):
    """Return why a look finds its commit unverified."""
    with pytest.raises(Unverified) as caught:
        await remote.look(known)
    return str(caught.value)


async def test_a_signed_head_is_followed_and_an_unsigned_one_is_not(remote, repository, good):
    first = good()
    one = remote(mode=HEAD)
    found = await one.look("")
    assert (found.mark, found.signature) == (first, Signature(HEAD, "ssh", ALICE))
    assert await one.look(first) is None
    unsigned = signed(repository, "y")
    assert f"commit {unsigned[:12]} is not verified: it has no" in await refusal(one, first)
    assert "it has no signature" in await refusal(one, first)
    last = good("z")
    assert (await one.look(first)).mark == last
    assert (await remote(first, mode=HEAD).look("")).signature == found.signature
    assert "it has no signature" in await refusal(remote(unsigned, mode=HEAD))


async def test_what_was_looked_at_is_known_whether_it_is_used_or_not(remote, repository, good):
    def as_git(revision, folder="fleets"):
        said = subprocess.check_output(["git", "rev-parse", f"{revision}:{folder}"], cwd=place)
        return Looked(revision, said.decode().strip())

    place, first, one, plain = repository.path, good(), remote(mode=HEAD), remote()
    assert one.looked == Looked()
    await one.look("")
    await plain.look("")
    assert one.looked == plain.looked == as_git(first)
    unsigned = signed_commit(repository, {"fleets/fleet.yaml": b"broken"}, note="y")
    await refusal(one, first)
    assert one.looked == as_git(unsigned)
    assert one.looked.tree != plain.looked.tree
    nowhere = signed_commit(repository, {"README": b"x"}, note="z")
    for each in (one, plain):
        with pytest.raises(KlutchError):
            await each.look(first)
        assert each.looked == Looked(nowhere)
    repository.references.create("refs/heads/main", first, force=True)
    for each in (one, plain):
        assert await each.look(first) is None
        assert each.looked == as_git(first)


async def test_nothing_of_an_unverified_commit_is_read(remote, repository, monkeypatch):
    signed(repository, "y")
    monkeypatch.setattr("reconciler.source.git.read", lambda *_, **__: pytest.fail("was read"))
    for mode in (HEAD, TAG, HISTORY):
        assert "is not verified" in await refusal(remote(mode=mode))


async def test_without_verification_nothing_is_asked_of_signatures(remote, repository):
    unsigned = signed(repository, "y")
    found = await remote(mode=VerificationMode.OFF).look("")
    assert (found.mark, found.signature) == (unsigned, None)


async def test_a_key_that_is_taken_out_of_its_list_stops_what_it_signed(remote, good, tmp_path):
    first = good()
    one = remote(mode=HISTORY)
    assert (await one.look("")).signature.first
    (tmp_path / "allowed").write_text(f"*@acme.example {ed25519(2).line}\n")
    assert "by a key that is not listed" in await refusal(one, first)
    (tmp_path / "allowed").write_text(f"*@acme.example {ed25519().line}\n")
    assert await one.look(first) is None


async def test_an_unsigned_commit_in_the_middle_of_a_history(remote, repository, good):
    first = good()
    one = remote(mode=HISTORY)
    await one.look("")
    second = good("y")
    assert (await one.look(first)).signature == Signature(HISTORY, "ssh", ALICE)
    unsigned = signed(repository, "z")
    good("w")
    said = f"{unsigned[:12]}, which leads to it, is not: it has no signature"
    assert said in await refusal(one, second)
    # Another process, which knows what was accepted, says the same.
    assert said in await refusal(remote(mode=HISTORY, accepted=first))


async def test_history_is_fetched_as_deep_as_it_takes(remote, good, tmp_path):
    made = [good(str(number)) for number in range(60)]
    for accepted, wanted in (("", 1), (made[-2], 1), (made[-4], 50), (made[2], 60)):
        found = await remote(mode=HISTORY, accepted=accepted).look("")
        assert (found.mark, found.signature.first) == (made[-1], not accepted)
        store = pygit2.Repository(next((tmp_path / "cache").iterdir()))
        assert sum(one in store for one in made) == wanted
    said = await refusal(remote(mode=HISTORY, accepted="f" * 40))
    assert "does not descend from ffffffffffff, the last accepted commit" in said


async def test_a_server_with_an_unverified_commit_is_asked_as_often_as_ever(remote, repository):
    signed(repository, "x")
    one = remote(mode=HEAD)
    for _ in range(14):
        await refusal(one)
    await asyncio.wait_for(one.changed(), 30)


async def test_a_force_push_is_refused_by_this_process_and_the_next(remote, repository, good):
    root, first = good(), good("y")
    one = remote(mode=HISTORY)
    await one.look("")
    forced = good("z", parents=[root])
    said = f"commit {forced[:12]} is not verified: it does not descend from {first[:12]}"
    assert said in await refusal(one, first)
    assert said in await refusal(remote(mode=HISTORY, accepted=first))
    repository.references.create("refs/heads/main", root, force=True)
    assert "rewritten or rolled back" in await refusal(one, first)
    assert (await remote(mode=HEAD).look("")).mark == root


async def test_no_history_goes_on_while_what_was_accepted_is_unknown_or_not_kept(remote, good):
    def unknown():
        raise HostError("no answer")

    first = good()
    said = "which one was accepted last is unknown or not kept: no answer"
    assert said in await refusal(remote(mode=HISTORY, accepted=unknown))
    assert (await remote(mode=HEAD, accepted=unknown).look("")).mark == first
    answers = [lambda: "", unknown]
    one = remote(mode=HISTORY, accepted=lambda: answers[0]())
    assert (await one.look("")).mark == first
    answers.pop(0)
    assert await one.look(first) is None
    second = good("y")
    assert said in await refusal(one, first)
    answers[0] = lambda: first
    assert (await one.look(first)).mark == second


async def test_a_signed_tag(remote, repository):
    found = signed(repository, "x")
    signed_tag(repository, found, ed25519())
    one = remote("v1", mode=TAG)
    assert (await one.look("")).signature == Signature(TAG, "ssh", ALICE)
    assert await one.look(found) is None
    assert "'refs/heads/main' is not an annotated tag" in await refusal(remote(mode=TAG))
    assert f"{found!r} is not an annotated tag" in await refusal(remote(found, mode=TAG))
    signed_tag(repository, found, ed25519(), ref="refs/tags/v2")
    assert "the tag was signed as 'v1'" in await refusal(remote("v2", mode=TAG))
    repository.references.create("refs/tags/v3", found)
    assert "'refs/tags/v3' is not an annotated tag" in await refusal(remote("v3", mode=TAG))


async def returns(waiting):
    """Return whether a task ends without any time that passes."""
    for _ in range(20):
        await asyncio.sleep(0)
    return waiting.done()


@pytest.fixture
def pause(monkeypatch):
    """A function that sets the shortest time between looks that are asked for."""
    return lambda seconds: monkeypatch.setattr("reconciler.source.remote._SHORTEST", seconds)


async def test_a_look_that_was_asked_for_comes_at_once_but_not_too_often(remote, repository, pause):
    pause(3_600)
    found = commit(repository)
    one = remote(every=7_200)
    one.look_soon()
    await asyncio.wait_for(one.changed(), 30)  # no look was made before
    await one.look("")
    one.look_soon()
    too_early = asyncio.create_task(one.changed())
    assert not await returns(too_early)
    too_early.cancel()
    pause(0)
    await asyncio.wait_for(one.changed(), 30)  # what was asked is not forgotten
    await one.look(found)
    waiting = asyncio.create_task(one.changed())
    assert not await returns(waiting)  # the look has answered it
    one.look_soon()
    await asyncio.wait_for(waiting, 30)


async def test_what_is_asked_during_a_look_is_not_lost(remote, repository, pause):
    pause(0)
    commit(repository)
    one = remote(every=3_600)
    looking = asyncio.create_task(one.look(""))
    await asyncio.sleep(0)
    one.look_soon()
    await looking
    await asyncio.wait_for(one.changed(), 30)


KEYS = {
    "Ed25519": ("ed25519", "", True),
    "ECDSA": ("ecdsa", "", True),
    "RSA": ("rsa", "", False),
    "with a passphrase": ("ed25519", "hunter2canary", False),
}


@pytest.mark.parametrize(("kind", "passphrase", "good"), KEYS.values(), ids=KEYS.keys())
def test_a_private_key(tmp_path, kind, passphrase, good):
    file = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(file)], check=True)
    if good:
        assert ssh_key(file).reveal() == file.read_text()
        return
    with pytest.raises(ConfigError, match="ssh-keygen -t ed25519"):
        ssh_key(file)


def test_a_private_key_that_is_none(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        ssh_key(tmp_path / "key")
    (tmp_path / "key").write_text("hunter2canary")
    with pytest.raises(ConfigError, match="is no private key") as caught:
        ssh_key(tmp_path / "key")
    assert TOKEN not in str(caught.value)
