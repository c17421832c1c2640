"""Streams of calls and of live events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Optional

import httpx

from ._core import Core, Credential, EventReader, Operation, Reply, Request, Sleep, StreamReader
from ._core import is_temporary, stream_broken
from ._drivers import AsyncDriver, SyncDriver, network_error
from .errors import NetworkError, PurserError
from .resources import Bill, Chunk, LiveEvent


class _CallStream:
    """What both kinds of streams share: the request, its result, and when to repeat it."""

    def __init__(self, core: Core, credential: Credential, request: Request) -> None:
        self._core = core
        self._credential = credential
        self._request = request
        self._reader: StreamReader | None = None
        self._response: httpx.Response | None = None
        self._tries = 0
        self._yielded = False
        self._reading = False
        self.request_id: str | None = None
        self.idempotency_key = dict(request.headers)["Idempotency-Key"]

    def _open(self) -> Operation[Reply]:
        reply = yield from self._core.send_as(self._credential, self._request)
        self.request_id = reply.headers.get("x-request-id")
        self._reader = StreamReader(self.request_id)
        self._response = reply.stream
        return reply

    def _begin(self) -> None:
        if self._reading:
            raise RuntimeError("a stream is read once")
        self._reading = True

    def _after_break(self, cause: Exception | None) -> Operation[None]:
        """Wait before the stream is opened again, or raise the reason why it is not."""
        failure = self._failure()
        if failure is not None:  # the service has said why
            raise failure
        if self._yielded:
            raise stream_broken(cause)
        if self._tries >= self._core.max_retries:
            raise network_error(cause or EOFError("the stream ended before its first chunk"))
        yield Sleep(self._core.backoff(self._tries))
        self._tries += 1

    def _finished_bill(self) -> Bill:
        """Return the bill of a stream that was read."""
        if self._reader is None or self._reader.bill is None:
            if self._reader is not None and self._reader.error is not None:
                raise self._reader.error
            raise stream_broken(None)
        return self._reader.bill

    def _failure(self) -> PurserError | None:
        return self._reader.error if self._reader is not None else None

    @property
    def _complete(self) -> bool:
        return self._reader is not None and self._reader.done


class Stream(_CallStream):
    """A streamed answer. Iterate over its chunks, then read ``bill()``.

    The request is sent when you begin to iterate, or at ``with``. Leaving the loop closes the
    connection to the service: the call then ends, and its receipt has the charge. A stream that
    breaks is repeated with the same idempotency key until its first chunk.
    """

    def __init__(self, core: Core, driver: SyncDriver, credential: Credential, request: Request) -> None:
        super().__init__(core, credential, request)
        self._driver = driver

    def __enter__(self) -> Stream:
        if self._response is None:
            self._driver.run(self._open())
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the service."""
        if self._response is not None:
            self._response.close()

    def __iter__(self) -> Iterator[Chunk]:
        self._begin()
        try:
            while not self._complete:
                cause: Exception | None = None
                self.__enter__()
                assert self._response is not None and self._reader is not None
                try:
                    for data in self._response.iter_bytes():
                        for chunk in self._reader.feed(data):
                            self._yielded = True
                            yield chunk
                        if self._reader.done:
                            break
                except httpx.TransportError as error:
                    cause = error
                if not self._complete:
                    self.close()
                    self._response = None
                    self._driver.run(self._after_break(cause))
        finally:
            self.close()
        failure = self._failure()
        if failure is not None:
            raise failure

    def bill(self) -> Bill:
        """Read the rest of the stream, and return what the call cost."""
        if not self._reading:
            for _ in self:
                pass
        return self._finished_bill()


class AsyncStream(_CallStream):
    """As ``Stream``, for ``async for``."""

    def __init__(self, core: Core, driver: AsyncDriver, credential: Credential, request: Request) -> None:
        super().__init__(core, credential, request)
        self._driver = driver

    async def __aenter__(self) -> AsyncStream:
        if self._response is None:
            await self._driver.run(self._open())
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection to the service."""
        if self._response is not None:
            await self._response.aclose()

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        self._begin()
        try:
            while not self._complete:
                cause: Exception | None = None
                await self.__aenter__()
                assert self._response is not None and self._reader is not None
                try:
                    async for data in self._response.aiter_bytes():
                        for chunk in self._reader.feed(data):
                            self._yielded = True
                            yield chunk
                        if self._reader.done:
                            break
                except httpx.TransportError as error:
                    cause = error
                if not self._complete:
                    await self.aclose()
                    self._response = None
                    await self._driver.run(self._after_break(cause))
        finally:
            await self.aclose()
        failure = self._failure()
        if failure is not None:
            raise failure

    async def bill(self) -> Bill:
        """Read the rest of the stream, and return what the call cost."""
        if not self._reading:
            async for _ in self:
                pass
        return self._finished_bill()


class _Reconnects:
    """When the stream of live events is opened again."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def wait(self) -> Operation[None]:
        """Wait before the stream is opened again, longer after each failure in a row."""
        yield Sleep(self._core.backoff(self._failures))
        self._failures += 1


def read_events(core: Core, driver: SyncDriver, credential: Credential, after: str | None) -> Iterator[LiveEvent]:
    """Yield live events, over as many connections to the service as it takes."""
    reader, reconnects = EventReader(after), _Reconnects(core)
    while reader.ended != "final":
        reader.begin()
        try:
            response = driver.run(core.open_events(credential, reader.after)).stream
            assert response is not None
            try:
                for data in response.iter_bytes():
                    for event in reader.feed(data):
                        reconnects.reset()
                        yield event
                    if reader.ended:
                        break
            finally:
                response.close()
        except httpx.TransportError:
            pass
        except PurserError as error:
            if not (isinstance(error, NetworkError) or is_temporary(error)):
                raise
        if not reader.ended:
            driver.run(reconnects.wait())


async def read_events_async(
    core: Core, driver: AsyncDriver, credential: Credential, after: str | None
) -> AsyncIterator[LiveEvent]:
    """As ``read_events``."""
    reader, reconnects = EventReader(after), _Reconnects(core)
    while reader.ended != "final":
        reader.begin()
        try:
            response = (await driver.run(core.open_events(credential, reader.after))).stream
            assert response is not None
            try:
                async for data in response.aiter_bytes():
                    for event in reader.feed(data):
                        reconnects.reset()
                        yield event
                    if reader.ended:
                        break
            finally:
                await response.aclose()
        except httpx.TransportError:
            pass
        except PurserError as error:
            if not (isinstance(error, NetworkError) or is_temporary(error)):
                raise
        if not reader.ended:
            await driver.run(reconnects.wait())


