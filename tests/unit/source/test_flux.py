"""What a source of Flux offers, by its status, and how its artifact is read."""

from typing import Any

import pygit2
import pytest

from reconciler.core.errors import ConfigError, InvalidRepository, KlutchError, Unfetched
from reconciler.source.flux import FluxSource, artifact_of, flux_name
from reconciler.source.following import Looked
from reconciler.source.signature import Unverified
from reconciler.web.outbound import url_fault
from tests.support.checkouts import commit_files
from tests.support.fleet_texts import GOOD
from tests.support.flux import SOURCE, archives, condition
from tests.unit.source.test_archive import packed

COMMIT, NEXT = "a" * 40, "b" * 40
SHA256 = "c" * 64
OFFER = {
    "url": "http://source-controller.flux-system.svc.cluster.local./x.tar.gz",
    "digest": f"sha256:{SHA256}",
    "revision": f"main@sha1:{COMMIT}",
}
READY = condition("Ready", "True", observedGeneration=2)
AWAY = condition("Ready", "False", "Git is away", observedGeneration=2)
VERIFIED = condition("SourceVerified", "True", observedGeneration=2)


def source(*conditions, artifact=OFFER, generation=2, **status):
    return {
        "metadata": {"generation": generation},
        "status": {"artifact": artifact, "conditions": list(conditions), **status},
    }


GIVES = {
    "it is Ready": (source(READY, observedGeneration=2), False),
    "Git is away, and Flux goes on": (source(AWAY, observedGeneration=2), False),
    "its kind observes in Ready alone": (source(READY), False),
    "its kind observes nothing": (source(condition("Ready", "True")), False),
    "it is verified": (source(READY, VERIFIED, observedGeneration=2), True),
}


@pytest.mark.parametrize(("live", "verified"), GIVES.values(), ids=GIVES)
def test_an_artifact_is_offered_where(live, verified):
    found = artifact_of(live, SOURCE, verified=verified)
    assert (found.pinned.place, found.pinned.digest) == (OFFER["url"], OFFER["digest"])
    assert found.revision == COMMIT
    assert url_fault(found.pinned.place, plain_http=True) == ""  # its host ends in a dot


OLD = condition("SourceVerified", "True", observedGeneration=1)
BAD = condition("SourceVerified", "False", "no signature", observedGeneration=2)
REFUSES = {
    "it is not there": (None, False, "GitRepository/default/fleet: .* it is not there"),
    "nothing was fetched": (source(AWAY, artifact=None), False, "no artifact of it: Git is away"),
    "it has no status": ({"metadata": {"generation": 1}}, False, "no artifact of it"),
    "its spec is newer": (source(READY, observedGeneration=1), False, "its newest form"),
    "its Ready is older": (source(READY, generation=3), False, "its newest form"),
    "its digest is weak": (source(READY, artifact=OFFER | {"digest": "sha1:x"}), False, "SHA-256"),
    "nobody verifies it": (source(READY), True, "Ready and SourceVerified"),
    "the first commit is unsigned": (
        source(AWAY, BAD, artifact=None, observedGeneration=-1),
        True,
        "d. no signature",
    ),
    "the newest commit is unsigned": (source(AWAY, BAD), True, "SourceVerified. no signature"),
    "the verified one is older": (source(READY, OLD), True, "Ready and SourceVerified"),
    "it is verified, and Git is away": (source(AWAY, VERIFIED), True, "Ready and SourceVerified"),
}


@pytest.mark.parametrize(("live", "verified", "said"), REFUSES.values(), ids=REFUSES)
def test_none_is_used_where(live, verified, said):
    with pytest.raises(Unverified if verified else KlutchError, match=said):
        artifact_of(live, SOURCE, verified=verified)


def test_what_flux_said_of_an_older_form_is_no_refusal_of_the_newest():
    for live, said in (
        (source(AWAY, BAD, observedGeneration=2, generation=3), "its newest form yet$"),
        (source(AWAY, BAD, artifact=None, generation=3), "no artifact of it$"),
        (source(condition("SourceVerified", "False"), observedGeneration=1), "newest form yet$"),
    ):
        with pytest.raises(Unfetched, match=said):
            artifact_of(live, SOURCE, verified=True)


REVISIONS = {
    f"v1.2.0@sha1:{COMMIT}": COMMIT,
    f"sha1:{COMMIT}": COMMIT,
    f"refs/heads/a@b@sha1:{COMMIT}": COMMIT,
    f"latest@sha256:{SHA256}": SHA256,
    f"sha256:{SHA256}": SHA256,
    "1.2.0": "1.2.0",
}


@pytest.mark.parametrize(("said", "want"), REVISIONS.items())
def test_a_revision_is_the_id_in_what_flux_says(said, want):
    live = source(READY, artifact=OFFER | {"revision": said})
    assert artifact_of(live, SOURCE, verified=False).revision == want


def test_an_oci_artifact_is_of_the_commit_that_it_was_made_of():
    for said, want in ((f"main@sha1:{COMMIT}", COMMIT), (COMMIT, COMMIT), ("1", SHA256)):
        metadata = {"metadata": {"org.opencontainers.image.revision": said}}
        live = source(READY, artifact=OFFER | {"revision": f"latest@sha256:{SHA256}"} | metadata)
        assert artifact_of(live, SOURCE, verified=False).revision == want


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ("flux-system/fleet", ("GitRepository", "flux-system", "fleet", "gitrepositories")),
        ("OCIRepository/a/b.c", ("OCIRepository", "a", "b.c", "ocirepositories")),
        ("Bucket/a/b", ("Bucket", "a", "b", "buckets")),
        ("ExternalArtifact/a/b", ("ExternalArtifact", "a", "b", "externalartifacts")),
    ],
)
def test_a_source_has_a_name(said, want):
    found = flux_name(said, where="here")
    assert (found.kind.kind, found.namespace, found.name, found.kind.plural) == want


@pytest.mark.parametrize(
    "said", ["", "fleet", "HelmChart/a/b", "a/b/c", "/a", "a/", "a/B", "a/b/c/d"]
)
def test_what_names_none(said):
    with pytest.raises(ConfigError, match="it names no source of Flux"):
        flux_name(said, where="here")


# Reading


class Cluster:
    """A cluster with one source, whose forms are there one after the other; the last one stays."""

    name = "home"

    def __init__(self, *forms):
        self.forms = list(forms)

    async def get(self, ref):
        assert (ref.kind, ref.namespace, ref.name) == (SOURCE.kind, "default", "fleet")
        return self.forms.pop(0) if len(self.forms) > 1 else self.forms[0]


@pytest.fixture
def served():
    with archives() as made:
        yield made


def following(*forms, folder="", verified=False):
    cluster: Any = Cluster(*forms)
    return FluxSource(cluster, SOURCE, folder=folder, every=60, verified=verified)


def files(above="", **changes):
    texts = {f"{above}{path}": text.encode() for path, text in GOOD.items()}
    return texts | {name: text.encode() for name, text in changes.items()}


def of(offer, *conditions):
    return source(*conditions or (READY,), artifact=offer)


async def test_an_artifact_is_followed(served, tmp_path):
    git = pygit2.init_repository(tmp_path, bare=True)
    first, second = files("fleets/", README="x"), files("fleets/", **{"fleets/new": "y"})
    ids = [commit_files(git, each) for each in (first, second)]
    offers = [
        served.offers(packed(files=each), commit, f"/{commit}")
        for each, commit in zip((first, second), ids, strict=True)
    ]
    suspended = of(offers[0]) | {"spec": {"suspend": True}}
    one = following(of(offers[0]), suspended, of(offers[1]), folder="fleets/")
    found = await one.look("")
    assert (found.snapshot.revision, found.signature) == (ids[0], None)
    assert found.snapshot.files == files()
    assert one.looked == Looked(ids[0], str(git[ids[0]].tree["fleets"].id))
    assert await one.look(found.mark) is None
    assert one.looked.note == f"{SOURCE} is suspended in Flux"
    found = await one.look(found.mark)
    assert found.snapshot.revision == ids[1]
    assert one.looked == Looked(ids[1], str(git[ids[1]].tree["fleets"].id))


async def test_another_revision_of_the_same_files_is_news(served):
    content = packed()
    one = following(*[of(served.offers(content, commit)) for commit in (COMMIT, NEXT)])
    found = await one.look("")
    assert (await one.look(found.mark)).snapshot.revision == NEXT


async def test_an_artifact_that_is_gone_is_asked_for_again_by_the_newest_status(served):
    old, new = served.offers(packed(), COMMIT, "/old"), served.offers(packed(), NEXT, "/new")
    del served.archives["/old"]
    assert (await following(of(old), of(new)).look("")).snapshot.revision == NEXT
    with pytest.raises(Unfetched, match="HTTP 404"):
        await following(of(old)).look("")


async def test_what_is_not_under_its_digest_is_not_looked_at(served, monkeypatch):
    monkeypatch.setattr(
        "reconciler.source.artifact._unpacked", lambda _: pytest.fail("was unpacked")
    )
    offer = served.offers(packed(), COMMIT)
    served.offers(packed(files=files(other="x")), COMMIT)
    one = following(of(offer))
    with pytest.raises(Unfetched, match=f"and not {offer['digest']}"):
        await one.look("")
    assert one.looked == Looked()


async def test_one_that_is_no_fleet_was_looked_at_and_so_is_the_one_before_again(served):
    good = served.offers(packed(), COMMIT, "/good")
    bad = served.offers(packed(files={"README": b"x"}), NEXT, "/bad")
    one = following(of(good), of(bad), of(good))
    mark, before = (await one.look("")).mark, one.looked
    with pytest.raises(InvalidRepository):
        await one.look(mark)
    assert (one.looked.revision, one.looked.tree != before.tree) == (NEXT, True)
    assert await one.look(mark) is None
    assert one.looked == before


async def test_a_verified_one_says_so(served):
    one = following(of(served.offers(packed(), COMMIT), READY, VERIFIED), verified=True)
    found = await one.look("")
    assert (found.signature.kind, found.signature.signer) == ("flux", str(SOURCE))


async def test_a_look_that_was_asked_for_comes_at_once():
    one = following(None)
    one.look_soon()
    await one.changed()
