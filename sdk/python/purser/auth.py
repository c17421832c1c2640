"""Fresh access tokens for other packages: ``openai``, ``anthropic``, and anything on httpx."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Union, overload

import httpx

from .aio import AsyncConnection
from .client import Connection


class PurserAuth(httpx.Auth):
    """Gives each request of an httpx client the access token of a connection.

    A 401 refreshes the token once and repeats the request. For the official packages::

        http = httpx.Client(auth=PurserAuth(connection))
        OpenAI(base_url=connection.openai_base_url, api_key="-", http_client=http)
        Anthropic(base_url=connection.anthropic_base_url, api_key="-", http_client=http)

    Their own retries send the same request again. ``connection`` is a Connection, which works in
    both kinds of httpx clients, or an AsyncConnection, which works in httpx.AsyncClient.
    """

    def __init__(self, connection: Union[Connection, AsyncConnection]) -> None:
        self._connection = connection

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Authorize a request of httpx.Client."""
        _refuse_others(self._connection, request)
        if isinstance(self._connection, AsyncConnection):
            raise TypeError("an AsyncConnection needs an httpx.AsyncClient")
        token = self._connection.access_token()
        response = yield _authorize(request, token)
        if response.status_code == 401:
            response.read()
            renewed = self._connection.replace_access_token(token)
            if renewed != token:
                yield _authorize(request, renewed)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Authorize a request of httpx.AsyncClient."""
        connection = self._connection
        _refuse_others(connection, request)
        if isinstance(connection, AsyncConnection):
            token = await connection.access_token()
        else:
            token = await asyncio.to_thread(connection.access_token)
        response = yield _authorize(request, token)
        if response.status_code == 401:
            await response.aread()
            if isinstance(connection, AsyncConnection):
                renewed = await connection.replace_access_token(token)
            else:
                renewed = await asyncio.to_thread(connection.replace_access_token, token)
            if renewed != token:
                yield _authorize(request, renewed)


def _refuse_others(connection: Union[Connection, AsyncConnection], request: httpx.Request) -> None:
    """Raise if a request goes elsewhere than to the service: the token is a secret between it and the app."""
    service, there = httpx.URL(connection.openai_base_url), request.url
    if (there.scheme, there.host, there.port) != (service.scheme, service.host, service.port):
        raise ValueError(f"a request to {there.scheme}://{there.host} would reveal the access token")


def _authorize(request: httpx.Request, token: str) -> httpx.Request:
    """Replace the package's own API key."""
    request.headers.pop("x-api-key", None)
    request.headers["Authorization"] = "Bearer " + token
    return request


@overload
def token_provider(connection: Connection) -> Callable[[], str]: ...


@overload
def token_provider(connection: AsyncConnection) -> Callable[[], Awaitable[str]]: ...


def token_provider(
    connection: Union[Connection, AsyncConnection],
) -> Union[Callable[[], str], Callable[[], Awaitable[str]]]:
    """Return a function that returns a fresh access token, for packages that take a key as a function.

    Newer versions of ``openai`` do: ``OpenAI(api_key=token_provider(connection))``. That of an
    AsyncConnection is a coroutine function, for ``AsyncOpenAI``.
    """
    return connection.access_token
