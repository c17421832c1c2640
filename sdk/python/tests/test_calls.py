"""Calls: answers, errors, retries, refreshes, streams, live events, lists."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import time
import unittest
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx

import purser
from purser import _actions
from purser.auth import PurserAuth

from .fakes import CALL, COMPLETION, EXPIRED, FINAL, FRESH, RENEWED, Body, Service
from .fakes import delta, events, frame, ok, refusal, stored


class CallTest(unittest.TestCase):
    def test_answer_and_bill(self) -> None:
        service = Service(ok(COMPLETION, **{"Idempotent-Replayed": "true"}))
        answer = service.purser().with_token("a").call(*CALL, feature="chat", fit=True)
        request = service.requests[0]
        self.assertEqual((answer.text, answer.request_id, answer.replayed), ("Hi", "req_1", True))
        self.assertEqual((answer.bill.user_charge_mc, answer.bill.settlement), (2500, "settled"))
        self.assertEqual(request.url.path, "/v1/ai/gpt-6-luna")
        self.assertEqual(request.headers["Authorization"], "Bearer a")
        self.assertEqual((request.headers["X-Svc-Feature"], request.headers["X-Svc-Fit"]), ("chat", "1"))

    def test_retries_share_key_and_bytes(self) -> None:
        service = Service(httpx.ConnectError("down"), refusal(503, "unavailable", {"Retry-After": "3"}), ok(COMPLETION))
        service.purser().with_token("a").call(*CALL)
        self.assertEqual(len(service.keys), 1)
        self.assertEqual(len({request.content for request in service.requests}), 1)
        self.assertEqual(service.slept, [0.5, 3.0])

    def test_gives_up_after_max_retries(self) -> None:
        service = Service(*[refusal(502, "provider_error") for _ in range(3)])
        with self.assertRaises(purser.PurserError) as caught:
            service.purser().with_token("a").call(*CALL)
        self.assertEqual((caught.exception.action, caught.exception.should_retry), ("retry", True))
        self.assertEqual(len(service.requests), 3)

    def test_a_malformed_retry_after_is_ignored(self) -> None:
        for text in ("-1", "nan", "inf", "1e3", "", "Fri, 27 Nob"):
            service = Service(refusal(503, "unavailable", {"Retry-After": text}), ok(COMPLETION))
            service.purser().with_token("a").call(*CALL)
            self.assertEqual(service.slept, [0.5], text)

    def test_no_retry_where_it_does_not_help(self) -> None:
        for answer in (
            refusal(429, "risk_throttled"),
            refusal(429, "daily_limit_reached", {"Retry-After": "61"}),
            refusal(503, "unavailable", {"X-Should-Retry": "false"}),
            refusal(502, "provider_error", {"X-Should-Retry": "false"}, details={"retry": False}),
            refusal(409, "idempotency_key_reused"),
        ):
            service = Service(answer)
            with self.assertRaises(purser.PurserError) as caught:
                service.purser().with_token("a").call(*CALL)
            self.assertFalse(caught.exception.should_retry)
            self.assertEqual(len(service.requests), 1)

    def test_post_without_key_is_repeated_only_if_it_had_no_effect(self) -> None:
        service = Service(httpx.ReadError("cut"))
        with self.assertRaises(purser.NetworkError):
            service.purser().test_accounts.fund("app_1", "wac_1", amount_mc=5)
        service = Service(refusal(429, "rate_limited", {"Retry-After": "1"}), ok({"wac_id": "wac_1"}))
        self.assertEqual(service.purser().test_accounts.fund("app_1", "wac_1", amount_mc=5).wac_id, "wac_1")

    def test_error_classes(self) -> None:
        url = "https://purser.test/increase"
        for answer, kind, action in (
            (refusal(402, "allocation_exhausted", increase_url=url), purser.BudgetError, "raise_cap"),
            (refusal(402, "allocation_exhausted", details={"reason": "held_by_in_flight"}), purser.BudgetError, "wait"),
            (refusal(403, "connection_revoked"), purser.ConnectAgainError, "connect_again"),
            (refusal(403, "connection_frozen", review_url=url), purser.PausedError, "ask_user"),
            (refusal(429, "too_many_sessions"), purser.LimitError, "fix_request"),
            (refusal(418, "new_code"), purser.PurserError, "fix_request"),
            (httpx.Response(404, text="not Purser"), purser.PurserError, "fix_request"),
        ):
            with self.assertRaises(purser.PurserError) as caught:
                Service(answer).purser().with_token("a").call(*CALL)
            self.assertIs(type(caught.exception), kind)
            self.assertEqual(caught.exception.action, action)

    def test_credentials_of_the_app_are_not_the_users(self) -> None:
        with self.assertRaises(purser.PurserError) as caught:
            Service(refusal(401, "unauthorized")).purser().apps.get("app_1")
        self.assertEqual(caught.exception.action, "fix_request")

    def test_actions_are_those_of_the_suite(self) -> None:
        path = Path(__file__).resolve().parents[2] / "conformance" / "errors.json"
        table = json.loads(path.read_text("utf-8"))
        codes = {code: (row["status"], row["action"]) for code, row in table["codes"].items()}
        self.assertEqual(codes, _actions.CODES)
        self.assertEqual({code: row["action"] for code, row in table["oauth"].items()}, _actions.OAUTH)
        self.assertEqual({code: row["action"] for code, row in table["sdk"].items()}, _actions.SDK)
        for member, mine in (
            ("reasons", _actions.REASONS),
            ("not_retryable", _actions.NOT_RETRYABLE),
            ("no_retry_after", _actions.NO_RETRY_AFTER),
            ("client_credentials", _actions.CLIENT_CREDENTIALS),
        ):
            self.assertEqual({code: row[member] for code, row in table["codes"].items() if member in row}, mine)
        self.assertEqual({int(status): action for status, action in table["by_status"].items()}, _actions.BY_STATUS)


class TokenTest(unittest.TestCase):
    def test_refresh_before_the_call(self) -> None:
        store = stored(EXPIRED)
        kept = []

        def answer(_: httpx.Request) -> httpx.Response:
            kept.append(store.load("conn_1"))
            return ok(RENEWED)

        service = Service(answer, ok(COMPLETION))
        service.purser(tokens=store).connection("conn_1").call(*CALL)
        refresh, call = service.requests
        self.assertEqual(refresh.content, b"grant_type=refresh_token&refresh_token=r1")
        self.assertEqual(refresh.headers["Idempotency-Key"], kept[0].refresh_key)  # saved before it was sent
        self.assertEqual(kept[0].refresh_token, "r1")
        self.assertEqual(call.headers["Authorization"], "Bearer a2")
        self.assertEqual((store.load("conn_1").refresh_token, store.load("conn_1").refresh_key), ("r2", None))

    def test_the_key_survives_a_lock_that_is_rolled_back(self) -> None:
        store = stored(EXPIRED)
        lock = store.lock

        @contextlib.contextmanager
        def transaction(name: str) -> Iterator[None]:
            with lock(name):
                before = store.load(name)
                try:
                    yield
                except BaseException:
                    store.save(name, before)
                    raise

        store.lock = transaction  # type: ignore[method-assign]
        service = Service(httpx.ConnectError("cut"), ok(RENEWED))
        connection = service.purser(tokens=store, max_retries=0).connection("conn_1")
        with self.assertRaises(purser.PurserError):
            connection.access_token()
        self.assertEqual(connection.access_token(), "a2")
        self.assertEqual(len(service.requests), 2)
        self.assertEqual(len(service.keys), 1)
        self.assertIsNone(store.load("conn_1").refresh_key)

    def test_a_refresh_that_another_process_has_begun_goes_on_with_its_key(self) -> None:
        store = stored(EXPIRED)
        store.save("conn_1", replace(store.load("conn_1"), refresh_key="key-1"))
        last = {**RENEWED, "access_token": "a3", "refresh_token": "r3"}
        service = Service(ok({**RENEWED, "expires_in": 1}), ok(last))  # the repeated answer is old
        self.assertEqual(service.purser(tokens=store).connection("conn_1").access_token(), "a3")
        first, second = service.requests
        self.assertEqual(first.headers["Idempotency-Key"], "key-1")
        self.assertNotEqual(second.headers["Idempotency-Key"], "key-1")
        self.assertIn(b"refresh_token=r2", second.content)

    def test_a_store_that_drops_the_key_gets_a_derived_one(self) -> None:
        store = stored(EXPIRED)
        save = store.save
        store.save = lambda name, tokens: save(name, replace(tokens, refresh_key=None))  # type: ignore[method-assign]
        service = Service(ok(RENEWED))
        service.purser(tokens=store).connection("conn_1").access_token()
        self.assertEqual(service.keys, {"4ccb8f6c-c18d-89e1-995b-cf99d301d715"})

    def test_an_answer_without_tokens_is_refused(self) -> None:
        for answer in (
            {}, [], None, {**RENEWED, "refresh_token": ""}, {**RENEWED, "access_token": None},
            {"access_token": "a2", "refresh_token": "r2"}, {**RENEWED, "expires_in": "soon"},
        ):
            store = stored(EXPIRED)
            with self.assertRaises(purser.PurserError) as caught:
                Service(ok(answer)).purser(tokens=store).connection("conn_1").access_token()
            self.assertEqual(caught.exception.code, "invalid_response")
            self.assertEqual(store.load("conn_1").refresh_token, "r1")

    def test_a_refresh_has_limits_of_its_own(self) -> None:
        service = Service(httpx.ReadTimeout("swallowed"), httpx.ReadTimeout("swallowed"))
        client = service.purser(tokens=stored(EXPIRED), timeout=600)
        times = iter([0.0, 0.0, 5.0, 5.5, 15.0])  # began, try, wait, try, wait
        client._core.monotonic = lambda: next(times)
        with self.assertRaises(purser.NetworkError):
            client.connection("conn_1").access_token()
        self.assertEqual([request.extensions["timeout"]["read"] for request in service.requests], [5.0, 9.5])
        self.assertEqual(len(service.keys), 1)

    def test_a_full_disk_loses_nothing(self) -> None:
        store = stored(EXPIRED)
        save, full = store.save, [True]

        def save_if_free(name: str, tokens: purser.Tokens) -> None:
            if full.pop(0):
                raise OSError("no space left on device")
            save(name, tokens)

        store.save = save_if_free  # type: ignore[method-assign]
        last = {**RENEWED, "access_token": "a3", "refresh_token": "r3"}
        service = Service(ok(RENEWED), ok(last))
        client = service.purser(tokens=store)
        with self.assertRaises(OSError):
            client.connection("conn_1").access_token()
        self.assertEqual(service.requests, [])  # the key could not be saved

        full[:] = [False, True, True]
        for _ in range(2):
            self.assertEqual(client.connection("conn_1").access_token(), "a2")
        self.assertEqual((store.load("conn_1").refresh_token, len(service.requests)), ("r1", 1))

        client._core.now = lambda: time.time() + 3600
        full[:] = [True, True]
        with self.assertRaises(OSError):  # a token that is not saved is not used
            client.connection("conn_1").access_token()
        self.assertEqual(len(service.requests), 1)
        full[:] = [False, False, False]
        self.assertEqual(client.connection("conn_1").access_token(), "a3")
        self.assertEqual(store.load("conn_1").refresh_token, "r3")

    def test_401_refreshes_once(self) -> None:
        service = Service(refusal(401, "unauthorized"), ok(RENEWED), refusal(401, "unauthorized"))
        with self.assertRaises(purser.ConnectAgainError):
            service.purser(tokens=stored(FRESH)).connection("conn_1").call(*CALL)
        self.assertEqual(len(service.requests), 3)

    def test_another_process_has_refreshed(self) -> None:
        store = stored(EXPIRED)
        service = Service(ok(COMPLETION))
        client = service.purser(tokens=store)
        connection = client.connection("conn_1")
        original = store.lock

        def lock_after_other(connection_id: str):
            fresh = stored(FRESH).load("conn_1").to_dict()
            store.save("conn_1", purser.Tokens.from_dict({**fresh, "access_token": "a3"}))
            return original(connection_id)

        store.lock = lock_after_other  # type: ignore[method-assign]
        self.assertEqual(connection.access_token(), "a3")
        self.assertEqual(service.requests, [])

    def test_fixed_token_is_not_refreshed(self) -> None:
        service = Service(refusal(401, "unauthorized"))
        with self.assertRaises(purser.ConnectAgainError):
            service.purser().with_token("a").call(*CALL)

    def test_public_client_sends_its_id(self) -> None:
        service = Service(ok(RENEWED), ok({"id": "conn_1"}))
        service.purser(tokens=stored(EXPIRED), client_secret=None).connection("conn_1").get()
        self.assertTrue(service.requests[0].content.endswith(b"&client_id=cid_1"))
        self.assertNotIn("Authorization", service.requests[0].headers)

    def test_auth_for_other_packages(self) -> None:
        service = Service(refusal(401, "unauthorized"), ok(RENEWED), ok({}), ok({}))
        connection = service.purser(tokens=stored(FRESH)).connection("conn_1")
        transport = httpx.MockTransport(service.answer)
        with httpx.Client(auth=PurserAuth(connection), transport=transport) as http:
            http.post(connection.anthropic_base_url + "/v1/messages", headers={"x-api-key": "-"}, json={})
        self.assertEqual(service.requests[-1].headers["Authorization"], "Bearer a2")
        self.assertNotIn("x-api-key", service.requests[-1].headers)

        async def post() -> None:
            async_transport = httpx.MockTransport(service.answer_async)
            async with httpx.AsyncClient(auth=PurserAuth(connection), transport=async_transport) as http:
                await http.post(connection.openai_base_url + "/responses", json={})

        asyncio.run(post())
        self.assertEqual(service.requests[-1].headers["Authorization"], "Bearer a2")
        self.assertEqual(purser.token_provider(connection)(), "a2")

        for elsewhere in ("https://other.example/v1", connection.openai_base_url.replace("://", "://x.")):
            with httpx.Client(auth=PurserAuth(connection), transport=transport) as http:
                with self.assertRaisesRegex(ValueError, "reveal"):
                    http.get(elsewhere)


class StreamTest(unittest.TestCase):
    def test_chunks_and_bill(self) -> None:
        whole = delta("Hel") + b": waiting\n\n" + delta("lo ✓") + FINAL
        service = Service(events(*[whole[i : i + 7] for i in range(0, len(whole), 7)]))
        stream = service.purser().with_token("a").stream(*CALL)
        self.assertEqual("".join(chunk.text for chunk in stream), "Hello ✓")
        self.assertEqual((stream.bill().user_charge_mc, stream.bill().settlement), (2500, "settled"))
        self.assertTrue(json.loads(service.requests[0].content)["stream"])

    def test_bill_reads_the_rest(self) -> None:
        stream = Service(events(delta("Hi"), FINAL)).purser().with_token("a").stream(*CALL)
        self.assertEqual(stream.bill().user_charge_mc, 2500)

    def test_break_closes(self) -> None:
        body = Body(delta("a"), delta("b"), FINAL)
        stream = Service(events(body=body)).purser().with_token("a").stream(*CALL)
        for _ in stream:
            break
        self.assertTrue(body.closed)
        with self.assertRaises(purser.NetworkError):
            stream.bill()

    def test_repeated_until_the_first_chunk(self) -> None:
        service = Service(events(b": waiting\n\n", httpx.ReadError("cut")), events(), events(delta("a"), FINAL))
        self.assertEqual([chunk.text for chunk in service.purser().with_token("a").stream(*CALL)], ["a"])
        self.assertEqual((len(service.requests), len(service.keys)), (3, 1))

    def test_not_repeated_after_the_first_chunk(self) -> None:
        service = Service(events(delta("a"), httpx.ReadError("cut")))
        with self.assertRaises(purser.NetworkError) as caught:
            list(service.purser().with_token("a").stream(*CALL))
        self.assertEqual((caught.exception.code, caught.exception.action), ("stream_broken", "retry"))

    def test_the_error_of_a_broken_stream_is_the_one_it_named(self) -> None:
        failure = frame({"error": {"code": "provider_error", "message": "no"}})
        for parts in ((delta("x"), failure), (failure,)):
            service = Service(events(*parts, httpx.ReadError("cut")))
            with self.assertRaises(purser.PurserError) as caught:
                list(service.purser().with_token("a").stream(*CALL))
            self.assertEqual((caught.exception.code, len(service.requests)), ("provider_error", 1))

    def test_error_event_keeps_the_bill(self) -> None:
        error = frame({"error": {"code": "call_stopped", "message": "stopped", "type": "forbidden"}})
        stream = Service(events(delta("a"), error, FINAL)).purser().with_token("a").stream(*CALL)
        with self.assertRaises(purser.PurserError) as caught:
            list(stream)
        stopped = caught.exception
        self.assertEqual((stopped.code, stopped.status, stopped.action), ("call_stopped", 403, "ask_user"))
        self.assertEqual(stream.bill().user_charge_mc, 2500)

    def test_refused_at_with(self) -> None:
        with self.assertRaises(purser.BudgetError):
            with Service(refusal(402, "allocation_exhausted")).purser().with_token("a").stream(*CALL):
                self.fail("the stream was opened")

    def test_pending(self) -> None:
        final = frame({"svc_final": {"settlement": "pending", "usage": None, "svc": None}}) + frame(b"[DONE]")
        bill = Service(events(delta("a"), final)).purser().with_token("a").stream(*CALL).bill()
        self.assertEqual((bill.settlement, bill.user_charge_mc), ("pending", None))


def live(event_type: str, event_id: str | None = None, **members: object) -> bytes:
    line = f"id: {event_id}\n".encode() if event_id else b""
    return line + f"event: {event_type}\n".encode() + frame({"type": event_type, **members})


class LiveEventTest(unittest.TestCase):
    def test_reconnects_from_the_last_id(self) -> None:
        service = Service(
            events(
                live("balance", "led_1", connection={"id": "conn_1"}),
                live("charge", "led_2", entry={"id": "led_2"}),
                httpx.ReadError("cut"),
            ),
            events(live("end", reason="server_shutdown", reconnect=True)),
            events(live("end", reason="connection_revoked", reconnect=False)),
        )
        seen = list(service.purser().with_token("a").events(after="led_0"))
        self.assertEqual([event.type for event in seen], ["balance", "charge", "end"])
        self.assertEqual([event.event_id for event in seen], ["led_1", "led_2", None])
        self.assertEqual(seen[1].entry.id, "led_2")
        sent = [request.headers["Last-Event-ID"] for request in service.requests]
        self.assertEqual(sent, ["led_0", "led_2", "led_2"])
        self.assertEqual(service.slept, [0.5])

    def test_outages_do_not_end_it(self) -> None:
        gone = [refusal(503, "unavailable") for _ in range(9)]
        end = frame({"type": "end", "reason": "revoked", "reconnect": False})
        service = Service(*gone, events(end))
        received = list(service.purser().with_token("a").events())
        self.assertEqual(([event.type for event in received], len(service.requests)), (["end"], 10))

    def test_a_refusal_ends_it(self) -> None:
        with self.assertRaises(purser.ConnectAgainError):
            list(Service(refusal(403, "connection_revoked")).purser().with_token("a").events())


class ListTest(unittest.TestCase):
    def test_pages(self) -> None:
        link = '<https://evil.test/elsewhere?limit=1&starting_after=a>; rel="next"'
        service = Service(ok([{"slug": "a"}], Link=link), ok([{"slug": "b"}]))
        slugs = [feature.slug for feature in service.purser().features.list("app_1", page_size=1)]
        self.assertEqual(slugs, ["a", "b"])
        self.assertEqual(service.requests[1].url, "http://purser.test/v1/apps/app_1/features?limit=1&starting_after=a")

    def test_events_end_at_an_empty_page(self) -> None:
        link = '</v1/apps/app_1/events?after=2>; rel="next"'
        service = Service(ok([{"id": "evt_1", "type": "connection.revoked"}], Link=link), ok([], Link=link))
        self.assertEqual(len(list(service.purser().events.list("app_1", after="evt_0"))), 1)
        service = Service(ok([{"id": "evt_1", "type": "x"}], Link=link))
        self.assertEqual(len(list(service.purser().events.list("app_1"))), 1)


class AsyncTest(unittest.IsolatedAsyncioTestCase):
    async def test_one_refresh_for_many_tasks(self) -> None:
        service = Service(ok(RENEWED), *[ok(COMPLETION) for _ in range(50)])
        connection = service.async_purser(tokens=stored(EXPIRED)).connection("conn_1")
        answers = await asyncio.gather(*[connection.call(*CALL) for _ in range(50)])
        self.assertEqual({answer.text for answer in answers}, {"Hi"})
        self.assertEqual([request.url.path for request in service.requests].count("/oauth/token"), 1)

    async def test_stream(self) -> None:
        body = Body(delta("a"), delta("b"), FINAL)
        stream = Service(events(httpx.ReadError("cut")), events(body=body)).async_purser().with_token("a").stream(*CALL)
        self.assertEqual([chunk.text async for chunk in stream], ["a", "b"])
        self.assertEqual((await stream.bill()).user_charge_mc, 2500)
        self.assertTrue(body.closed)

    async def test_lists_and_live_events(self) -> None:
        link = '</v1/connections?starting_after=conn_1>; rel="next"'
        service = Service(
            ok([{"id": "conn_1"}], Link=link), ok([{"id": "conn_2"}]), events(live("end", reason="x", reconnect=False))
        )
        client = service.async_purser()
        self.assertEqual([row.id async for row in client.connections.list()], ["conn_1", "conn_2"])
        self.assertEqual([event.type async for event in client.with_token("a").events()], ["end"])

    async def test_a_cancelled_refresh_saves_its_tokens(self) -> None:
        store, started = stored(EXPIRED), asyncio.Event()
        service = Service(ok(RENEWED))
        client = service.async_purser(tokens=store)
        send = client._driver._send

        async def send_slowly(request):
            started.set()
            await asyncio.sleep(0)
            return await send(request)

        client._driver._send = send_slowly  # type: ignore[method-assign]
        task = asyncio.ensure_future(client.connection("conn_1").access_token())
        await started.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual(await client.connection("conn_1").access_token(), "a2")
        self.assertEqual(len(service.requests), 1)


class ParityTest(unittest.TestCase):
    def test_both_clients_have_the_same_methods(self) -> None:
        from purser import aio, client

        for name, kind in vars(client).items():
            if not (inspect.isclass(kind) and kind.__module__ == "purser.client"):
                continue
            twin = getattr(aio, "Async" + name)
            for method, function in inspect.getmembers(kind, inspect.isfunction):
                if method.startswith("_") and method != "__init__":
                    continue
                other = getattr(twin, {"close": "aclose"}.get(method, method))
                parameters = list(inspect.signature(function).parameters)
                self.assertEqual(parameters, list(inspect.signature(other).parameters), (name, method))


if __name__ == "__main__":
    unittest.main()
