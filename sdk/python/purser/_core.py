"""What both clients do, without I/O.

An operation is a generator. It yields effects (send this request, wait so long, load these tokens),
gets their results, and returns its own. ``_drivers.py`` performs the effects, with threads or with
coroutines. So each rule about retries, refreshes and pages is written once.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import json
import random
import re
import secrets
import time
import urllib.parse
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, Union

import httpx

from ._actions import CODES, choose_action, choose_class, sdk_error
from ._sse import EventParser
from .errors import NetworkError, PurserError
from .resources import Answer, Bill, Chunk, DeviceAuthorization, LiveEvent
from .tokens import Tokens

T = TypeVar("T")
Operation = Generator["Effect", Any, T]
Body = Mapping[str, Any]

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
MAX_WAIT_S = 60  # the longest Retry-After that is waited for
LEAST_WAIT_S = 1.0  # what a Retry-After of 0 says
MAX_POLL_S = 30  # between two polls of a device while the service can't be reached
DEVICE_CODE_S = 600  # how long a device code lives if the service does not say
# Time limits of a request that uses up a token or a code. What the service has done, it answers again to the same key:
# a first try whose answer does not come is given up soon.
EXCHANGE_LIMIT_S = 15.0  # with all tries and waits
FIRST_TRY_LIMIT_S = 5.0  # where another one may follow


@dataclass(frozen=True)
class Request:
    """A request to the service. ``path`` is below base_url, ``content`` the same bytes in every try.

    repeatable: whether a repeat has no second effect, because of the method or an Idempotency-Key.
    streamed: whether the response's body is left unread.
    limit_s: for all tries and the waits between them; None if there is no such limit.
    timeout_s: of one try, if that is shorter than the client's.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    content: bytes | None = None
    repeatable: bool = True
    streamed: bool = False
    with_client_credentials: bool = False
    limit_s: float | None = None
    timeout_s: float | None = None

    def with_header(self, name: str, value: str) -> Request:
        """Return the request with one more header."""
        return replace(self, headers=(*self.headers, (name, value)))


@dataclass(frozen=True)
class Reply:
    """A response. ``stream`` is the open response of a streamed request that succeeded."""

    status: int
    headers: httpx.Headers
    body: bytes = b""
    stream: httpx.Response | None = field(default=None, repr=False)

    def json(self) -> Any:
        """Return the body's value."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise PurserError(
                "the response is not JSON; is base_url the address of a Purser service?",
                status=self.status,
                code="invalid_response",
                action="retry",
                request_id=self.headers.get("x-request-id"),
            ) from None


@dataclass(frozen=True)
class Send:
    """Send a request; its result is a Reply, whatever the status. Raises NetworkError."""

    request: Request


@dataclass(frozen=True)
class Sleep:
    """Wait for some seconds."""

    seconds: float


@dataclass(frozen=True)
class LoadTokens:
    """Read tokens of the store; its result is Tokens or None."""

    connection_id: str


@dataclass(frozen=True)
class SaveTokens:
    """Write tokens to the store."""

    tokens: Tokens


@dataclass(frozen=True)
class RunToEnd:
    """Perform an operation that uses up a code, even if its caller is cancelled: what the service does must be stored."""

    operation: Operation[Any]


@dataclass(frozen=True)
class Locked:
    """Perform an operation while the store's lock of a connection is held; its result is the operation's."""

    connection_id: str
    operation: Operation[Any]


Effect = Union[Send, Sleep, LoadTokens, SaveTokens, RunToEnd, Locked]


@dataclass(frozen=True)
class ConnectAttempt:
    """What connects a callback to the redirect before it. Keep ``state`` and ``verifier`` in the user's session.

    Send the browser to ``url``. ``verifier`` is a secret of your server.
    """

    url: str
    state: str
    verifier: str = field(repr=False)


@dataclass(frozen=True)
class Metadata:
    """The authorization server's metadata (RFC 8414), as far as it is used."""

    issuer: str
    authorization_endpoint: str


@dataclass
class Core:
    """The settings of a client, and its operations."""

    base_url: str
    client_id: str
    client_secret: str | None
    redirect_uri: str | None
    max_retries: int
    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random
    metadata: Metadata | None = None
    # New tokens that the store could not save, by connection, with the used refresh token that the store still has.
    unsaved: dict[str, tuple[str, Tokens]] = field(default_factory=dict, repr=False)

    # Requests

    def send(self, request: Request) -> Operation[Reply]:
        """Send a request, again where that is safe and helps. Raises PurserError."""
        tries, began = 0, self.monotonic()
        while True:
            try:
                reply: Reply = yield Send(self.limit_try(request, tries, began))
                if 200 <= reply.status < 300:
                    return reply
                error = parse_error(reply, request)
            except NetworkError as failure:
                failure.should_retry = request.repeatable
                error = failure
            if not error.should_retry or tries >= self.max_retries:
                raise error
            wait_s = self.backoff(tries) if error.retry_after is None else error.retry_after
            if request.limit_s is not None and self.monotonic() - began + wait_s >= request.limit_s:
                raise error
            yield Sleep(wait_s)
            tries += 1

    def limit_try(self, request: Request, tries: int, began: float) -> Request:
        """Return the request with the time limit of its next try."""
        if request.limit_s is None:
            return request
        left_s = max(request.limit_s - (self.monotonic() - began), 0.1)
        return replace(request, timeout_s=min(left_s, FIRST_TRY_LIMIT_S) if tries < min(self.max_retries, 1) else left_s)

    def backoff(self, tries: int) -> float:
        """Return the seconds to wait after so many retries: 0.5, 1, 2, … up to 8, by 25 % more or less."""
        return float(min(0.5 * 2 ** min(tries, 10), 8.0) * (0.75 + 0.5 * self.jitter()))

    def with_client(self, request: Request) -> Request:
        """Return the request with the app's credentials."""
        if self.client_secret is None:
            raise PurserError(
                "this request needs a client_secret",
                code="unauthorized",
                type="sdk",
                action="fix_request",
            )
        pair = f"{urllib.parse.quote(self.client_id, safe='')}:{urllib.parse.quote(self.client_secret, safe='')}"
        basic = base64.b64encode(pair.encode()).decode()
        return replace(request.with_header("Authorization", "Basic " + basic), with_client_credentials=True)

    def manage(
        self,
        method: str,
        path: str,
        parse: Callable[[Body], T],
        body: Body | None = None,
        *,
        repeatable: bool | None = None,
    ) -> Operation[T]:
        """Send a request of the management API and parse its object."""
        if repeatable is None:
            repeatable = method != "POST"
        request = json_request(method, path, body, repeatable=repeatable)
        reply = yield from self.send(self.with_client(request))
        return parse(reply.json() if reply.body else {})

    def page(
        self,
        path: str,
        query: Mapping[str, str],
        parse: Callable[[Body], T],
        *,
        with_client: bool = True,
        credential: Credential | None = None,
    ) -> Operation[tuple[list[T], dict[str, str] | None]]:
        """Read one page of a list. Its result is the rows and the query of the next page, or None.

        A link never changes the host or the path, because the request carries credentials.
        """
        request = Request("GET", path, tuple(query.items()))
        if credential is not None:
            reply = yield from self.send_as(credential, request)
        else:
            reply = yield from self.send(self.with_client(request) if with_client else request)
        return [parse(row) for row in reply.json()], parse_next(reply.headers.get("link", ""))

    # Connecting a user

    def discover(self) -> Operation[Metadata]:
        """Read the authorization server's metadata, once a client."""
        if self.metadata is None:
            reply = yield from self.send(Request("GET", "/.well-known/oauth-authorization-server"))
            values = reply.json()
            self.metadata = Metadata(values["issuer"], values["authorization_endpoint"])
        return self.metadata

    def start_connect(
        self, allocation_mc: int | None, features: Sequence[str], redirect_uri: str | None
    ) -> Operation[ConnectAttempt]:
        """Make the address of the consent screen (RFC 6749 §4.1.1, RFC 7636)."""
        metadata = yield from self.discover()
        verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.require_redirect_uri(redirect_uri),
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **consent_parameters(allocation_mc, features),
        }
        return ConnectAttempt(metadata.authorization_endpoint + "?" + urllib.parse.urlencode(query), state, verifier)

    def finish_connect(
        self, callback_url: str, attempt: ConnectAttempt, redirect_uri: str | None
    ) -> Operation[tuple[Tokens, int | None]]:
        """Check a callback, exchange its code and save the tokens. Its result has the allocation as well."""
        parameters = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(callback_url).query))
        if not secrets.compare_digest(parameters.get("state", "").encode(), attempt.state.encode()):
            raise sdk_error("state_mismatch", "the callback does not belong to this attempt to connect")
        metadata = yield from self.discover()
        if parameters.get("iss") != metadata.issuer:  # RFC 9207
            raise sdk_error("issuer_mismatch", "the callback comes from another authorization server")
        if "error" in parameters:
            raise callback_error(parameters)
        form = {
            "grant_type": "authorization_code",
            "code": parameters.get("code", ""),
            "redirect_uri": self.require_redirect_uri(redirect_uri),
            "code_verifier": attempt.verifier,
        }
        return (yield from self.exchange(form, str(uuid.uuid4())))

    def require_redirect_uri(self, redirect_uri: str | None) -> str:
        """Return the redirect URI of this call, or else the client's."""
        chosen = redirect_uri or self.redirect_uri
        if not chosen:
            raise PurserError("redirect_uri is required, here or of the client", code="invalid_request", type="sdk")
        return chosen

    def exchange(self, form: Mapping[str, str], key: str) -> Operation[tuple[Tokens, int | None]]:
        """Exchange a code for tokens and save them."""
        exchanged: tuple[Tokens, int | None] = yield RunToEnd(self.exchange_and_save(form, key))
        return exchanged

    def exchange_and_save(self, form: Mapping[str, str], key: str) -> Operation[tuple[Tokens, int | None]]:
        """As ``exchange``."""
        now = self.now()
        reply = yield from self.send(self.token_request(form, key))
        values = reply.json()
        tokens = parse_tokens(values, "", now)
        yield SaveTokens(tokens)
        return tokens, values.get("allocation_mc")

    def token_request(self, form: Mapping[str, str], key: str | None, path: str = "/oauth/token") -> Request:
        """Return a request with a form, by the app's credentials or, for a public client, by its id."""
        fields = dict(form)
        if self.client_secret is None:
            fields["client_id"] = self.client_id
        request = Request(
            "POST",
            path,
            headers=(("Content-Type", "application/x-www-form-urlencoded"),),
            content=urllib.parse.urlencode(fields).encode(),
        )
        if key is not None:
            request = replace(request.with_header("Idempotency-Key", key), limit_s=EXCHANGE_LIMIT_S)
        return request if self.client_secret is None else self.with_client(request)

    def start_device(self, allocation_mc: int | None, features: Sequence[str]) -> Operation[DeviceAuthorization]:
        """Ask for the codes of a device (RFC 8628 §3.1)."""
        form = consent_parameters(allocation_mc, features)
        reply = yield from self.send(self.token_request(form, None, "/oauth/device_authorization"))
        return DeviceAuthorization.parse(reply.json())

    def wait_for_device(self, device: DeviceAuthorization) -> Operation[tuple[Tokens, int | None]]:
        """Poll until the user has decided (RFC 8628 §3.4), or the code has expired.

        While the service can't be reached it polls on, more slowly. All polls have one key, so that tokens whose
        answer was lost come again.
        """
        interval, key = float(device.interval or 5), str(uuid.uuid4())
        form = {"grant_type": DEVICE_GRANT, "device_code": device.device_code}
        end = self.monotonic() + (device.expires_in or DEVICE_CODE_S)
        while True:
            try:
                return (yield from self.exchange(form, key))
            except PurserError as error:
                if error.code == "slow_down":
                    interval += 5
                elif is_temporary(error):
                    interval = min(2 * interval, MAX_POLL_S)
                elif error.code != "authorization_pending":
                    raise
                left_s = end - self.monotonic()
                if left_s <= 0:
                    raise sdk_error("expired_token", "the code has expired", cause=error) from error
            yield Sleep(min(interval, left_s))

    # Tokens

    def fresh_tokens(self, connection_id: str, known: Tokens | None, rejected: str | None) -> Operation[Tokens]:
        """Return tokens that are valid for a minute. ``rejected`` is an access token that the service refused."""
        tokens: Tokens | None = known if known is not None else (yield LoadTokens(connection_id))
        if tokens is not None and self.is_good(tokens, rejected):
            return tokens
        begun: str | None = None  # the refresh token whose key is saved
        while True:
            step: Tokens | str = yield Locked(connection_id, self.refresh(connection_id, rejected, begun))
            if isinstance(step, Tokens):
                return step
            begun = step

    def refresh(self, connection_id: str, rejected: str | None, begun: str | None) -> Operation[Tokens | str]:
        """Do the next step of a refresh under the store's lock: save its key, or send it.

        Return the fresh tokens. If another step follows, return the refresh token whose key is saved, or "". The lock
        may be a transaction, which a crash rolls back, so that the key is saved under a lock of its own. A store that
        can't save it could not save the new tokens either.
        """
        tokens: Tokens | None = yield LoadTokens(connection_id)
        if tokens is None:
            raise sdk_error("not_connected", "the token store has no tokens of this connection")
        tokens = yield from self.newest_tokens(connection_id, tokens)
        if self.is_good(tokens, rejected):
            return tokens  # another thread or process was first
        own = tokens.refresh_token == begun
        if tokens.refresh_key is None and not own:
            yield SaveTokens(replace(tokens, refresh_key=str(uuid.uuid4())))
            self.unsaved.pop(connection_id, None)
            return tokens.refresh_token
        tokens = yield from self.exchange_refresh_token(connection_id, tokens)
        return tokens if own or self.is_good(tokens, rejected) else ""  # a repeated answer may be old

    def is_good(self, tokens: Tokens, rejected: str | None) -> bool:
        """Report whether the access token is fresh and was not refused."""
        return tokens.access_token != rejected and tokens.is_fresh(self.now())

    def newest_tokens(self, connection_id: str, stored: Tokens) -> Operation[Tokens]:
        """Return newer tokens that the store could not save, and save them again. Else return the stored ones."""
        replaced, unsaved = self.unsaved.get(connection_id, ("", stored))
        if replaced != stored.refresh_token:  # there are none, or the user connected again
            self.unsaved.pop(connection_id, None)
            return stored
        try:
            yield SaveTokens(unsaved)
        except Exception:
            return unsaved
        self.unsaved.pop(connection_id, None)
        return unsaved

    def exchange_refresh_token(self, connection_id: str, tokens: Tokens) -> Operation[Tokens]:
        """Replace tokens, under the store's lock."""
        key = tokens.refresh_key
        if key is None:  # the store has dropped it
            key = derive_refresh_key(tokens.refresh_token)
        now = self.now()
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token}
        reply = yield from self.send(self.token_request(form, key))
        renewed = parse_tokens(reply.json(), connection_id, now)
        try:
            yield SaveTokens(renewed)
        except Exception:
            # The old token no longer works. The new one stays in memory, and is saved before it is used.
            self.unsaved[connection_id] = (tokens.refresh_token, renewed)
        return renewed

    # Live events

    def open_events(self, credential: Credential, after: str | None) -> Operation[Reply]:
        """Open the stream of live events."""
        request = Request("GET", "/v1/connection/events", streamed=True)
        if after is not None:
            request = request.with_header("Last-Event-ID", after)
        return (yield from self.send_as(credential, request))

    def send_as(self, credential: Credential, request: Request) -> Operation[Reply]:
        """Send a request with an access token. After a 401, refresh the token once and repeat."""
        token = yield from credential.access_token(self, None)
        try:
            return (yield from self.send(request.with_header("Authorization", "Bearer " + token)))
        except PurserError as error:
            if error.status != 401 or not credential.can_refresh:
                raise
        token = yield from credential.access_token(self, token)
        return (yield from self.send(request.with_header("Authorization", "Bearer " + token)))


@dataclass
class Credential:
    """The access token of one connection: a fixed one, or that of the store."""

    connection_id: str | None
    fixed: str | None = field(default=None, repr=False)
    known: Tokens | None = field(default=None, repr=False)  # the last ones read of the store

    @property
    def can_refresh(self) -> bool:
        """Whether the token comes from the store."""
        return self.fixed is None

    def access_token(self, core: Core, rejected: str | None) -> Operation[str]:
        """Return a fresh access token other than ``rejected``."""
        if self.fixed is not None:
            return self.fixed
        if self.connection_id is None:
            raise ValueError("a connection needs an id or a token")
        self.known = yield from core.fresh_tokens(self.connection_id, self.known, rejected)
        return self.known.access_token


# Building requests


def json_request(method: str, path: str, body: Body | None, *, repeatable: bool = True) -> Request:
    """Return a request with a JSON body, or without a body."""
    if body is None:
        return Request(method, path, repeatable=repeatable)
    headers = (("Content-Type", "application/json"),)
    return Request(method, path, headers=headers, content=json.dumps(body).encode(), repeatable=repeatable)


def call_request(
    path: str,
    body: Body,
    feature: str | None,
    fit: bool | None,
    key: str | None,
    *,
    streamed: bool = False,
) -> Request:
    """Return the request of a call. Without a key it gets a new one, which all its tries share."""
    if streamed:
        body = {**body, "stream": True}
    request = json_request("POST", path, body).with_header("Idempotency-Key", key or str(uuid.uuid4()))
    return replace(call_options(request, feature, fit), streamed=streamed)


def call_options(request: Request, feature: str | None, fit: bool | None) -> Request:
    """Return the request with the headers of a call's options."""
    if feature is not None:
        request = request.with_header("X-Svc-Feature", feature)
    if fit is not None:
        request = request.with_header("X-Svc-Fit", "1" if fit else "0")
    return request


def estimate_request(model: str, body: Body, feature: str | None, fit: bool | None, shape: str | None) -> Request:
    """Return the request of an estimate."""
    request = json_request("POST", "/v1/estimate", {**body, "model": model})
    if shape is not None:
        request = replace(request, query=(("shape", shape),))
    return call_options(request, feature, fit)


def hold_request(amount_mc: int, description: str, feature: str | None, key: str | None) -> Request:
    """Return the request of a hold. Without a key it gets a new one, which all its tries share."""
    request = json_request("POST", "/v1/holds", {"amount_mc": amount_mc, "description": description})
    return call_options(request.with_header("Idempotency-Key", key or str(uuid.uuid4())), feature, None)


def capture_request(hold_id: str, amount_mc: int | None) -> Request:
    """Return the request of a capture. The same capture answers the same, so that it may be repeated."""
    body = None if amount_mc is None else {"amount_mc": amount_mc}
    return json_request("POST", path_of("v1", "holds", hold_id, "capture"), body)


def release_request(hold_id: str) -> Request:
    """Return the request of a release."""
    return json_request("POST", path_of("v1", "holds", hold_id, "release"), None)


def child_request(
    amount_mc: int,
    expires_in: int | None,
    label: str | None,
    features: Sequence[str],
    models: Sequence[str],
    key: str | None,
) -> Request:
    """Return the request of a child. Without a key it gets a new one, which all its tries share."""
    body: dict[str, Any] = {"amount_mc": amount_mc}
    if expires_in is not None:
        body["expires_in"] = expires_in
    if label is not None:
        body["label"] = label
    if features:
        body["features"] = list(features)
    if models:
        body["models"] = list(models)
    request = json_request("POST", "/v1/connection/children", body)
    return request.with_header("Idempotency-Key", key or str(uuid.uuid4()))


def end_child_request(child_id: str) -> Request:
    """Return the request that ends a child. The same end answers the same, so that it may be repeated."""
    return json_request("POST", path_of("v1", "connection", "children", child_id, "end"), None)


def path_of(*parts: str) -> str:
    """Return the path of these segments, escaped."""
    return "/" + "/".join(urllib.parse.quote(part, safe="") for part in parts)


def consent_parameters(allocation_mc: int | None, features: Sequence[str]) -> dict[str, str]:
    """Return what the consent screen proposes and shows."""
    parameters = {}
    if allocation_mc is not None:
        parameters["requested_allocation_mc"] = str(allocation_mc)
    if features:
        parameters["features"] = ",".join(features)
    return parameters


def derive_refresh_key(refresh_token: str) -> str:
    """Derive the key of a refresh for a store that does not keep ``Tokens.refresh_key``: a UUID of version 8 (RFC 9562).

    It follows from the token, so that processes which share the store have the same one.
    """
    digest = bytearray(hashlib.sha256(b"purser token\n" + refresh_token.encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(digest)))


# Reading responses


def parse_error(reply: Reply, request: Request) -> PurserError:
    """Return the typed error of a response that is not 2xx."""
    try:
        body = json.loads(reply.body)
    except ValueError:
        body = None
    retry_after = parse_retry_after(reply.headers.get("retry-after"), time.time())
    error = read_envelope(
        body,
        reply.status,
        request_id=reply.headers.get("x-request-id"),
        retry_after=retry_after,
        with_client_credentials=request.with_client_credentials,
    )
    error.should_retry = (
        is_retryable(reply.status, reply.headers, retry_after, request.repeatable)
        and error.code != "slow_down"  # the poll waits for it
    )
    return error


def is_retryable(status: int, headers: httpx.Headers, retry_after: float | None, repeatable: bool) -> bool:
    """Report whether a repeat is safe and may succeed within a minute."""
    if headers.get("x-should-retry") == "false" or (retry_after or 0) > MAX_WAIT_S:
        return False
    if status == 429:
        return retry_after is not None
    if not repeatable:
        return status == 503
    return status == 408 or status >= 500


def parse_retry_after(text: str | None, now: float) -> float | None:
    """Return the seconds of a header Retry-After, at least one. None if it says nothing. Proxies send a date."""
    if text is None:
        return None
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return max(float(text), LEAST_WAIT_S)
    try:
        return max(email.utils.parsedate_to_datetime(text).timestamp() - now, LEAST_WAIT_S)
    except ValueError:
        return None


def parse_tokens(response: Any, connection_id: str, now: float) -> Tokens:
    """Return the tokens of an answer of the token endpoint. Stored tokens are not replaced by an answer without any."""
    values = response if isinstance(response, dict) else {}
    texts = (values.get("access_token"), values.get("refresh_token"), values.get("connection_id") or connection_id)
    expires_in = values.get("expires_in")
    valid = all(isinstance(text, str) and text for text in texts)
    if not valid or not isinstance(expires_in, int) or expires_in <= 0:
        raise sdk_error("invalid_response", "the answer has no tokens")
    return Tokens.from_response(values, connection_id, now)


def is_temporary(error: PurserError) -> bool:
    """Report whether the same request may be answered later, although it was not now."""
    codes = ("connection_error", "invalid_response")
    return error.status >= 500 or error.status in (408, 429) or error.code in codes


def read_envelope(
    body: Any,
    status: int,
    *,
    request_id: str | None,
    retry_after: float | None = None,
    with_client_credentials: bool = False,
) -> PurserError:
    """Return the error of an envelope (contract §7), or of the form of RFC 6749 §5.2."""
    values: dict[str, Any] = {}
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        values = body["error"]
    elif isinstance(body, dict) and isinstance(body.get("error"), str):
        values = {
            "code": body["error"],
            "message": body.get("error_description"),
            "type": "oauth",
            "details": body.get("details"),
            "doc_url": body.get("doc_url"),
        }
    code = values.get("code") or (f"http_{status}" if status else "")  # not from the service: a proxy, for example
    status = status or CODES.get(code, (0, ""))[0]
    details = values.get("details") or {}
    action = choose_action(code, status, details, retry_after, with_client_credentials)
    return choose_class(code, status, action)(
        values.get("message") or f"the service answered {status}",
        status=status,
        code=code,
        type=values.get("type") or "",
        request_id=request_id,
        doc_url=values.get("doc_url"),
        details=details,
        retry_after=retry_after,
        action=action,
        connection_id=values.get("connection_id"),
        increase_url=values.get("increase_url"),
        review_url=values.get("review_url"),
        raw=body,
    )


def callback_error(parameters: Mapping[str, str]) -> PurserError:
    """Return the error that came with a callback (RFC 6749 §4.1.2.1)."""
    code = parameters["error"]
    action = choose_action(code, 0, {}, None, False)
    message = parameters.get("error_description") or code
    return choose_class(code, 0, action)(message, code=code, type="oauth", action=action, raw=dict(parameters))


def parse_nothing(raw: Body) -> None:
    """Ignore the answer of a request that deletes something."""


def parse_next(link: str) -> dict[str, str] | None:
    """Return the query of the next page that a header Link names (RFC 8288), or None."""
    target, _, relation = link.partition(">")
    if 'rel="next"' not in relation or not target.startswith("<"):
        return None
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target[1:]).query))


def parse_answer(reply: Reply) -> Answer:
    """Return the answer of a call."""
    raw = reply.json()
    choice = (raw.get("choices") or [{}])[0]
    message = choice.get("message") or {}
    return Answer(
        text=message.get("content") or "",
        message=message,
        finish_reason=choice.get("finish_reason"),
        request_id=reply.headers.get("x-request-id"),
        replayed=reply.headers.get("idempotent-replayed") == "true",
        bill=parse_bill(raw.get("svc") or {}, raw.get("usage"), "settled"),
        raw=raw,
    )


def parse_bill(svc: Body, usage: Body | None, settlement: str) -> Bill:
    """Return the bill of a block ``svc``."""
    return Bill.parse({"settlement": settlement, **svc, "usage": usage})


class StreamReader:
    """Reads the bytes of a streamed call: chunks, at the end the bill, or an error."""

    def __init__(self, request_id: str | None) -> None:
        self.bill: Bill | None = None
        self.error: PurserError | None = None
        self.done = False
        self._request_id = request_id
        self._events = EventParser()

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """Yield the chunks that these bytes complete. What comes before an event that is not JSON is yielded."""
        for event in self._events.feed(data):
            if event.data == "[DONE]":
                self.done = True
                break
            try:
                raw = json.loads(event.data)
            except ValueError as error:
                raise self.error or stream_broken(error) from error
            chunk = self._read(raw)
            if chunk is not None:
                yield chunk

    def _read(self, raw: dict[str, Any]) -> Chunk | None:
        final = raw.get("svc_final")
        if final is not None:
            self.bill = parse_bill(final.get("svc") or {}, final.get("usage"), final["settlement"])
        if "error" in raw:
            self.error = read_envelope(raw, 0, request_id=self._request_id)
        choices = raw.get("choices")
        if choices is None:
            return None
        choice = choices[0] if choices else {}
        text = (choice.get("delta") or {}).get("content") or ""
        return Chunk(text=text, finish_reason=choice.get("finish_reason"), raw=raw)


class EventReader:
    """Reads the bytes of a stream of live events, over all its connections."""

    def __init__(self, after: str | None) -> None:
        self.after = after  # where to go on
        self.ended: Literal["", "again", "final"] = ""
        self._events = EventParser()

    def begin(self) -> None:
        """Prepare for a new connection."""
        self.ended = ""
        self._events = EventParser()

    def feed(self, data: bytes) -> Iterator[LiveEvent]:
        """Yield the events that these bytes complete. An end after which the stream is opened again is none.

        The stream goes on behind the last event that was yielded.
        """
        for event in self._events.feed(data):
            try:
                raw = {**json.loads(event.data), "event_id": event.id}
            except (TypeError, ValueError) as error:
                raise sdk_error("invalid_response", "an event of the stream is not JSON", cause=error) from error
            if raw.get("type") == "end":
                self.ended = "again" if raw.get("reconnect") else "final"
            live = LiveEvent.parse(raw)
            self.after = event.id or self.after
            if self.ended != "again":
                yield live


def stream_broken(cause: Exception | None) -> PurserError:
    """Return the error of a stream that ended after its first chunk and before its end."""
    message = "the stream broke off; its receipt has the charge, and the same idempotency key replays it"
    return sdk_error("stream_broken", message, cause=cause)
