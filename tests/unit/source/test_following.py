"""A fleet repository that is followed: what is new is found, and what is not whole is refused.

Also which addresses of Git repositories may be fetched from.
"""

import asyncio
import shutil
from contextlib import asynccontextmanager
from dataclasses import replace

import pygit2
import pytest

from reconciler.core.errors import ConfigError, InvalidRepository
from reconciler.fleet.files import Snapshot
from reconciler.source import disk
from reconciler.source.disk import problems
from reconciler.source.following import Folder, GitRef, GitUrl, git_url
from reconciler.source.gather import Unreadable
from tests.support.checkouts import commit_work_tree
from tests.support.fleet_texts import GOOD

SELDOM = 3_600.0  # so that only news can be what ended a wait
FILE = "bindings/db.yaml"


def commit(root):
    return commit_work_tree(pygit2.init_repository(root, initial_head="main"))


@asynccontextmanager
async def following(root, every=SELDOM):
    async with asyncio.timeout(60), Folder(root, check_owner=True, every=every) as one:
        yield one


async def test_files_are_reported_once(root):
    async with following(root) as one:
        found = await one.look("")
        assert found is not None
        assert found.snapshot.files == {path: text.encode() for path, text in GOOD.items()}
        assert await one.look(found.mark) is None
        (root / FILE).write_text(f"{GOOD[FILE]}# more\n")
        again = await one.look(found.mark)
        assert again is not None
        assert again.mark != found.mark


async def test_news_are_heard(root):
    async with following(root) as one:
        writing = asyncio.create_task(keep_writing(root / FILE))
        try:
            await one.changed()
        finally:
            writing.cancel()


async def keep_writing(path):
    """Write until cancelled: nobody tells when the kernel has begun to listen."""
    while True:
        path.write_text(f"{path.read_text()}#\n")
        await asyncio.sleep(0.2)


async def test_a_folder_that_came_back_is_read_again(root):
    async with following(root, every=0.2) as one:
        shutil.rmtree(root)
        with pytest.raises(ConfigError, match="No such file"):
            await one.look("")
        root.mkdir()
        (root / "fleet.yaml").write_text(GOOD["fleet.yaml"])
        await one.changed()
        assert await one.look("") is not None


async def test_without_news_it_is_time_for_another_look_anyway(root):
    async with following(root, every=0.01) as one:
        await one.changed()


async def test_files_that_keep_changing_are_not_read(root, monkeypatch):
    monkeypatch.setattr("reconciler.source.following._SETTLE_TIMEOUT", 1.0)
    async with following(root) as one:
        writing = asyncio.create_task(keep_writing(root / FILE))
        try:
            with pytest.raises(ConfigError, match="the files keep changing"):
                await one.look("")
        finally:
            writing.cancel()


def nothing(root):
    pass


def edited(root):
    (root / FILE).write_text(f"{GOOD[FILE]}# more\n")


def added(root):
    (root / "bindings/new.yaml").write_text("")


def outside(root):
    (root / "README.md").unlink()


def removed_and_committed(root):
    (root / FILE).unlink()
    commit(root)


def unborn(root):
    shutil.rmtree(root / ".git")
    pygit2.init_repository(root)
    (root / FILE).unlink()


WHOLE = [nothing, edited, added, outside, removed_and_committed, unborn]


@pytest.mark.parametrize("change", WHOLE, ids=lambda one: one.__name__)
def test_a_whole_work_tree(root, change):
    (root / "README.md").write_text("x")
    commit(root)
    change(root)
    assert disk.read_folder(root, whole=True) == disk.read_folder(root)


def under_way(root):
    (root / ".git" / "index.lock").touch()


MISSING = f"the work tree lacks {FILE}, which is committed"
NOT_WHOLE = {
    "cut short": (lambda root: (root / FILE).unlink(), MISSING),
    "cut shorter": (lambda root: shutil.rmtree(root / "bindings"), MISSING),
    "under way": (under_way, "Git is writing to this work tree"),
}


@pytest.mark.parametrize(("spoil", "says"), NOT_WHOLE.values(), ids=NOT_WHOLE.keys())
def test_a_checkout_that_is_not_whole(root, spoil, says):
    commit(root)
    spoil(root)
    with pytest.raises(ConfigError, match=says):
        disk.read_folder(root, whole=True)


def test_a_fleet_in_a_folder_of_a_work_tree(root):
    commit(root.parent)
    assert disk.read_folder(root, whole=True).folder == "repo/"
    (root / FILE).unlink()
    with pytest.raises(ConfigError, match=f"lacks {FILE}"):
        disk.read_folder(root, whole=True)
    shutil.copytree(root, root.parent / "new")
    assert disk.read_folder(root.parent / "new", whole=True).folder == "new/"


async def test_a_ref_is_reported_once_for_each_commit(root):
    first = commit(root)
    one = GitRef(root, "main", check_owner=True, every=0.01)
    found = await one.look("")
    assert found is not None
    assert (found.mark, found.snapshot.revision) == (first, first)
    (root / FILE).unlink()  # only what is committed counts
    assert await one.look(first) is None
    second = commit(root)
    await one.changed()
    found = await one.look(first)
    assert found is not None
    assert (found.mark, FILE in found.snapshot.files) == (second, False)


async def test_a_ref_that_is_gone_is_not_an_empty_fleet(root):
    commit(root)
    repository = pygit2.Repository(root)
    repository.branches.create("other", repository.head.peel(pygit2.Commit))
    one = GitRef(root, "other", check_owner=True, every=1)
    assert await one.look("") is not None
    repository.branches.delete("other")
    with pytest.raises(ConfigError, match="'other' is not in the repository"):
        await one.look("")
    shutil.rmtree(root)
    with pytest.raises(ConfigError, match="there is no Git repository here"):
        await one.look("")


async def test_objects_that_are_lost_are_not_an_empty_fleet(root):
    found = commit(root)
    for path in (root / ".git" / "objects").glob("[0-9a-f][0-9a-f]"):
        if path.name != found[:2]:
            shutil.rmtree(path)
    with pytest.raises((ConfigError, InvalidRepository)):
        await GitRef(root, "main", check_owner=True, every=1).look("")


URLS = {
    "https://git.example.com/acme/fleet.git": GitUrl(
        "https", "", "git.example.com", 443, "/acme/fleet.git"
    ),
    "https://me@git.example.com:8443/fleet": GitUrl(
        "https", "me", "git.example.com", 8443, "/fleet"
    ),
    "https://ghp_hunter2canary@git.example.com/fleet": GitUrl(
        "https", "ghp_hunter2canary", "git.example.com", 443, "/fleet"
    ),
    "ssh://git@git.example.com/~acme/fleet.git": GitUrl(
        "ssh", "git", "git.example.com", 22, "/~acme/fleet.git"
    ),
    "https://[2001:db8::1]/fleet": GitUrl("https", "", "2001:db8::1", 443, "/fleet"),
    "https://10.0.0.7/fleet": GitUrl("https", "", "10.0.0.7", 443, "/fleet"),
}


@pytest.mark.parametrize(("text", "want"), URLS.items(), ids=URLS.keys())
def test_a_url(text, want):
    url = git_url(text, where="--git")
    assert url == want
    shown = git_url(str(url), where="--git")
    assert shown == (url if url.scheme == "ssh" else replace(url, user=""))
    assert "hunter2canary" not in f"{url} {url!r}"


REFUSED_URLS = {
    "plain http": ("http://git.example.com/fleet", "does not begin with https:// or ssh://"),
    "a file": ("file:///etc/passwd", "it is on this machine"),
    "a path": ("/etc/passwd", "it is on this machine"),
    "a helper": ("ext::sh -c id", "spaces"),
    "scp": ("git@git.example.com:fleet.git", "does not begin with"),
    "a line break": ("https://git.example.com/a%0a\nhost=evil", "spaces, or characters"),
    "a password": ("https://me:hunter2canary@git.example.com/fleet", "it contains a password"),
    "an empty password": ("https://me:@git.example.com/fleet", "it contains a password"),
    "an option as the host": ("ssh://-oProxyCommand=id/fleet", "its host is no host name"),
    "an option as the user": ("ssh://-l@git.example.com/fleet", "its user name is not made"),
    "a shell in the host": ("ssh://$(id)/fleet", "its host is no host name"),
    "no host": ("https:///fleet", "its host is no host name"),
    "no path": ("https://git.example.com", "its path is not that of a repository"),
    "a way up": ("https://git.example.com/a/../b", "its path is not that of a repository"),
    "a query": ("https://git.example.com/a?b", "a query or fragment"),
    "a port that is none": ("https://git.example.com:x/a", "it is no URL"),
    "where clouds tell secrets": ("https://169.254.169.254/a", "is a metadata address of clouds"),
    "so, mapped": ("https://[::ffff:169.254.169.254]/a", "is a metadata address of clouds"),
    "so, of version 6": ("https://[fe80::1]/a", "is a metadata address of clouds"),
    "so, of another kind": ("https://[fd00:ec2::254]/a", "is a metadata address of clouds"),
    "everybody": ("https://0.0.0.0/a", "no address of a server"),
}


@pytest.mark.parametrize(("text", "says"), REFUSED_URLS.values(), ids=REFUSED_URLS.keys())
def test_a_url_that_is_refused(text, says):
    with pytest.raises(ConfigError, match=says) as caught:
        git_url(text, where="--git")
    assert "hunter2canary" not in str(caught.value)


FLEET = Snapshot({"fleet.yaml": b"", "clusters/shop.yaml": b""}, "", "fleet.yaml")
BOTH = "[fleet.yaml, shop=clusters/shop.yaml]"
MOUNTED = "[{key: fleet.yaml, path: fleet.yaml}, {key: shop, path: clusters/shop.yaml}]"


def found(listed=BOTH, mounted=MOUNTED, *, name="fleet", above=""):
    """Return what a kustomization and a Pod lack; `above` is its folder."""
    volume = f"{{configMap: {{name: {name}, items: {mounted}}}}}"
    files = {
        f"{above}kustomization.yaml": "resources: [pod.yaml, https://x.example/y.yaml, ../z.yaml]\n"
        f"configMapGenerator: [{{name: fleet, files: {listed}}}]\n",
        f"{above}pod.yaml": f"spec: {{volumes: [{volume}]}}",
        **dict.fromkeys(FLEET.files, ""),
    }

    def load(path):
        if path not in files:
            raise Unreadable("missing-file", "does not exist")
        return files[path].encode()

    kustomization = f"{above}kustomization.yaml"
    return [f"{one.origin}: {one.message}" for one in problems(kustomization, load, FLEET)]


SHOP = "clusters/shop.yaml"
LACKS = {
    "nothing": (found(), []),
    "a file": (
        found("[fleet.yaml]", "[{key: fleet.yaml, path: fleet.yaml}]"),
        [f"kustomization.yaml:2:43: leaves out {SHOP} of the fleet"],
    ),
    "a file that is gone": (
        found(f"{BOTH[:-1]}, x]", f"{MOUNTED[:-1]}, {{key: x, path: x}}]"),
        ["kustomization.yaml:2:81: lists x, which does not exist"],
    ),
    "a key": (
        found(mounted="[{key: fleet.yaml, path: fleet.yaml}]"),
        ["pod.yaml:1:51: leaves out key shop"],
    ),
    "its place": (
        found(mounted=MOUNTED.replace(SHOP, "x.yaml")),
        [f"pod.yaml:1:107: key shop is {SHOP}, and comes as x.yaml"],
    ),
    "nothing, from below": (
        found("[../fleet.yaml, shop=../clusters/shop.yaml]", above="deploy/"),
        [],
    ),
    "nothing, since another ConfigMap is mounted": (found(mounted="[{key: x}]", name="y"), []),
    "nothing, since it lists no fleet": (found("[a.txt]"), []),
    "nothing, since it is no list": (found("3"), []),
}


@pytest.mark.parametrize(("lacks", "want"), LACKS.values(), ids=LACKS)
def test_what_a_list_lacks(lacks, want):
    assert lacks == want
