"""Connecting users: the redirect flow and the device flow."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import unittest
from urllib.parse import parse_qs, urlsplit

import httpx

import purser

from .fakes import RENEWED, Service, ok

EXCHANGED = {**RENEWED, "connection_id": "conn_1", "allocation_mc": 500000000}


def callback(attempt: purser.ConnectAttempt, **parameters: str) -> str:
    query = {"state": attempt.state, "iss": "http://auth.test", **parameters}
    return "http://app.test/callback?" + str(httpx.QueryParams(query))


class ConnectTest(unittest.TestCase):
    def test_connect(self) -> None:
        service = Service(ok(EXCHANGED))
        client = service.purser()
        attempt = client.connect.start(allocation_mc=700000000, features=["chat", "sum"])
        query = {name: values[0] for name, values in parse_qs(urlsplit(attempt.url).query).items()}
        challenge = base64.urlsafe_b64encode(hashlib.sha256(attempt.verifier.encode()).digest()).rstrip(b"=").decode()
        self.assertEqual((query["code_challenge"], query["code_challenge_method"]), (challenge, "S256"))
        self.assertEqual((query["requested_allocation_mc"], query["features"]), ("700000000", "chat,sum"))
        self.assertNotIn(attempt.verifier, repr(attempt))

        connection = client.connect.finish(callback(attempt, code="c+1/="), attempt)
        self.assertEqual((connection.connection_id, connection.allocation_mc), ("conn_1", 500000000))
        self.assertEqual(client.tokens.load("conn_1").refresh_token, "r2")
        form = parse_qs(service.requests[0].content.decode())
        self.assertEqual((form["code"], form["code_verifier"]), (["c+1/="], [attempt.verifier]))
        self.assertTrue(service.requests[0].headers["Authorization"].startswith("Basic "))

    def test_refused_callbacks_exchange_nothing(self) -> None:
        service = Service()
        client = service.purser()
        attempt = client.connect.start()
        for parameters, code, kind in (
            ({"state": "other", "code": "c"}, "state_mismatch", purser.ConnectAgainError),
            ({"iss": "http://evil.test", "code": "c"}, "issuer_mismatch", purser.ConnectAgainError),
            ({"error": "access_denied"}, "access_denied", purser.DeclinedError),
        ):
            with self.assertRaises(kind) as caught:
                client.connect.finish(callback(attempt, **parameters), attempt)
            self.assertEqual(caught.exception.code, code)
        self.assertEqual(service.requests, [])

    def test_a_lost_answer_is_asked_for_again(self) -> None:
        service = Service(httpx.ReadError("cut"), ok(EXCHANGED))
        client = service.purser()
        attempt = client.connect.start()
        client.connect.finish(callback(attempt, code="c"), attempt)
        self.assertEqual((len(service.requests), len(service.keys)), (2, 1))

    def test_with_coroutines(self) -> None:
        async def connect() -> None:
            client = Service(ok(EXCHANGED)).async_purser()
            attempt = await client.connect.start()
            connection = await client.connect.finish(callback(attempt, code="c"), attempt)
            self.assertEqual(await connection.access_token(), "a2")

        asyncio.run(connect())


class DeviceTest(unittest.TestCase):
    CODES = {"device_code": "d", "user_code": "WDJB-MJHT", "interval": 5, "expires_in": 600}

    def test_polls_until_the_user_has_decided(self) -> None:
        def oauth(status: int, error: str) -> httpx.Response:
            body = {"error": error, "error_description": "no"}
            return httpx.Response(status, json=body, headers={"Retry-After": "5"} if status == 429 else {})

        service = Service(
            ok(self.CODES), oauth(400, "authorization_pending"), oauth(429, "slow_down"), ok(EXCHANGED)
        )
        client = service.purser(client_secret=None)
        device = client.device.start(features=["chat"])
        self.assertEqual(device.user_code, "WDJB-MJHT")
        self.assertEqual(client.device.wait(device).connection_id, "conn_1")
        self.assertEqual(service.slept, [5.0, 10.0])

        client = Service(ok(self.CODES), oauth(400, "access_denied")).purser()
        with self.assertRaises(purser.DeclinedError):
            client.device.wait(client.device.start())

    def test_polls_on_through_outages_with_one_key(self) -> None:
        def html(status: int) -> httpx.Response:
            return httpx.Response(status, text="<html>Bad Gateway</html>")

        pending = httpx.Response(400, json={"error": "authorization_pending"})
        service = Service(
            html(502), html(200), httpx.ReadError("cut"), pending, httpx.ConnectError("down"), ok(EXCHANGED)
        )
        client = service.purser(max_retries=0)
        device = purser.DeviceAuthorization.parse(self.CODES)
        self.assertEqual(client.device.wait(device).connection_id, "conn_1")
        self.assertEqual((service.slept, len(service.keys)), ([10.0, 20.0, 30.0, 30.0, 30.0], 1))

        service = Service(*[html(502) for _ in range(9)])
        client = service.purser(max_retries=0)
        client._core.monotonic = lambda: sum(service.slept)
        with self.assertRaises(purser.ConnectAgainError) as caught:
            client.device.wait(purser.DeviceAuthorization.parse({**self.CODES, "expires_in": 60}))
        self.assertEqual((caught.exception.code, sum(service.slept)), ("expired_token", 60))

        service = Service(html(404))
        with self.assertRaises(purser.PurserError):
            service.purser().device.wait(device)

    def test_a_cancelled_exchange_saves_its_tokens(self) -> None:
        async def cancel() -> None:
            client = Service(ok(EXCHANGED)).async_purser()
            sent, answered = asyncio.Event(), asyncio.Event()
            send = client._driver._send

            async def send_slowly(request):
                reply = await send(request)
                if request.path == "/oauth/token":
                    sent.set()
                    await answered.wait()
                return reply

            client._driver._send = send_slowly
            attempt = await client.connect.start()
            finish = asyncio.ensure_future(client.connect.finish(callback(attempt, code="c"), attempt))
            await sent.wait()
            finish.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await finish
            answered.set()
            while client._driver._tasks:
                await asyncio.sleep(0)
            self.assertEqual(client.tokens.load("conn_1").refresh_token, "r2")

        asyncio.run(cancel())
