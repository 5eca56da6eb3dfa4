"""The broker's side of HTTP: openbrokerapi on Flask, and what that leaves out of 2.17.

Calls come in threads; all that is done is done on one loop. No body, no header and no query is
logged: they hold passwords and what developers wrote.
"""

import asyncio
import hmac
import logging
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from flask import Flask, Response, g, jsonify, request
from openbrokerapi.api import get_blueprint
from openbrokerapi.auth import BrokerAuthenticator
from openbrokerapi.catalog import Schemas, ServiceMetadata, ServicePlan
from openbrokerapi.errors import ErrInstanceDoesNotExist
from openbrokerapi.service_broker import (
    BindDetails,
    Binding,
    BindState,
    DeprovisionDetails,
    DeprovisionServiceSpec,
    GetBindingSpec,
    GetInstanceDetailsSpec,
    LastOperation,
    OperationState,
    ProvisionDetails,
    ProvisionedServiceSpec,
    ProvisionState,
    Service,
    ServiceBroker,
    UnbindDetails,
    UnbindSpec,
    UpdateDetails,
    UpdateServiceSpec,
)
from werkzeug.exceptions import HTTPException
from werkzeug.serving import WSGIRequestHandler, make_server

from postgresql_broker import catalogue, instances
from postgresql_broker.broker import Broker, Login, operation
from postgresql_broker.instances import Change, Instance
from postgresql_broker.refusal import Refusal
from postgresql_server.postgres import ServerTrouble
from reconciler.core.errors import origin
from reconciler.core.manifest import JSON, Manifest, get_map, get_text
from reconciler.core.secret import Secret

log = logging.getLogger(__name__)

_LARGEST: Final = 64 * 1024
_POLL: Final = "1"  # seconds
_LATER: Final = "5"
_LONGEST: Final = 200
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Account:
    """By which a platform comes in."""

    username: str
    password: Secret


class _Door(BrokerAuthenticator):
    def __init__(self, account: Account) -> None:
        self._account = account

    def authenticate(self) -> tuple[Response, int, dict[str, str]] | None:
        given = request.authorization
        name, password = (given.username, given.password) if given else ("", "")
        right = hmac.compare_digest((name or "").encode(), self._account.username.encode())
        expected = self._account.password.reveal().encode()
        if hmac.compare_digest((password or "").encode(), expected) and right:
            return None
        answer = jsonify(description="The user or the password is another one")
        return answer, 401, {"WWW-Authenticate": 'Basic realm="broker"'}


class _Calls(ServiceBroker):
    """What openbrokerapi calls, in threads; `loop` is the one on which the broker works."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker, self._loop = broker, loop

    def catalog(self) -> list[Service]:
        return [_service(one) for one in catalogue.services()]

    def provision(
        self, instance_id: str, details: ProvisionDetails, async_allowed: bool, **_: Any
    ) -> ProvisionedServiceSpec:
        asked = _change(instance_id)
        instance, new = self._do(self._broker.provision(asked, may_wait=async_allowed))
        state = (
            ProvisionState.SUCCESSFUL_CREATED if new else ProvisionState.IDENTICAL_ALREADY_EXISTS
        )
        if _is_open(instance):
            state = ProvisionState.IS_ASYNC
        return ProvisionedServiceSpec(state, operation=_operation(instance))

    def update(
        self, instance_id: str, details: UpdateDetails, async_allowed: bool, **_: Any
    ) -> UpdateServiceSpec:
        asked = _change(instance_id)
        instance = self._do(self._broker.update(asked, may_wait=async_allowed))
        return UpdateServiceSpec(_is_open(instance), _operation(instance))

    def deprovision(
        self, instance_id: str, details: DeprovisionDetails, async_allowed: bool, **_: Any
    ) -> DeprovisionServiceSpec:
        instance = self._do(self._broker.deprovision(instance_id, may_wait=async_allowed))
        return DeprovisionServiceSpec(_is_open(instance), _operation(instance))

    def last_operation(self, instance_id: str, *_: Any, **__: Any) -> LastOperation:
        instance = self._do(self._broker.last_operation(instance_id))
        if instance is None:
            raise ErrInstanceDoesNotExist
        state = OperationState.IN_PROGRESS if _is_open(instance) else OperationState.SUCCEEDED
        return LastOperation(state, instance.problem or f"{instance.verb} of the database")

    def get_instance(self, instance_id: str, **_: Any) -> GetInstanceDetailsSpec:
        instance = self._do(self._broker.fetch(instance_id))
        g.more = {"maintenance_info": {"version": catalogue.MAINTENANCE}}
        known = dict(instance.parameters)
        return GetInstanceDetailsSpec(instance.service, instance.plan, parameters=known)

    def bind(
        self, instance_id: str, binding_id: str, details: BindDetails, async_allowed: bool, **_: Any
    ) -> Binding:
        login = self._do(self._broker.bind(_binding(instance_id, binding_id)))
        known = BindState.SUCCESSFUL_BOUND if login.new else BindState.IDENTICAL_ALREADY_EXISTS
        return Binding(known, credentials=_credentials(login))

    def get_binding(self, instance_id: str, binding_id: str, **_: Any) -> GetBindingSpec:
        login = self._do(self._broker.fetch_binding(instance_id, binding_id))
        return GetBindingSpec(_credentials(login), parameters=dict(login.binding.parameters))

    def last_binding_operation(
        self, instance_id: str, binding_id: str, *_: Any, **__: Any
    ) -> LastOperation:
        self._do(self._broker.fetch_binding(instance_id, binding_id))
        return LastOperation(OperationState.SUCCEEDED)

    def unbind(
        self,
        instance_id: str,
        binding_id: str,
        details: UnbindDetails,
        async_allowed: bool,
        **_: Any,
    ) -> UnbindSpec:
        self._do(self._broker.unbind(instance_id, binding_id))
        return UnbindSpec(is_async=False)

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _Quiet(WSGIRequestHandler):
    """Logs calls without their queries, which hold the keys of operations."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        path = self.path.partition("?")[0]
        log.info("a call was answered", extra={"verb": self.command, "path": path, "status": code})

    def log(self, type: str, message: str, *args: Any) -> None:
        log.debug("a connection failed", extra={"type": type})


def application(broker: Broker, account: Account, loop: asyncio.AbstractEventLoop) -> Flask:
    """Return what answers calls for a broker that works on this loop."""
    silent = logging.getLogger("openbrokerapi")  # it logs headers and bodies
    silent.setLevel(logging.CRITICAL + 1)
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = _LARGEST
    blueprint = get_blueprint(_Calls(broker, loop), None, silent, authenticator=_Door(account))
    blueprint.register_error_handler(Refusal, _refused)
    blueprint.register_error_handler(ServerTrouble, _troubled)
    blueprint.register_error_handler(HTTPException, _failed)
    blueprint.register_error_handler(Exception, _defect)
    blueprint.after_request(_completed)
    app.register_blueprint(blueprint)
    return app


@asynccontextmanager
async def served(app: Flask, host: str, port: int) -> AsyncIterator[int]:
    """Serve for the length of the block; yield the port. Raises OSError."""
    server = make_server(host, port, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, name="front", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    try:
        yield server.server_port
    finally:
        # Not on the loop: calls that are not answered yet need it.
        await asyncio.to_thread(stop)


def _change(instance: str) -> Change:
    body = _body()
    given = body.get("parameters")
    context = get_map(body, "context")
    names = (get_text(context, "namespace"), get_text(context, "instance_name"))
    about = "/".join(name for name in names if name.isprintable())[:_LONGEST]
    return Change(
        instance,
        get_text(body, "service_id"),
        operation(),
        plan=get_text(body, "plan_id"),
        parameters=None if given is None else _parameters(body),
        maintenance=get_text(body, "maintenance_info", "version"),
        about=f"instance {about}" if about else "an instance",
    )


def _binding(instance: str, binding: str) -> instances.Binding:
    body = _body()
    return instances.Binding(
        instance,
        binding,
        get_text(body, "plan_id"),
        _parameters(body),
        app=get_text(body, "bind_resource", "app_guid"),
        predecessor=get_text(body, "predecessor_binding_id"),
    )


def _body() -> Manifest:
    body = request.get_json()
    if not isinstance(body, dict):
        raise Refusal(400, "The body is a JSON object")
    return body


def _parameters(body: Manifest) -> Mapping[str, JSON]:
    given = body.get("parameters") or {}
    if not isinstance(given, dict):
        raise Refusal(400, "The parameters are a JSON object")
    return given


def _service(one: Mapping[str, Any]) -> Service:
    plans = [
        ServicePlan(**{**plan, "schemas": Schemas(**plan["schemas"])}) for plan in one["plans"]
    ]
    return Service(**{**one, "plans": plans, "metadata": ServiceMetadata(**one["metadata"])})


def _is_open(instance: Instance) -> bool:
    """Return whether an operation goes on, and have the platform ask again soon."""
    if not instance.done:
        g.later = _POLL
    return not instance.done


def _operation(instance: Instance) -> str | None:
    return None if instance.done else instance.operation


def _credentials(login: Login) -> dict[str, str]:
    host, port = login.place.host, str(login.place.port)
    g.more = {"endpoints": [{"host": host, "ports": [port], "protocol": "tcp"}]}
    return dict(login.credentials)


def _completed(response: Response) -> Response:
    """Add to an answer what openbrokerapi has no place for."""
    if response.is_json and (more := g.pop("more", None)):
        response.data = jsonify({**response.get_json(), **more}).data
    if (later := g.pop("later", None)) is not None:
        response.headers["Retry-After"] = later
    return response


def _refused(error: Refusal) -> tuple[Response, int]:
    return jsonify(error.body), error.status


def _failed(error: HTTPException) -> tuple[Response, int]:
    return jsonify(description=error.name), error.code or 500


def _troubled(error: ServerTrouble) -> tuple[Response, int, dict[str, str]]:
    log.warning("a call failed because PostgreSQL is not available", extra={"why": str(error)})
    return jsonify(description=str(error)), 503, {"Retry-After": _LATER}


def _defect(error: Exception) -> tuple[Response, int]:
    log.error("a call failed", extra={"type": type(error).__name__, "origin": origin(error)})
    return jsonify(description="The broker has a defect"), 500
