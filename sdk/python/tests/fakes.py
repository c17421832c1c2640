"""A service for tests: it answers from a list, records requests, and never waits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Union

import httpx

from purser import AsyncPurser, MemoryTokenStore, Purser, Tokens

BASE_URL = "http://purser.test"
METADATA = {"issuer": "http://auth.test", "authorization_endpoint": "http://auth.test/oauth/authorize"}
SVC = {
    "feature": None,
    "hold_amount_mc": 3000,
    "provider_cost_mc": 2000,
    "svc_fee_mc": 100,
    "dev_margin_mc": 400,
    "user_charge_mc": 2500,
    "user_charge_display": "$0.000025",
    "allocation_remaining_mc": 497500,
    "allocation_remaining_display": "$0.004975",
    "max_tokens_applied": 50,
    "paid_by": "wallet",
}
COMPLETION = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"total_tokens": 3},
    "svc": SVC,
}

Answer = Union[httpx.Response, Exception, Callable[[httpx.Request], httpx.Response]]


def ok(value: Any, **headers: str) -> httpx.Response:
    return httpx.Response(200, json=value, headers={"X-Request-Id": "req_1", **headers})


def refusal(status: int, code: str, headers: dict[str, str] | None = None, **members: Any) -> httpx.Response:
    error = {"code": code, "message": "no", "type": "t", "connection_id": None, "increase_url": None}
    all_headers = {"X-Request-Id": "req_2", **(headers or {})}
    return httpx.Response(status, json={"error": {**error, **members}}, headers=all_headers)


def frame(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def delta(text: str) -> bytes:
    return frame({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


FINAL = frame({"svc_final": {"settlement": "settled", "usage": {"total_tokens": 3}, "svc": SVC}}) + frame(b"[DONE]")


class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A streamed body that may break, and that records whether it was closed."""

    def __init__(self, *parts: bytes | Exception) -> None:
        self.parts = parts
        self.closed = False

    def __iter__(self):
        for part in self.parts:
            if isinstance(part, Exception):
                raise part
            yield part

    async def __aiter__(self):
        for part in self:
            yield part

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


def events(*parts: bytes | Exception, body: Body | None = None) -> httpx.Response:
    return httpx.Response(200, headers={"X-Request-Id": "req_3"}, stream=body or Body(*parts))


class Service:
    """Answers each request with the next answer of the list."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.slept: list[float] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return self.respond(request)

    async def answer_async(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        return self.respond(request)

    def respond(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/.well-known/oauth-authorization-server":
            return ok(METADATA)
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else answer(request)

    @property
    def keys(self) -> set[str]:
        return {request.headers["Idempotency-Key"] for request in self.requests}

    def purser(self, **options: Any) -> Purser:
        options.setdefault("client_secret", "secret")
        http = httpx.Client(transport=httpx.MockTransport(self.answer))
        purser = Purser(BASE_URL, "cid_1", redirect_uri="http://app.test/callback", http_client=http, **options)
        purser._core.jitter = lambda: 0.5
        purser._driver.sleep = self.slept.append
        return purser

    def async_purser(self, **options: Any) -> AsyncPurser:
        options.setdefault("client_secret", "secret")
        http = httpx.AsyncClient(transport=httpx.MockTransport(self.answer_async))
        purser = AsyncPurser(BASE_URL, "cid_1", redirect_uri="http://app.test/callback", http_client=http, **options)
        purser._core.jitter = lambda: 0.5

        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        purser._driver.sleep = sleep
        return purser


def stored(expires_at: str) -> MemoryTokenStore:
    """Return a store with the tokens a1 and r1 of conn_1."""
    store = MemoryTokenStore()
    values = {"access_token": "a1", "refresh_token": "r1", "expires_at": expires_at, "connection_id": "conn_1"}
    store.save("conn_1", Tokens.from_dict(values))
    return store


EXPIRED, FRESH = "2020-01-01T00:00:00Z", "2999-01-01T00:00:00.000Z"
RENEWED = {"access_token": "a2", "refresh_token": "r2", "expires_in": 900, "token_type": "Bearer"}
CALL = ("gpt-6-luna", {"messages": [{"role": "user", "content": "Hello"}]})
