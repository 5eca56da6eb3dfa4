"""The server of webhooks, over sockets, and those that forge, replay, flood and stall."""

import asyncio
import ssl
from collections import Counter
from contextlib import asynccontextmanager
from threading import get_ident

import pytest

from klutchctl.sandbox import credentials
from klutchctl.web.hooks import decide
from klutchctl.web.hooks.receiver import parse_hooks, serving
from reconciler.tls import TlsFiles
from tests.support.fake_clock import FakeClock
from tests.support.web import HERE, answered, connected, on_uvloop, request, status, statuses
from tests.support.webhooks import BODY, KEY, generic, github

MEBIBYTE = 1024 * 1024


class Scene:
    """A server of webhooks, and what came of them."""

    def __init__(self):
        self.clock, self.looks, self.where = FakeClock(), [], HERE
        self.counts: Counter[tuple[str, str]] = Counter()

    def look(self):
        self.looks.append(self.clock.monotonic())

    def count(self, hook, result):
        self.counts[hook, result] += 1

    async def post(self, headers, body=BODY, *, path="/hooks/hub", method="POST", **options):
        fields = [f"{name}: {value}" for name, value in headers.items()]
        length = f"Content-Length: {len(body)}"
        sent = request(f"{method} {path} HTTP/1.1", length, *fields, body=body)
        self.clock.jump(1)  # for another request of this client
        return await answered(self.where, sent, **options)


@asynccontextmanager
async def hooked(folder, tls=None):
    (folder / "secret").write_text(KEY)
    hooks = parse_hooks([f"hub=github:{folder / 'secret'}", f"any=generic:{folder / 'secret'}"])
    scene = Scene()
    async with serving(
        HERE, tls, hooks, scene.look, clock=scene.clock, counted=scene.count
    ) as scene.where:
        yield scene


@on_uvloop
async def test_a_genuine_one_causes_one_look_and_its_replay_none(tmp_path):
    async with hooked(tmp_path) as scene:
        assert status(await scene.post(github())) == 202
        assert status(await scene.post(github() | {"X-GitHub-Delivery": "another"})) == 202
        await scene.clock.advance(10)
        assert len(scene.looks) == 1
        assert status(await scene.post(generic(), path="/hooks/any")) == 202
        assert len(scene.looks) == 2
        assert scene.counts == {
            ("hub", "accepted"): 1,
            ("hub", "replayed"): 1,
            ("any", "accepted"): 1,
        }


LARGE = b"x" * (MEBIBYTE - 1)


@on_uvloop
@pytest.mark.parametrize(
    ("headers", "want"),
    [(github(LARGE), 202), (github(LARGE, key="another key that is long"), 401), ({}, 401)],
    ids=["genuine", "forged", "unsigned"],
)
async def test_a_large_body_is_judged_beside_the_loop(tmp_path, monkeypatch, headers, want):
    judge, threads = decide.decide, []

    def judged(*given):
        threads.append(get_ident())
        return judge(*given)

    monkeypatch.setattr(decide, "decide", judged)
    async with hooked(tmp_path) as scene:
        assert status(await scene.post(headers, LARGE)) == want
    assert threads
    assert get_ident() not in threads


FORGED = {
    "unsigned": ({}, "/hooks/hub"),
    "signed with another key": (github(key="another key that is long"), "/hooks/hub"),
    "for a hook that is not there": (github(), "/hooks/nope"),
    "for another hook": (github(), "/hooks/any"),
    "stale": (generic(second=1_767_225_600 - 400), "/hooks/any"),
    "not text": ({"X-Hub-Signature-256": "sha256=\xff\xfe"}, "/hooks/hub"),
}


@on_uvloop
async def test_forged_ones_learn_nothing(tmp_path):
    async with hooked(tmp_path) as scene:
        answers = {
            (await scene.post(headers, path=path)).partition("Date: ")[0]
            for headers, path in FORGED.values()
        }
        assert len(answers) == 1
        assert status(answers.pop()) == 401
        twice = [f"X-Hub-Signature-256: {value}" for value in github().values()] * 2
        sent = request("POST /hooks/hub HTTP/1.1", "Content-Length: 26", *twice, body=BODY)
        assert status(await answered(scene.where, sent)) == 401
        assert scene.looks == []
        assert scene.counts["hub", "unauthorized"] == 4
        assert scene.counts["", "unauthorized"] == 1  # no label of a stranger's choice


@on_uvloop
async def test_a_secret_that_changes(tmp_path):
    async with hooked(tmp_path) as scene:
        (tmp_path / "secret").write_text("another secret of these tests")
        assert status(await scene.post(github())) == 401
        assert status(await scene.post(github(key="another secret of these tests"))) == 202
        (tmp_path / "secret").write_text("")
        assert status(await scene.post(github(key=""))) == 401
        (tmp_path / "secret").unlink()
        assert status(await scene.post(github(key="of a hook that does not exist"))) == 401
        assert len(scene.looks) == 1


@on_uvloop
async def test_sizes(tmp_path):
    async with hooked(tmp_path) as scene:
        most = b"x" * MEBIBYTE
        assert status(await scene.post(github(most), most)) == 202
        over = most + b"x"
        assert status(await scene.post(github(over), over)) == 413
        chunks = b"80000\r\n" + b"x" * 0x80000 + b"\r\n"
        sent = request("POST /hooks/hub HTTP/1.1", "Transfer-Encoding: chunked", body=chunks * 3)
        assert status(await answered(scene.where, sent)) == 413
        signed = [f"{name}: {value}" for name, value in github(most + b"y").items()]
        whole = chunks * 2 + b"1\r\ny\r\n0\r\n\r\n"
        sent = request(
            "POST /hooks/hub HTTP/1.1", "Transfer-Encoding: chunked", *signed, body=whole
        )
        assert status(await answered(scene.where, sent)) == 413
        assert status(await scene.post({"X-A": "x" * 9000})) in {400, 431}
        assert scene.counts["hub", "too_large"] == 3
        assert len(scene.looks) == 1


@on_uvloop
async def test_a_chunked_body_is_checked_as_a_whole(tmp_path):
    async with hooked(tmp_path) as scene:
        chunks = b"".join(b"1\r\n%c\r\n" % octet for octet in BODY) + b"0\r\n\r\n"
        signed = [f"{name}: {value}" for name, value in github().items()]
        sent = request(
            "POST /hooks/hub HTTP/1.1", "Transfer-Encoding: chunked", *signed, body=chunks
        )
        assert status(await answered(scene.where, sent)) == 202


@on_uvloop
async def test_more_than_ten_a_second_are_refused(tmp_path):
    async with hooked(tmp_path) as scene:
        sent = request("POST /hooks/hub HTTP/1.1", "Content-Length: 0", close=False)
        last = request("POST /hooks/hub HTTP/1.1", "Content-Length: 0")
        assert statuses(await answered(scene.where, sent * 12 + last)) == [401] * 10 + [429] * 3
        assert scene.counts["", "limited"] == 3
        scene.clock.jump(0.1)
        assert statuses(await answered(scene.where, sent + last)) == [401, 429]


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/hooks/hub", 405),
        ("PUT", "/hooks/hub", 405),
        ("GET", "/hooks/nope", 405),
        ("POST", "/hooks/", 404),
        ("POST", "/hooks", 404),
        ("POST", "/", 404),
        ("POST", "/hooks/hub/", 404),
        ("POST", "/hooks/../hooks/hub", 404),
        ("POST", "/hooks/%2fhub", 400),
    ],
)
@on_uvloop
async def test_other_paths_and_methods(tmp_path, method, path, expected):
    async with hooked(tmp_path) as scene:
        assert status(await scene.post(github(), path=path, method=method)) == expected
        assert scene.looks == []


@on_uvloop
async def test_a_slow_body_delays_nobody_and_ends(tmp_path):
    async with hooked(tmp_path) as scene:
        head = request("POST /hooks/hub HTTP/1.1", "Content-Length: 1000")
        began = asyncio.get_running_loop().time()
        async with connected(scene.where, head) as (reader, writer):
            writer.write(b"x")
            assert status(await scene.post(github())) == 202
            assert status((await reader.read(4096)).decode()) == 408
        assert 4 < asyncio.get_running_loop().time() - began < 8
        assert scene.counts["hub", "refused"] == 1


@on_uvloop
async def test_over_tls(tmp_path):
    credentials.ensure_etcd(tmp_path / "pki")
    files = TlsFiles(tmp_path / "pki" / "server.crt", tmp_path / "pki" / "server.key")
    async with hooked(tmp_path, files) as scene:
        trusted = ssl.create_default_context(cafile=tmp_path / "pki" / "ca.crt")
        assert status(await scene.post(github(), ssl=trusted)) == 202
        assert await scene.post(github()) == ""  # without TLS
