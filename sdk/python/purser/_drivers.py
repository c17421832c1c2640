"""Perform the effects of operations: with threads, or with coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar, Union, cast

import httpx

from ._actions import sdk_error
from ._core import Effect, LoadTokens, Locked, Operation, Reply, Request, RunToEnd, SaveTokens, Send, Sleep
from ._version import VERSION
from .tokens import AsyncTokenStore, TokenStore

T = TypeVar("T")

CONNECT_TIMEOUT_S = 10.0
# A stream takes a connection for as long as it lasts. With httpx's bound of 100 a call waits for one of them to end.
UNLIMITED = httpx.Limits(max_connections=None, max_keepalive_connections=20)
SILENCE_TIMEOUT_S = 60.0  # of a stream; the service sends a comment after 15 s of silence


def make_timeout(timeout_s: float, streamed: bool) -> httpx.Timeout:
    """Return the time limits of one try."""
    read_s = min(timeout_s, SILENCE_TIMEOUT_S) if streamed else timeout_s
    return httpx.Timeout(read_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))


def build_request(
    client: httpx.Client | httpx.AsyncClient, base_url: str, timeout_s: float, request: Request
) -> httpx.Request:
    """Return httpx's form of a request."""
    if request.timeout_s is not None:
        timeout_s = min(timeout_s, request.timeout_s)
    built = client.build_request(
        request.method,
        base_url + request.path,
        params=list(request.query) or None,
        headers=list(request.headers),
        content=request.content,
        timeout=make_timeout(timeout_s, request.streamed),
    )
    built.headers["User-Agent"] = "purser-python/" + VERSION
    return built


class Deadline:
    """Bounds the whole body of a request with a limit of its own. httpx bounds each read of it alone."""

    def __init__(self, request: Request) -> None:
        self._end = None if request.timeout_s is None else time.monotonic() + request.timeout_s

    def check(self) -> None:
        """Raise when the time is over."""
        if self._end is not None and time.monotonic() > self._end:
            raise httpx.ReadTimeout("the answer took too long")


def network_error(cause: Exception) -> Exception:
    """Return the error of a request without a response."""
    return sdk_error("connection_error", f"no response from the service: {cause or type(cause).__name__}", cause=cause)


class SyncDriver:
    """Performs operations in the calling thread."""

    def __init__(self, http: httpx.Client, base_url: str, timeout_s: float, store: TokenStore) -> None:
        self.http = http
        self.store = store
        self.sleep: Callable[[float], object] = time.sleep
        self._base_url = base_url
        self._timeout_s = timeout_s

    def run(self, operation: Operation[T]) -> T:
        """Perform an operation and return its result."""
        try:
            effect = next(operation)
            while True:
                try:
                    result = self._perform(effect)
                except Exception as error:
                    effect = operation.throw(error)
                else:
                    effect = operation.send(result)
        except StopIteration as stop:
            return cast(T, stop.value)
        finally:
            operation.close()

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Send):
            return self._send(effect.request)
        if isinstance(effect, Sleep):
            return self.sleep(effect.seconds)
        if isinstance(effect, LoadTokens):
            return self.store.load(effect.connection_id)
        if isinstance(effect, SaveTokens):
            return self.store.save(effect.tokens.connection_id, effect.tokens)
        if isinstance(effect, RunToEnd):
            return self.run(effect.operation)
        with self.store.lock(effect.connection_id):
            return self.run(effect.operation)

    def _send(self, request: Request) -> Reply:
        built = build_request(self.http, self._base_url, self._timeout_s, request)
        deadline = Deadline(request)
        try:
            response = self.http.send(built, stream=True, follow_redirects=False)
            if request.streamed and response.is_success:
                return Reply(response.status_code, response.headers, stream=response)
            try:
                body = bytearray()
                for data in response.iter_bytes():
                    body += data
                    deadline.check()
                return Reply(response.status_code, response.headers, bytes(body))
            finally:
                response.close()
        except httpx.TransportError as error:
            raise network_error(error) from error


class AsyncDriver:
    """Performs operations in the event loop. A TokenStore without coroutines is read in threads."""

    def __init__(
        self, http: httpx.AsyncClient, base_url: str, timeout_s: float, store: Union[TokenStore, AsyncTokenStore]
    ) -> None:
        self.http = http
        self.store: AsyncTokenStore = (
            cast(AsyncTokenStore, store)
            if inspect.iscoroutinefunction(store.load)
            else ThreadedStore(cast(TokenStore, store))
        )
        self.sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
        self._base_url = base_url
        self._timeout_s = timeout_s
        # One task of this process at a time asks for the store's lock of a connection.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._tasks: set[asyncio.Future[Any]] = set()

    async def run(self, operation: Operation[T]) -> T:
        """Perform an operation and return its result."""
        try:
            effect = next(operation)
            while True:
                try:
                    result = await self._perform(effect)
                except Exception as error:
                    effect = operation.throw(error)
                else:
                    effect = operation.send(result)
        except StopIteration as stop:
            return cast(T, stop.value)
        finally:
            operation.close()

    async def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Send):
            return await self._send(effect.request)
        if isinstance(effect, Sleep):
            return await self.sleep(effect.seconds)
        if isinstance(effect, LoadTokens):
            return await self.store.load(effect.connection_id)
        if isinstance(effect, SaveTokens):
            return await self.store.save(effect.tokens.connection_id, effect.tokens)
        # What uses up a token or a code is completed even if its caller is cancelled: the new tokens must be saved.
        whole = self.run(effect.operation) if isinstance(effect, RunToEnd) else self._run_locked(effect)
        task = asyncio.ensure_future(whole)
        self._tasks.add(task)  # the loop keeps weak references only
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _run_locked(self, effect: Locked) -> Any:
        lock = self._locks.get(effect.connection_id)
        if lock is None:
            lock = self._locks[effect.connection_id] = asyncio.Lock()
        async with lock, self.store.lock(effect.connection_id):
            return await self.run(effect.operation)

    async def _send(self, request: Request) -> Reply:
        built = build_request(self.http, self._base_url, self._timeout_s, request)
        deadline = Deadline(request)
        try:
            response = await self.http.send(built, stream=True, follow_redirects=False)
            if request.streamed and response.is_success:
                return Reply(response.status_code, response.headers, stream=response)
            try:
                body = bytearray()
                async for data in response.aiter_bytes():
                    body += data
                    deadline.check()
                return Reply(response.status_code, response.headers, bytes(body))
            finally:
                await response.aclose()
        except httpx.TransportError as error:
            raise network_error(error) from error


class ThreadedStore:
    """An AsyncTokenStore over a TokenStore."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store

    async def load(self, connection_id: str) -> Any:
        """Return the tokens, or None."""
        return await asyncio.to_thread(self._store.load, connection_id)

    async def save(self, connection_id: str, tokens: Any) -> None:
        """Replace the tokens."""
        await asyncio.to_thread(self._store.save, connection_id, tokens)

    @contextlib.asynccontextmanager
    async def lock(self, connection_id: str) -> AsyncIterator[None]:
        """Take the store's lock in a thread of its own.

        A thread of the shared pool won't do: with enough waiters the pool is full, and the holder of
        a lock gets no thread for saving its tokens.
        """
        lock = self._store.lock(connection_id)
        loop = asyncio.get_running_loop()
        acquired: asyncio.Future[None] = loop.create_future()

        def acquire() -> None:
            try:
                lock.__enter__()
            except BaseException as error:
                loop.call_soon_threadsafe(acquired.set_exception, error)
            else:
                loop.call_soon_threadsafe(acquired.set_result, None)

        threading.Thread(target=acquire, daemon=True).start()
        await acquired
        try:
            yield
        finally:
            lock.__exit__(None, None, None)
