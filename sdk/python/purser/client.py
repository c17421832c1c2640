"""The client with threads: ``Purser``. Generated from aio.py by generate.py."""

from __future__ import annotations

from collections.abc import Iterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Optional, TypeVar

import httpx

from . import _core as core
from ._core import ConnectAttempt, Core, Credential
from ._drivers import UNLIMITED, SyncDriver
from .resources import (
    AllocationRequest,
    Answer,
    App,
    Child,
    ConnectionState,
    Delivery,
    DeviceAuthorization,
    Estimate,
    Event,
    Feature,
    Hold,
    LiveEvent,
    Model,
    Receipt,
    Recovered,
    Revocation,
    TestAccount,
    WebhookEndpoint,
)
from .streams import Stream, read_events
from .tokens import MemoryTokenStore, TokenStore

T = TypeVar("T")
Body = Mapping[str, Any]


class Purser:
    """A client of one Purser service and one app. Threads may share it.

    base_url: the address for calls from servers, such as ``http://localhost:8080``.
    client_id, client_secret: the app's credentials. A public client has no secret, and then no
        management API.
    redirect_uri: where the consent screen returns to; one of the app's registered ones.
    tokens: where tokens are kept; in this process by default.
    http_client: for proxies and tests. You close it.
    max_retries: how often a request is repeated where that is safe.
    timeout: seconds without a byte of the response until a try ends.
    """

    def __init__(
        self,
        base_url: str,
        client_id: str,
        client_secret: str | None = None,
        *,
        redirect_uri: str | None = None,
        tokens: TokenStore | None = None,
        http_client: httpx.Client | None = None,
        max_retries: int = 2,
        timeout: float = 600.0,
    ) -> None:
        self._core = Core(base_url.rstrip("/"), client_id, client_secret, redirect_uri, max_retries)
        self._own_http = http_client is None
        store = tokens if tokens is not None else MemoryTokenStore()
        http = http_client or httpx.Client(limits=UNLIMITED)
        self._driver = SyncDriver(http, self._core.base_url, timeout, store)
        self.tokens = store
        self.connect = Connect(self)
        self.device = Device(self)
        self.models = Models(self)
        self.apps = Apps(self)
        self.features = Features(self)
        self.webhooks = Webhooks(self)
        self.events = Events(self)
        self.test_accounts = TestAccounts(self)
        self.connections = Connections(self)
        self.holds = Holds(self)

    def connection(self, connection_id: str) -> Connection:
        """Return a connection whose tokens are in the store. It sends no request."""
        return Connection(self, Credential(connection_id))

    def with_token(self, access_token: str) -> Connection:
        """Return the connection of a fixed access token, such as a child's, which is not refreshed."""
        return Connection(self, Credential(None, access_token))

    def close(self) -> None:
        """Close the connections to the service."""
        if self._own_http:
            self._driver.http.close()

    def __enter__(self) -> Purser:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def _run(self, operation: core.Operation[T]) -> T:
        return self._driver.run(operation)

    def _list(
        self,
        path: str,
        parse: Callable[[Body], T],
        *,
        with_client: bool = True,
        credential: Credential | None = None,
        follow: bool = True,
        **query: object,
    ) -> Iterator[T]:
        """Yield the rows of a list, page by page, or of its first page alone."""
        page: dict[str, str] | None = {name: str(value) for name, value in query.items() if value is not None}
        while page is not None:
            rows, page = self._run(
                self._core.page(path, page, parse, with_client=with_client, credential=credential)
            )
            page = page if rows and follow else None  # a list that grows always has a next page
            for row in rows:
                yield row


class Connection:
    """A user's grant to your app: calls models, and tells what is left.

    allocation_mc: what the user allowed, in micro-cents; set by ``connect.finish`` and ``device.wait``.
    """

    def __init__(self, purser: Purser, credential: Credential, allocation_mc: int | None = None) -> None:
        self._purser = purser
        self._credential = credential
        self.allocation_mc = allocation_mc
        self.receipts = Receipts(self)
        self.holds = ConnectionHolds(self)
        self.children = Children(self)

    @property
    def connection_id(self) -> str | None:
        """The connection's id. None with a fixed token until ``get`` was called."""
        return self._credential.connection_id

    @property
    def openai_base_url(self) -> str:
        """The base URL for clients of OpenAI's API."""
        return self._purser._core.base_url + "/openai/v1"

    @property
    def anthropic_base_url(self) -> str:
        """The base URL for clients of Anthropic's API."""
        return self._purser._core.base_url + "/anthropic"

    def access_token(self) -> str:
        """Return an access token that is valid for a minute at least. It refreshes if need be.

        Threads and processes that share the token store refresh once together.
        """
        return self._purser._run(self._credential.access_token(self._purser._core, None))

    def replace_access_token(self, rejected: str) -> str:
        """Return another access token than one that the service has refused with 401."""
        return self._purser._run(self._credential.access_token(self._purser._core, rejected))

    def call(
        self,
        model: str,
        body: Body,
        *,
        feature: str | None = None,
        idempotency_key: str | None = None,
        fit: bool | None = None,
    ) -> Answer:
        """Call a model and return its whole answer with the bill.

        body: a request in OpenAI's shape, ``messages`` and so on.
        feature: slug of the feature that the call is for.
        idempotency_key: a UUID. A repeat with the same key and body is not billed again; by default
            each call has a new one, which its retries share.
        fit: lower the output cap of a call that does not fit, or refuse it; None: as the app says.
        """
        return self._call(core.path_of("v1", "ai", model), body, feature, idempotency_key, fit)

    def call_feature(
        self, slug: str, body: Body, *, idempotency_key: str | None = None, fit: bool | None = None
    ) -> Answer:
        """Call the default model of a feature. The arguments are those of ``call``."""
        return self._call(core.path_of("v1", "ai", "features", slug), body, None, idempotency_key, fit)

    def _call(self, path: str, body: Body, feature: str | None, key: str | None, fit: bool | None) -> Answer:
        return core.parse_answer(self._send(core.call_request(path, body, feature, fit, key)))

    def stream(
        self,
        model: str,
        body: Body,
        *,
        feature: str | None = None,
        idempotency_key: str | None = None,
        fit: bool | None = None,
    ) -> Stream:
        """Call a model and return its answer as a stream. The arguments are those of ``call``."""
        return self._stream(core.path_of("v1", "ai", model), body, feature, idempotency_key, fit)

    def stream_feature(
        self, slug: str, body: Body, *, idempotency_key: str | None = None, fit: bool | None = None
    ) -> Stream:
        """Call the default model of a feature and return its answer as a stream."""
        return self._stream(core.path_of("v1", "ai", "features", slug), body, None, idempotency_key, fit)

    def _stream(self, path: str, body: Body, feature: str | None, key: str | None, fit: bool | None) -> Stream:
        request = core.call_request(path, body, feature, fit, key, streamed=True)
        return Stream(self._purser._core, self._purser._driver, self._credential, request)

    def estimate(
        self,
        model: str,
        body: Body,
        *,
        feature: str | None = None,
        fit: bool | None = None,
        shape: str | None = None,
    ) -> Estimate:
        """Ask what a call would cost and whether it would be admitted now. Nothing is held or charged.

        shape: whose request the body is: chat (the default), responses or messages.
        """
        return Estimate.parse(self._send(core.estimate_request(model, body, feature, fit, shape)).json())

    def get(self) -> ConnectionState:
        """Read the connection: its allocation, what is consumed and held, and what remains."""
        state = ConnectionState.parse(self._send(core.Request("GET", "/v1/connection")).json())
        self._credential.connection_id = state.id
        return state

    def events(self, *, after: str | None = None) -> Iterator[LiveEvent]:
        """Yield what happens to the connection while it happens, until the user ends it.

        It reconnects by itself, and yields each charge once. after: the ``event_id`` to go on from.
        """
        return read_events(self._purser._core, self._purser._driver, self._credential, after)

    def request_allocation(self, *, amount_mc: int, reason: str | None = None) -> AllocationRequest:
        """Request a higher spend cap. Send the user to ``approval_url``.

        amount_mc: the whole new cap in micro-cents, not the difference. reason: a line that the user reads.
        """
        body: dict[str, Any] = {"target_allocation_mc": amount_mc}
        if reason is not None:
            body["reason"] = reason
        path = core.path_of("v1", "connections", self._require_id(), "allocation-requests")
        # A repeat supersedes the request before it, so that it has no second effect.
        return self._purser._run(
            self._purser._core.manage("POST", path, AllocationRequest.parse, body, repeatable=True)
        )

    def revoke(self) -> Revocation:
        """End the connection. The unspent money returns to the user. This can't be undone."""
        return self._purser.connections.revoke(self._require_id())

    def _require_id(self) -> str:
        return self._credential.connection_id or self.get().id

    def _send(self, request: core.Request) -> core.Reply:
        return self._purser._run(self._purser._core.send_as(self._credential, request))


class ConnectionHolds:
    """Money held for your app's own work. The app needs ``own_work``, and its user must have connected since."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(
        self,
        *,
        amount_mc: int,
        description: str,
        feature: str | None = None,
        idempotency_key: str | None = None,
    ) -> Hold:
        """Hold an amount. Capture or release it within ten minutes.

        amount_mc: the most that the work may cost. description: what the user pays for; it stands
            on their receipt.
        idempotency_key: a UUID. A hold with the key of an earlier one is that one.
        """
        return self._send(core.hold_request(amount_mc, description, feature, idempotency_key))

    def get(self, hold_id: str) -> Hold:
        """Read a hold."""
        return self._send(core.Request("GET", core.path_of("v1", "holds", hold_id)))

    def capture(self, hold_id: str, *, amount_mc: int | None = None) -> Hold:
        """Charge what the work came to, at most what is held, and give the rest back. None is all of it."""
        return self._send(core.capture_request(hold_id, amount_mc))

    def release(self, hold_id: str) -> Hold:
        """Give all of a hold back, and charge nothing."""
        return self._send(core.release_request(hold_id))

    def _send(self, request: core.Request) -> Hold:
        return Hold.parse(self._connection._send(request).json())


class Children:
    """Parts of a connection's budget that are passed on, each with a token of its own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(
        self,
        *,
        amount_mc: int,
        expires_in: int | None = None,
        label: str | None = None,
        features: Sequence[str] = (),
        models: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> Child:
        """Make a child. ``with_token`` makes a connection of its ``token``, which no other answer has.

        amount_mc: at most what remains of the connection; it leaves what the connection can spend at once.
        expires_in: seconds until the child ends, an hour by default. label: who or what spends it; the
            user reads it.
        features, models: the only ones that its calls may name; all that the parent may by default.
        idempotency_key: a UUID. A request with the key of an earlier one returns that child.
        """
        return self._send(core.child_request(amount_mc, expires_in, label, features, models, idempotency_key))

    def list(self, *, page_size: int | None = None) -> Iterator[Child]:
        """Yield the children and theirs, newest first, ended ones too."""
        connection = self._connection
        return connection._purser._list(
            "/v1/connection/children", Child.parse, credential=connection._credential, limit=page_size
        )

    def get(self, child_id: str) -> Child:
        """Read a child."""
        return self._send(core.Request("GET", core.path_of("v1", "connection", "children", child_id)))

    def end(self, child_id: str) -> Child:
        """End a child and all below it. What is neither spent nor held comes back."""
        return self._send(core.end_child_request(child_id))

    def _send(self, request: core.Request) -> Child:
        return Child.parse(self._connection._send(request).json())


class Holds:
    """Holds of your app's own work, also of connections that were revoked since: those can still be captured."""

    def __init__(self, purser: Purser) -> None:
        self._purser = purser

    def get(self, hold_id: str) -> Hold:
        """Read a hold."""
        return self._send(core.Request("GET", core.path_of("v1", "holds", hold_id)))

    def capture(self, hold_id: str, *, amount_mc: int | None = None) -> Hold:
        """Charge what the work came to, at most what is held, and give the rest back. None is all of it."""
        return self._send(core.capture_request(hold_id, amount_mc))

    def release(self, hold_id: str) -> Hold:
        """Give all of a hold back, and charge nothing."""
        return self._send(core.release_request(hold_id))

    def _send(self, request: core.Request) -> Hold:
        send = self._purser._core.send(self._purser._core.with_client(request))
        return Hold.parse(self._purser._run(send).json())


class Receipts:
    """The receipts of a connection's calls."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, request_id: str) -> Receipt:
        """Read what a call cost and why, or why it was refused."""
        request = core.Request("GET", core.path_of("v1", "requests", request_id))
        return Receipt.parse(self._connection._send(request).json())


class Connect:
    """Connects a user by the redirect of a browser (authorization code with PKCE)."""

    def __init__(self, purser: Purser) -> None:
        self._purser = purser

    def start(
        self,
        *,
        allocation_mc: int | None = None,
        features: Sequence[str] = (),
        redirect_uri: str | None = None,
    ) -> ConnectAttempt:
        """Make an attempt. Send the browser to its ``url``, and keep it in the user's session.

        allocation_mc: the spend cap that the consent screen proposes, in micro-cents.
        features: slugs of the features that it shows; all of them by default.
        """
        return self._purser._run(self._purser._core.start_connect(allocation_mc, features, redirect_uri))

    def finish(
        self, callback_url: str, attempt: ConnectAttempt, *, redirect_uri: str | None = None
    ) -> Connection:
        """Finish an attempt with the address at which the browser came back. It saves the tokens.

        Raises DeclinedError if the user declined, and ConnectAgainError if the callback is not this attempt's.
        """
        operation = self._purser._core.finish_connect(callback_url, attempt, redirect_uri)
        tokens, allocation_mc = self._purser._run(operation)
        return Connection(self._purser, Credential(tokens.connection_id, known=tokens), allocation_mc)


class Device:
    """Connects a user of a command line or a device without a browser (RFC 8628)."""

    def __init__(self, purser: Purser) -> None:
        self._purser = purser

    def start(self, *, allocation_mc: int | None = None, features: Sequence[str] = ()) -> DeviceAuthorization:
        """Ask for codes. Show ``user_code`` and ``verification_uri`` to the user."""
        return self._purser._run(self._purser._core.start_device(allocation_mc, features))

    def wait(self, device: DeviceAuthorization) -> Connection:
        """Wait until the user has decided, and save the tokens.

        Raises DeclinedError if the user declined, and ConnectAgainError when the code has expired.
        """
        tokens, allocation_mc = self._purser._run(self._purser._core.wait_for_device(device))
        return Connection(self._purser, Credential(tokens.connection_id, known=tokens), allocation_mc)


class Models:
    """The models on offer."""

    def __init__(self, purser: Purser) -> None:
        self._purser = purser

    def list(self) -> Iterator[Model]:
        """Yield the models on offer. Needs no credentials."""
        return self._purser._list("/v1/models", Model.parse, with_client=False)


class Apps:
    """Your app's settings."""

    def __init__(self, purser: Purser) -> None:
        self._purser = purser

    def get(self, app_id: str) -> App:
        """Read your app."""
        return self._purser._run(self._purser._core.manage("GET", core.path_of("v1", "apps", app_id), App.parse))

    def update(self, app_id: str, changes: Body) -> App:
        """Change your app. ``changes`` has only what changes; None clears an optional member."""
        path = core.path_of("v1", "apps", app_id)
        return self._purser._run(self._purser._core.manage("PATCH", path, App.parse, changes))


class Features:
    """Your app's features."""

    def __init__(self, purser: Purser) -> None:
        self._purser = purser

    def list(self, app_id: str, *, page_size: int | None = None) -> Iterator[Feature]:
        """Yield your features, newest first. page_size: rows of a request, 1 to 100."""
        return self._purser._list(core.path_of("v1", "apps", app_id, "features"), Feature.parse, limit=page_size)

    def create(self, app_id: str, feature: Body) -> Feature:
        """Register a feature: ``slug``, ``display_name``, ``description`` and optional members."""
        path = core.path_of("v1", "apps", app_id, "features")
        return self._purser._run(self._purser._core.manage("POST", path, Feature.parse, feature))

    def update(self, app_id: str, slug: str, changes: Body) -> Feature:
        """Change a feature. ``changes`` has only what changes; None clears an optional member."""
        path = core.path_of("v1", "apps", app_id, "features", slug)
        return self._purser._run(self._purser._core.manage("PATCH", path, Feature.parse, changes))


class Webhooks:
    """Your app's webhook endpoints."""

    def __init__(self, purser: Purser) -> None:
        self._purser = purser

    def list(self, app_id: str, *, page_size: int | None = None) -> Iterator[WebhookEndpoint]:
        """Yield your endpoints, newest first. page_size: rows of a request, 1 to 100."""
        path = core.path_of("v1", "apps", app_id, "webhooks")
        return self._purser._list(path, WebhookEndpoint.parse, limit=page_size)

    def create(self, app_id: str, webhook: Body) -> WebhookEndpoint:
        """Add an endpoint: ``url`` and, unless it gets all events, ``events``. The answer has its secret, this once."""
        path = core.path_of("v1", "apps", app_id, "webhooks")
        return self._purser._run(self._purser._core.manage("POST", path, WebhookEndpoint.parse, webhook))

    def update(self, app_id: str, webhook_id: str, changes: Body) -> WebhookEndpoint:
        """Change an endpoint. ``changes`` has only what changes."""
        path = core.path_of("v1", "apps", app_id, "webhooks", webhook_id)
        return self._purser._run(self._purser._core.manage("PATCH", path, WebhookEndpoint.parse, changes))

    def delete(self, app_id: str, webhook_id: str) -> None:
        """Delete an endpoint with its history and what waits for it."""
        path = core.path_of("v1", "apps", app_id, "webhooks", webhook_id)
        self._purser._run(self._purser._core.manage("DELETE", path, core.parse_nothing))

    def rotate_secret(self, app_id: str, webhook_id: str) -> WebhookEndpoint:
        """Replace the secret, which stops working immediately. The answer has the new one, this once."""
        path = core.path_of("v1", "apps", app_id, "webhooks", webhook_id, "rotate-secret")
        return self._purser._run(self._purser._core.manage("POST", path, WebhookEndpoint.parse))

    def test(self, app_id: str, webhook_id: str, event_type: str) -> Delivery:
        """Send a sample event to one endpoint."""
        path = core.path_of("v1", "apps", app_id, "webhooks", webhook_id, "test")
        return self._purser._run(self._purser._core.manage("POST", path, Delivery.parse, {"type": event_type}))

    def deliveries(self, app_id: str, webhook_id: str) -> Iterator[Delivery]:
        """Yield the latest 50 deliveries, newest first."""
        path = core.path_of("v1", "apps", app_id, "webhooks", webhook_id, "deliveries")
        return self._purser._list(path, Delivery.parse)

    def list_deliveries(
        self,
        app_id: str,
        webhook_id: str,
        *,
        status: str | None = None,
        type: str | None = None,
        since: str | None = None,
        page_size: int = 100,
    ) -> Iterator[Delivery]:
        """Yield the deliveries that are kept, newest first. since: an RFC 3339 time from which on they were queued."""
        path = core.path_of("v1", "apps", app_id, "webhooks", webhook_id, "deliveries")
        return self._purser._list(path, Delivery.parse, limit=page_size, status=status, type=type, since=since)

    def recover(self, app_id: str, webhook_id: str, since: str) -> Recovered:
        """Send again what has failed or waits for a retry since an RFC 3339 time, up to 1,000 events."""
        path = core.path_of("v1", "apps", app_id, "webhooks", webhook_id, "recover")
        return self._purser._run(self._purser._core.manage("POST", path, Recovered.parse, {"since": since}))

    def redeliver(self, app_id: str, webhook_id: str, delivery_id: str) -> Delivery:
        """Send a delivery again now, with all its retries."""
        path = core.path_of("v1", "apps", app_id, "webhooks", webhook_id, "deliveries", delivery_id, "redeliver")
        return self._purser._run(self._purser._core.manage("POST", path, Delivery.parse))


class Events:
    """Your app's events."""

    def __init__(self, purser: Purser) -> None:
        self._purser = purser

    def list(self, app_id: str, *, after: str | None = None, page_size: int | None = None) -> Iterator[Event]:
        """Yield events: with ``after`` all later ones, oldest first; else the latest, newest first.

        An error with status 400 says that events may be missed, such as after a restore of the service: read the
        connections again, and go on with the latest event.
        """
        path = core.path_of("v1", "apps", app_id, "events")
        follow = after is not None  # the page after the latest events has those to come
        return self._purser._list(path, Event.read, follow=follow, after=after, limit=page_size)

    def trigger(self, app_id: str, event_type: str) -> Event:
        """Send a sample event to all your endpoints."""
        path = core.path_of("v1", "apps", app_id, "events")
        return self._purser._run(self._purser._core.manage("POST", path, Event.read, {"type": event_type}))


class TestAccounts:
    """Your test accounts, whose money is fake."""

    __test__ = False  # no test case, whatever its name

    def __init__(self, purser: Purser) -> None:
        self._purser = purser

    def list(self, app_id: str) -> Iterator[TestAccount]:
        """Yield your test accounts, oldest first."""
        return self._purser._list(core.path_of("v1", "apps", app_id, "test-accounts"), TestAccount.parse)

    def create(self, app_id: str) -> TestAccount:
        """Create a test account. The answer has its password, this once."""
        path = core.path_of("v1", "apps", app_id, "test-accounts")
        return self._purser._run(self._purser._core.manage("POST", path, TestAccount.parse))

    def fund(self, app_id: str, account_id: str, *, amount_mc: int) -> TestAccount:
        """Add fake micro-cents to the balance. A repeated request adds them again."""
        path = core.path_of("v1", "apps", app_id, "test-accounts", account_id, "fund")
        body = {"amount_mc": amount_mc}
        return self._purser._run(self._purser._core.manage("POST", path, TestAccount.parse, body))

    def delete(self, app_id: str, account_id: str) -> None:
        """Delete a test account and revoke its connections."""
        path = core.path_of("v1", "apps", app_id, "test-accounts", account_id)
        self._purser._run(self._purser._core.manage("DELETE", path, core.parse_nothing))


class Connections:
    """All connections of your app, by its credentials."""

    def __init__(self, purser: Purser) -> None:
        self._purser = purser

    def list(self, *, page_size: int | None = None) -> Iterator[ConnectionState]:
        """Yield the connections, newest first. page_size: rows of a request, 1 to 100."""
        return self._purser._list("/v1/connections", ConnectionState.parse, limit=page_size)

    def get(self, connection_id: str) -> ConnectionState:
        """Read a connection with its newest ledger entries."""
        path = core.path_of("v1", "connections", connection_id)
        return self._purser._run(self._purser._core.manage("GET", path, ConnectionState.parse))

    def revoke(self, connection_id: str) -> Revocation:
        """End a connection. The unspent money returns to the user. This can't be undone."""
        path = core.path_of("v1", "connections", connection_id, "revoke")
        return self._purser._run(self._purser._core.manage("POST", path, Revocation.parse, repeatable=True))
