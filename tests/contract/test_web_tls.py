"""The server of the front door over TLS: handshakes, and certificates that change."""

import asyncio
import logging
import os
import shutil
import ssl
import time
from pathlib import Path

import pytest

from klutchctl.sandbox import credentials
from reconciler.core.errors import HostError
from reconciler.tls import TlsFiles, certificates
from reconciler.web.requests import Response
from reconciler.web.serve import Listening, served
from tests.support.web import answered, connected, on_uvloop, request, serving, status


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Two folders, each with a certificate, its key and the root."""
    folders = [tmp_path_factory.mktemp("pair") / "pki" for _ in range(2)]
    for folder in folders:
        credentials.ensure_etcd(folder)
    return folders


@pytest.fixture
def files(pairs, tmp_path):
    put(pairs[0], tmp_path)
    return TlsFiles(tmp_path / "server.crt", tmp_path / "server.key")


def put(source, target, *names):
    for name in names or ("server.crt", "server.key"):
        shutil.copy(source / name, target / "new")
        os.replace(target / "new", target / name)


def trusting(folder):
    return ssl.create_default_context(cafile=folder / "ca.crt")


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        self.now += 2.0
        return self.now


async def secure(request):
    return Response(200, f"{request.secure}\n".encode())


def over_tls(files, **limits):
    return serving(secure, tls=files, **limits)


@on_uvloop
async def test_over_tls(files, pairs):
    async with over_tls(files) as where:
        answer = await answered(where, request(), ssl=trusting(pairs[0]))
        assert (status(answer), answer.endswith("\r\n\r\nTrue\n")) == (200, True)
        with pytest.raises(ssl.SSLCertVerificationError):
            await answered(where, request(), ssl=trusting(pairs[1]))
        assert await answered(where, request()) == ""  # without TLS


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
@on_uvloop
async def test_older_versions_are_refused(files, pairs):
    context = trusting(pairs[0])
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    async with over_tls(files) as where:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await answered(where, request(), ssl=context)


@on_uvloop
async def test_handshakes_that_do_not_end(files, pairs):
    hello = b"\x16\x03\x01\x02\x00\x01"  # of a handshake that does not go on
    async with over_tls(files, head_time=0.5, connections=10) as where:
        began = time.monotonic()
        silent = [asyncio.create_task(answered(where, one)) for one in 20 * [b"", hello]]
        elsewhere = {"ssl": trusting(pairs[0]), "local_addr": ("127.0.0.2", 0)}
        assert status(await answered(where, request(), **elsewhere)) == 200
        assert await asyncio.gather(*silent) == 40 * [""]
        assert time.monotonic() - began < 4.0


@on_uvloop
async def test_a_new_certificate_is_used_for_new_connections(files, pairs):
    kept = request(close=False)
    listening = Listening(("127.0.0.1", 0), files)
    async with (
        served(listening, secure, clock=Clock()) as where,
        connected(where, kept, ssl=trusting(pairs[0])) as (reader, writer),
    ):
        await reader.readuntil(b"True\n")
        put(pairs[1], files.cert.parent)
        assert status(await answered(where, request(), ssl=trusting(pairs[1]))) == 200
        writer.write(kept)
        await reader.readuntil(b"True\n")


def garbage(pairs, folder):
    (folder / "server.crt").write_text("nothing of use")


def half(pairs, folder):
    put(pairs[1], folder, "server.key")


def gone(pairs, folder):
    (folder / "server.key").unlink()


@pytest.mark.parametrize("spoil", [garbage, half, gone])
@on_uvloop
async def test_a_bad_certificate_leaves_the_last_good_one(files, pairs, spoil, caplog):
    caplog.set_level(logging.INFO)
    listening = Listening(("127.0.0.1", 0), files)
    async with served(listening, secure, clock=Clock()) as where:
        spoil(pairs, files.cert.parent)
        for _ in range(3):
            assert status(await answered(where, request(), ssl=trusting(pairs[0]))) == 200
        put(pairs[1], files.cert.parent)
        assert status(await answered(where, request(), ssl=trusting(pairs[1]))) == 200
    said = [one.getMessage() for one in caplog.records if one.name == "reconciler.tls"]
    news = ("is unusable and ignored", "is in use")
    assert said == [f"the new certificate {one}" for one in news]
    assert "nothing of use" not in caplog.text


@pytest.mark.parametrize("spoil", [garbage, half, gone])
def test_a_server_does_not_start_without_a_certificate(files, pairs, spoil):
    spoil(pairs, files.cert.parent)
    with pytest.raises(HostError, match="cannot use the certificate "):
        certificates(files, Clock())


def test_a_key_with_a_passphrase_is_not_asked_about(files, tmp_path):
    from cryptography.hazmat.primitives import serialization as forms

    key = forms.load_pem_private_key(files.key.read_bytes(), None)
    locked = forms.BestAvailableEncryption(b"secret")
    files.key.write_bytes(key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, locked))
    with pytest.raises(HostError, match="the key without a passphrase"):
        certificates(files, Clock())


def test_files_are_looked_at_once_in_a_while(files, monkeypatch):
    looked, real = [], Path.stat
    current = certificates(files, lambda: 5.0)

    def stat(path, **named):
        looked.append(path)
        return real(path, **named)

    monkeypatch.setattr(Path, "stat", stat)
    for _ in range(100):
        current()
    assert looked == []
