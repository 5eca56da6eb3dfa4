"""The broker of fleet-example as a process, and a platform that calls it."""

import base64
import contextlib
import http.client
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import yaml

from postgresql_broker.catalogue import OFFERING, SMALL
from tests.support.operated import SERVICES
from tests.support.postgresql import Server

_LONG: Final = 60  # seconds
_SPACE: Final = {"organization_guid": "eu", "space_guid": "shop"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a broker answered."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform that knows how to reach a broker."""

    url: str
    username: str
    password: str = field(repr=False)

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Answer:
        """Return the answer to a call of 2.17."""
        place = urlsplit(self.url)
        login = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "X-Broker-API-Version": "2.17"}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        content = None if body is None else json.dumps(body)
        whole = f"{path}?{urlencode({'accepts_incomplete': 'true'} | query)}"
        connection = http.client.HTTPConnection(place.netloc, timeout=_LONG)
        with contextlib.closing(connection):
            connection.request(method, whole, content, headers)
            answer = connection.getresponse()
            return Answer(answer.status, json.loads(answer.read()), dict(answer.headers))

    def provision(self, instance: str, plan: str = SMALL, **more: Any) -> Answer:
        """Ask for an instance."""
        return self.call("PUT", _instance(instance), {**_of(plan), **_SPACE, **more})

    def update(self, instance: str, **more: Any) -> Answer:
        """Ask for another plan or other parameters."""
        return self.call("PATCH", _instance(instance), {"service_id": OFFERING, **more})

    def deprovision(self, instance: str, plan: str = SMALL) -> Answer:
        """Ask for the end of an instance."""
        return self.call("DELETE", _instance(instance), **_of(plan))

    def last_operation(self, instance: str, **query: str) -> Answer:
        """Ask how far an operation is."""
        return self.call("GET", f"{_instance(instance)}/last_operation", **query)

    def fetch(self, instance: str, binding: str = "") -> Answer:
        """Ask for what is known of an instance, or of a binding."""
        return self.call("GET", _binding(instance, binding) if binding else _instance(instance))

    def bind(self, instance: str, binding: str, **more: Any) -> Answer:
        """Ask for a binding."""
        return self.call("PUT", _binding(instance, binding), {**_of(SMALL), **more})

    def unbind(self, instance: str, binding: str) -> Answer:
        """Ask for the end of a binding."""
        return self.call("DELETE", _binding(instance, binding), **_of(SMALL))


@dataclass(frozen=True, slots=True)
class Process:
    """A broker that runs, and the platform that knows it."""

    process: subprocess.Popen[bytes]
    log: Path
    platform: Platform

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()


@contextmanager
def running(server: Server, folder: Path, *flags: str) -> Iterator[Process]:
    """Run a broker for the length of the block.

    Its key is in the folder: all brokers of a server need the same. It ends as it is asked to,
    unless the test has killed it.
    """
    folder.mkdir(exist_ok=True)
    name = fresh()
    credentials, log = folder / f"{name}.yaml", folder / f"{name}.log"
    command = [sys.executable, "-m", "postgresql_broker", f"--credentials={credentials}", "-v=4"]
    command += [f"--postgresql={server.address}", f"--data={folder / 'data'}", *flags]
    with log.open("w") as stream:
        process = subprocess.Popen(command, cwd=SERVICES, stderr=stream)
    try:
        yield Process(process, log, Platform(**_announced(process, credentials, log)))
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(_LONG) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def fresh() -> str:
    """Return a new id."""
    return str(uuid.uuid4())


def _announced(process: subprocess.Popen[bytes], file: Path, log: Path) -> dict[str, str]:
    while not file.exists():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
            raise AssertionError(log.read_text())
    found: dict[str, str] = yaml.safe_load(file.read_text())
    return found


def _instance(instance: str) -> str:
    return f"/v2/service_instances/{instance}"


def _binding(instance: str, binding: str) -> str:
    return f"{_instance(instance)}/service_bindings/{binding}"


def _of(plan: str) -> dict[str, str]:
    return {"service_id": OFFERING, "plan_id": plan}
