"""The runner of the conformance suite (sdk/conformance/README.md) for Python's SDK.

    run.py                             answer requests with Purser
    run.py --async                     answer requests with AsyncPurser
    run.py token FOLDER CONNECTION_ID  print a fresh access token of a file store
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Union

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from purser import (  # noqa: E402
    Answer,
    AsyncConnection,
    AsyncPurser,
    ConnectAttempt,
    Connection,
    DeviceAuthorization,
    FileTokenStore,
    MemoryTokenStore,
    Purser,
    PurserError,
    Resource,
    Tokens,
    verify_webhook,
)

AnyPurser = Union[Purser, AsyncPurser]
AnyConnection = Union[Connection, AsyncConnection]


class Unsupported(Exception):
    """An operation that this runner does not know."""


async def settle(value: Any) -> Any:
    """Return the result of a method of either client."""
    return await value if inspect.isawaitable(value) else value


async def each(values: Any) -> AsyncIterator[Any]:
    """Yield the items of an iterator of either client."""
    if hasattr(values, "__aiter__"):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value


def to_json(value: Any) -> Any:
    """Return the form in which the suite compares a result."""
    return value.raw if isinstance(value, Resource) else value


def answer_json(answer: Answer) -> dict[str, Any]:
    return {
        "text": answer.text,
        "request_id": answer.request_id,
        "replayed": answer.replayed,
        "bill": dict(answer.bill.raw),
        "raw": answer.raw,
    }


def error_json(error: PurserError) -> dict[str, Any]:
    names = (
        "status code message type request_id doc_url details retry_after should_retry action "
        "connection_id increase_url review_url"
    )
    return {name: getattr(error, name) for name in names.split()}


class Runner:
    """Performs single operations. All its clients share one store unless a request names a folder."""

    def __init__(self, dev: dict[str, Any], with_coroutines: bool) -> None:
        self._dev = dev
        self._with_coroutines = with_coroutines
        self._store = MemoryTokenStore()
        self._clients: dict[str, AnyPurser] = {}

    def client(self, options: dict[str, Any]) -> AnyPurser:
        """Return the client with these options."""
        key = json.dumps(options, sort_keys=True)
        if key not in self._clients:
            self._clients[key] = self._make_client(options)
        return self._clients[key]

    def _make_client(self, options: dict[str, Any]) -> AnyPurser:
        app = self._dev["app"]
        tokens = FileTokenStore(options["store"]) if "store" in options else self._store
        make: Any = AsyncPurser if self._with_coroutines else Purser
        client: AnyPurser = make(
            options.get("base_url", self._dev["base_url"]),
            options.get("client_id", app["client_id"]),
            options.get("client_secret", app["client_secret"]),
            redirect_uri=options.get("redirect_uri", app["redirect_uri"]),
            tokens=tokens,
            max_retries=options.get("max_retries", 2),
            timeout=options.get("timeout_ms", 60_000) / 1000,
        )
        return client

    async def perform(self, op: str, client: AnyPurser, args: dict[str, Any]) -> Any:
        """Perform one operation and return its result as JSON."""
        group, _, name = op.rpartition(".")
        if op == "verify_webhook":
            tolerance_s = args.get("tolerance_s", 300)
            return verify_webhook(args["body"], args["headers"], args["secret"], tolerance_seconds=tolerance_s).raw
        if group == "connect":
            return await self._connect(name, client, args)
        if group == "device":
            return await self._device(name, client, args)
        if group == "tokens":
            return await self._tokens(name, client, args)
        if group == "connection":
            token = args.pop("token", None)
            connection_id = args.pop("connection_id", None)
            connection = client.with_token(token) if token is not None else client.connection(connection_id)
            return await self._connection(name, connection, args)
        return await self._manage(client, group, name, args)

    async def _connect(self, name: str, client: AnyPurser, args: dict[str, Any]) -> Any:
        if name == "start":
            attempt = await settle(client.connect.start(**args))
            return {"url": attempt.url, "state": attempt.state, "verifier": attempt.verifier}
        if name == "finish":
            connection = await settle(client.connect.finish(args["callback_url"], ConnectAttempt(**args["attempt"])))
            return {"connection_id": connection.connection_id, "allocation_mc": connection.allocation_mc}
        raise Unsupported

    async def _device(self, name: str, client: AnyPurser, args: dict[str, Any]) -> Any:
        if name == "start":
            return to_json(await settle(client.device.start(**args)))
        if name == "wait":
            connection = await settle(client.device.wait(DeviceAuthorization.parse(args["device"])))
            return {"connection_id": connection.connection_id}
        raise Unsupported

    async def _tokens(self, name: str, client: AnyPurser, args: dict[str, Any]) -> Any:
        if name == "save":
            return await settle(client.tokens.save(args["connection_id"], Tokens.from_dict(args["tokens"])))
        if name == "load":
            tokens = await settle(client.tokens.load(args["connection_id"]))
            return tokens.to_dict() if tokens is not None else None
        raise Unsupported

    async def _connection(self, name: str, connection: AnyConnection, args: dict[str, Any]) -> Any:
        options = args.get("options") or {}
        if name == "access_token":
            return {"access_token": await settle(connection.access_token())}
        if name == "call":
            return answer_json(await settle(connection.call(args["model"], args["body"], **options)))
        if name == "call_feature":
            return answer_json(await settle(connection.call_feature(args["slug"], args["body"], **options)))
        if name == "stream":
            stream = connection.stream(args["model"], args["body"], **options)
            return await self._read_stream(stream, args.get("break_after"))
        if name == "stream_feature":
            stream = connection.stream_feature(args["slug"], args["body"], **options)
            return await self._read_stream(stream, args.get("break_after"))
        if name == "estimate":
            return to_json(await settle(connection.estimate(args["model"], args["body"], **options)))
        if name == "events":
            return await self._read_events(connection, args)
        if name == "receipt":
            return to_json(await settle(connection.receipts.get(args["request_id"])))
        if name == "hold":
            return to_json(
                await settle(
                    connection.holds.create(amount_mc=args["amount_mc"], description=args["description"], **options)
                )
            )
        if name in ("get_hold", "capture_hold", "release_hold"):
            return to_json(await settle(getattr(connection.holds, name.removesuffix("_hold"))(**args)))
        if name == "create_child":
            key = args.pop("options", {}).get("idempotency_key")
            return to_json(await settle(connection.children.create(**args, idempotency_key=key)))
        if name in ("get_child", "end_child"):
            return to_json(await settle(getattr(connection.children, name.removesuffix("_child"))(**args)))
        if name == "list_children":
            limit = args.pop("max", None)
            return await self._read_list(connection.children.list(**args), limit)
        if name in ("get", "request_allocation", "revoke"):
            return to_json(await settle(getattr(connection, name)(**args)))
        raise Unsupported

    async def _read_stream(self, stream: Any, break_after: int | None) -> Any:
        text, chunks = "", 0
        async for chunk in each(stream):
            text, chunks = text + chunk.text, chunks + 1
            if chunks == break_after:
                break
        bill = None
        if break_after is None or chunks < break_after:
            bill = {**(await settle(stream.bill())).raw}
        return {"text": text, "chunks": chunks, "request_id": stream.request_id, "bill": bill}

    async def _read_events(self, connection: AnyConnection, args: dict[str, Any]) -> Any:
        events = []
        async for event in each(connection.events(after=args.get("after"))):
            events.append({name: value for name, value in event.raw.items() if value is not None})
            if event.type == args.get("until") or len(events) == args.get("limit"):
                break
        return {"events": events}

    async def _manage(self, client: AnyPurser, group: str, name: str, args: dict[str, Any]) -> Any:
        known = ("models", "apps", "features", "webhooks", "events", "test_accounts", "connections", "holds")
        method = getattr(getattr(client, group), name, None) if group in known else None
        if method is None:
            raise Unsupported
        limit = args.pop("max", None)
        if "type" in args:
            args["event_type"] = args.pop("type")
        if name not in ("list", "deliveries"):
            result = to_json(await settle(method(**args)))
            return {"ok": True} if (group, name) == ("webhooks", "delete") else result
        return await self._read_list(method(**args), limit)

    async def _read_list(self, rows: Any, limit: int | None) -> Any:
        items = []
        async for item in each(rows):
            items.append(to_json(item))
            if len(items) == limit:
                break
        return {"items": items}

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Perform a request and return its answer."""
        try:
            client = self.client(request.get("client") or {})
            result = await self.perform(request["op"], client, dict(request.get("args") or {}))
            return {"id": request["id"], "result": result}
        except PurserError as error:
            return {"id": request["id"], "error": error_json(error)}
        except Unsupported:
            return {"id": request["id"], "unsupported": True}
        except Exception:
            return {"id": request["id"], "crash": traceback.format_exc()}


async def serve(runner: Runner) -> None:
    """Answer requests until the end of the input."""
    for line in sys.stdin:
        print(json.dumps(await runner.answer(json.loads(line))), flush=True)


async def print_token(runner: Runner, folder: str, connection_id: str) -> None:
    """Print a fresh access token of a file store."""
    print(await settle(runner.client({"store": folder}).connection(connection_id).access_token()))


def main() -> None:
    with open(os.environ["PURSER_DEV_JSON"], encoding="utf-8") as file:
        dev = json.load(file)
    arguments = [argument for argument in sys.argv[1:] if argument != "--async"]
    runner = Runner(dev, with_coroutines="--async" in sys.argv[1:])
    asyncio.run(print_token(runner, *arguments[1:]) if arguments else serve(runner))


if __name__ == "__main__":
    main()
