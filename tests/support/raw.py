"""A look at an API server that does not pass through our client."""

from typing import Any

import aiohttp

from reconciler.kube.connection import ClientCertificate, Connection
from reconciler.kube.transport import ssl_context


def http_session(connection: Connection) -> aiohttp.ClientSession:
    """Return a plain session with the connection's client certificate. Close it."""
    credential = connection.credential
    certificate = credential if isinstance(credential, ClientCertificate) else None
    connector = aiohttp.TCPConnector(ssl=ssl_context(connection, certificate), limit=0)
    return aiohttp.ClientSession(connection.server, connector=connector)


async def get_json(connection: Connection, path: str) -> Any:
    async with http_session(connection) as session, session.get(path) as response:
        response.raise_for_status()
        return await response.json()
