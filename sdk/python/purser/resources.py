"""The API's objects as typed values.

Members whose names end in ``_mc`` are integers of micro-cents of US dollars: 100,000,000 are $1.00.
Members whose names end in ``_display`` are the same amounts as text. Times are RFC 3339, in UTC.
``raw`` has the object as the API sent it, with members that this version does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeVar

R = TypeVar("R", bound="Resource")


@dataclass(frozen=True)
class Resource:
    """An object of the API."""

    nested: ClassVar[dict[str, type[Resource]]] = {}  # members that are objects, or lists of objects

    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def parse(cls: type[R], raw: Mapping[str, Any]) -> R:
        """Return the typed form of a JSON object. An absent member is None."""
        values: dict[str, Any] = {}
        for member in fields(cls):
            value = raw if member.name == "raw" else raw.get(member.name)
            kind = cls.nested.get(member.name)
            if kind is not None and isinstance(value, list):
                value = tuple(kind.parse(item) for item in value)
            elif kind is not None and value is not None:
                value = kind.parse(value)
            values[member.name] = value
        return cls(**values)


@dataclass(frozen=True)
class Bill(Resource):
    """What a call cost. ``user_charge_mc`` is the sum of cost, fee and margin.

    settlement: ``settled`` by the provider's usage, ``estimated`` by the service's own count, or
    ``pending``: the amounts are None, and the event ``request.settled`` reports them later.
    """

    settlement: str
    feature: str | None
    hold_amount_mc: int
    provider_cost_mc: int
    svc_fee_mc: int
    dev_margin_mc: int
    user_charge_mc: int
    user_charge_display: str
    allocation_remaining_mc: int
    allocation_remaining_display: str
    max_tokens_applied: int | None
    cache_saved_mc: int | None
    paid_by: str | None
    waived: str | None
    usage: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Answer:
    """The answer of a model. ``message`` goes back unchanged in the next call's messages."""

    text: str
    message: Mapping[str, Any]
    finish_reason: str | None
    request_id: str | None
    replayed: bool  # whether it is the stored answer of an earlier call with the same idempotency key
    bill: Bill
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def tool_calls(self) -> list[Mapping[str, Any]]:
        """The calls of tools that the model asks for."""
        return self.message.get("tool_calls") or []


@dataclass(frozen=True)
class Chunk:
    """A part of a streamed answer. ``text`` may be empty, as in the parts of a tool call."""

    text: str
    finish_reason: str | None
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Freeze(Resource):
    """Why a connection is frozen: ``cause`` is risk, user, payment or operator."""

    cause: str
    reason: str | None


@dataclass(frozen=True)
class LedgerEntry(Resource):
    """One row of the ledger."""

    id: str
    type: str
    account_id: str
    created_at: str
    status: str
    reversal_of: str | None
    reason: str | None
    connection_id: str | None
    app_id: str | None
    feature: str | None
    model: str | None
    hold_amount_mc: int | None
    provider_cost_mc: int | None
    svc_fee_mc: int | None
    dev_margin_mc: int | None
    user_charge_mc: int | None
    user_charge_display: str | None
    request_id: str | None
    paid_by: str | None
    settlement: str | None
    amount_mc: int | None
    amount_display: str | None
    refunded_mc: int | None
    reversed_by: str | None


@dataclass(frozen=True)
class ConnectionState(Resource):
    """A connection as the API sees it. The remaining allocation is allocation minus consumed minus held.

    delegated_mc: of held_mc, what children can still spend, if they can. child_id: with a child's
    token, the child, whose budget stands in place of the connection's.
    """

    nested: ClassVar[dict[str, type[Resource]]] = {"freeze": Freeze, "recent_ledger": LedgerEntry}

    id: str
    app_id: str
    user_account_id: str
    status: Literal["active", "exhausted", "revoked", "frozen"]
    allocation_mc: int
    allocation_display: str
    reserved_allocation_mc: int
    reserved_allocation_display: str
    consumed_mc: int
    consumed_display: str
    held_mc: int
    held_display: str
    delegated_mc: int | None
    child_id: str | None
    allocation_remaining_mc: int
    allocation_remaining_display: str
    velocity_limit_mc: int | None
    velocity_limit_display: str | None
    freeze: Freeze | None
    created_at: str
    recent_ledger: tuple[LedgerEntry, ...] | None


@dataclass(frozen=True)
class AllocationRequest(Resource):
    """A request for a higher spend cap. The user decides on the page of ``approval_url``."""

    id: str
    connection_id: str
    status: Literal["pending", "approved", "denied", "superseded"]
    current_allocation_mc: int
    current_allocation_display: str
    target_allocation_mc: int
    target_allocation_display: str
    reason: str | None
    superseded_by: str | None
    created_at: str
    decided_at: str | None
    approval_url: str


@dataclass(frozen=True)
class Revocation(Resource):
    """The end of a connection. ``released_mc`` returned to the user."""

    id: str
    status: str
    revoked_at: str
    released_mc: int
    released_display: str


@dataclass(frozen=True)
class Hold(Resource):
    """Money held for your app's own work. The id is that of its receipt, too."""

    id: str
    object: str
    status: Literal["held", "captured", "released"]
    connection_id: str
    feature: str | None
    description: str
    amount_mc: int
    amount_display: str
    captured_mc: int | None
    svc_fee_mc: int | None
    dev_margin_mc: int | None
    refunded_mc: int
    created_at: str
    expires_at: str | None


@dataclass(frozen=True)
class Child(Resource):
    """A part of a connection's budget, which another agent or job spends by a token of its own.

    remaining_mc: what its next call can hold. returned_mc: what went back at its end, with that of
    the children that ended with it. parent_id: the child that gave the amount, or None for the connection.
    token: for ``with_token``; only the answer of ``create`` has it.
    """

    id: str
    object: str
    connection_id: str
    parent_id: str | None
    depth: int
    label: str
    status: Literal["active", "ended"]
    amount_mc: int
    amount_display: str
    held_mc: int
    remaining_mc: int
    remaining_display: str
    features: list[str]
    models: list[str]
    created_at: str
    expires_at: str
    ended_at: str | None
    ended_by: Literal["app", "user", "expired", "parent", "revoked"] | None
    returned_mc: int
    token: str | None = field(repr=False)


@dataclass(frozen=True)
class EndedChild(Child):
    """A child at its end. spent_mc: by it and the children below it."""

    spent_mc: int
    spent_display: str


@dataclass(frozen=True)
class ReceiptCharge(Resource):
    """What a call cost, on its receipt."""

    hold_amount_mc: int
    hold_amount_display: str
    provider_cost_mc: int
    svc_fee_mc: int
    dev_margin_mc: int
    user_charge_mc: int
    user_charge_display: str
    allocation_remaining_mc: int
    allocation_remaining_display: str
    cache_saved_mc: int | None
    cache_saved_display: str | None
    paid_by: str
    waived: str | None


@dataclass(frozen=True)
class ReceiptError(Resource):
    """Why a call was or would be refused. ``status`` is the HTTP status."""

    code: str
    message: str
    status: int
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Receipt(Resource):
    """What a call cost and why, or why it was refused."""

    nested: ClassVar[dict[str, type[Resource]]] = {"charge": ReceiptCharge, "error": ReceiptError}

    id: str
    object: str
    status: Literal["settled", "estimated", "pending", "refused", "in_flight", "failed"]
    connection_id: str
    child_id: str | None
    created_at: str
    model: str | None
    own_work: str | None
    feature: str | None
    billed: bool
    charge: ReceiptCharge | None
    refunded_mc: int
    reversed_by: str | None
    max_tokens_applied: int | None
    usage: Mapping[str, Any] | None
    price_version: str | None
    lines: list[Mapping[str, Any]]
    error: ReceiptError | None
    explanation: str


@dataclass(frozen=True)
class EstimateCosts(Resource):
    """One of the two costs of an estimate."""

    output_tokens: int
    output_basis: str
    provider_cost_mc: int
    svc_fee_mc: int
    dev_margin_mc: int
    user_charge_mc: int
    user_charge_display: str
    lines: list[Mapping[str, Any]]


@dataclass(frozen=True)
class Estimate(Resource):
    """What a call would be held for and may cost, and whether it would be admitted now."""

    nested: ClassVar[dict[str, type[Resource]]] = {
        "refusal": ReceiptError,
        "expected": EstimateCosts,
        "largest": EstimateCosts,
    }

    object: str
    model: str
    feature: str | None
    counted_input_tokens: int
    input_tokens: int
    max_tokens: int
    capped_by: str
    fit_min_tokens: int | None
    fits: bool
    max_tokens_that_fit: int
    max_tokens_applied: int | None
    paid_by: str | None
    refusal: ReceiptError | None
    hold_amount_mc: int
    hold_amount_display: str
    expected: EstimateCosts
    largest: EstimateCosts
    price_version: str


@dataclass(frozen=True)
class DeviceAuthorization(Resource):
    """The codes of a device. Show ``user_code`` and ``verification_uri`` to the user; times are in seconds."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: int
    interval: int


@dataclass(frozen=True)
class Model(Resource):
    """An offered model. Costs are decimal US dollars for 1,000 tokens."""

    id: str
    provider: str
    input_cost_per_1k_usd: str
    output_cost_per_1k_usd: str
    cached_input_cost_per_1k_usd: str
    cache_write_cost_per_1k_usd: str
    long_context: list[Mapping[str, Any]]
    voice: Mapping[str, Any] | None
    context_window: int
    max_output_tokens: int
    price_confidence: str | None  # published, or assumed: not read at the provider
    capabilities: Mapping[str, Any]
    dimensions: Mapping[str, int] | None
    deprecated_at: str | None
    retires_at: str | None
    replacement: str | None


@dataclass(frozen=True)
class App(Resource):
    """Your app."""

    id: str
    client_id: str
    client_type: Literal["confidential", "public"]
    name: str
    redirect_uris: list[str]
    allowed_models: list[str]
    default_max_tokens: int | None
    fit: bool
    fit_min_tokens: int | None
    dev_margin_rate: float
    prompt_cache: bool
    own_work: bool
    tier: str
    tier_limits: Mapping[str, Any]
    provider_mode: Literal["mock", "live"]
    test_allowlist: list[str]
    suspended: bool
    suspension: Mapping[str, Any] | None
    created_at: str
    developer_name: str | None
    website_url: str | None
    privacy_policy_url: str | None
    support: str | None
    domain: str | None
    domain_verified_at: str | None


@dataclass(frozen=True)
class Feature(Resource):
    """A feature of your app. ``rate_limit`` is in calls per 60 seconds and connection."""

    slug: str
    display_name: str
    description: str
    max_cost_per_call_mc: int | None
    max_tokens: int | None
    fit: bool | None
    fit_min_tokens: int | None
    rate_limit: int | None
    default_model: str | None
    dev_margin_rate: float | None


@dataclass(frozen=True)
class WebhookEndpoint(Resource):
    """A webhook endpoint. ``secret`` is set by create and rotate_secret only."""

    id: str
    app_id: str
    url: str
    events: list[str]
    status: Literal["active", "disabled"]
    created_at: str
    secret: str | None


@dataclass(frozen=True)
class Delivery(Resource):
    """A delivery of an event to an endpoint."""

    id: str
    event_id: str
    event_type: str
    status: Literal["pending", "delivered", "failed"]
    attempts: int
    next_attempt_at: str | None
    last_error: str | None
    response_status: int | None
    delivered_at: str | None
    created_at: str


@dataclass(frozen=True)
class Recovered(Resource):
    """How many deliveries were queued again. ``has_more``: there are others, recover again."""

    queued: int
    has_more: bool


@dataclass(frozen=True)
class TestAccount(Resource):
    """A test account, whose money is fake. ``password`` is set by create only."""

    __test__ = False  # no test case, whatever its name

    wac_id: str
    email: str
    sandbox: bool
    balance_available_mc: int
    balance_available_display: str
    balance_reserved_mc: int
    balance_reserved_display: str
    tester: str | None
    created_at: str
    password: str | None


@dataclass(frozen=True)
class Event(Resource):
    """An event of your app. The same event may come more than once, always with the same ``id``.

    Events may come out of order: ask for the connection that one names, and act on what it is now. ``seq`` rises with
    each event of a connection, and again from an earlier number after a restore of the service.
    ``data`` has the object of the event, in a member with its name. A subclass has it as a typed value.
    """

    id: str
    type: str
    created_at: str
    app_id: str
    connection_id: str | None
    sandbox: bool
    test: bool | None
    seq: int
    api_version: str
    data: Mapping[str, Any]

    @staticmethod
    def read(raw: Mapping[str, Any]) -> Event:
        """Return the event as the class of its type. An unknown type is a plain ``Event``."""
        return _event_class(str(raw.get("type"))).parse(raw)


class ConnectionEvent(Event):
    """``connection.*``, except ``connection.child_ended``."""

    @property
    def connection(self) -> ConnectionState:
        """The connection at the time of the event."""
        return ConnectionState.parse(self.data["connection"])

    @property
    def review_url(self) -> str | None:
        """Of ``connection.frozen``: where the user can resume the connection."""
        return self.data.get("review_url")


class ChildEvent(Event):
    """``connection.child_ended``."""

    @property
    def child(self) -> EndedChild:
        """The child at its end."""
        return EndedChild.parse(self.data["child"])


class AllocationEvent(Event):
    """``allocation_change.*``."""

    @property
    def allocation_request(self) -> AllocationRequest:
        """The request, with its status at the time of the event."""
        return AllocationRequest.parse(self.data["allocation_request"])


class RequestEvent(Event):
    """``request.settled`` and ``request.refunded``."""

    @property
    def request(self) -> Receipt:
        """The receipt of the call."""
        return Receipt.parse(self.data["request"])


class AppEvent(Event):
    """``app.spend_limit_reached``."""

    @property
    def limit_mc(self) -> int:
        """The limit that all users have reached together, in micro-cents."""
        return int(self.data["app"]["limit_mc"])

    @property
    def window_s(self) -> int:
        """The window of the limit, in seconds."""
        return int(self.data["app"]["window_s"])


class SuspensionEvent(Event):
    """``app.suspended``."""

    @property
    def suspended_by(self) -> str:
        """Who suspended the app: ``risk`` or ``operator``."""
        return str(self.data["app"]["suspended_by"])

    @property
    def reason(self) -> str:
        """Why the service suspended the app."""
        return str(self.data["app"]["reason"])


class SessionEvent(Event):
    """``realtime_session.ended``."""

    @property
    def session(self) -> Mapping[str, Any]:
        """The voice session, as its GET returns it."""
        session: Mapping[str, Any] = self.data["session"]
        return session


def _event_class(event_type: str) -> type[Event]:
    if event_type == "connection.child_ended":
        return ChildEvent
    if event_type.startswith("connection."):
        return ConnectionEvent
    if event_type.startswith("allocation_change."):
        return AllocationEvent
    if event_type.startswith("request."):
        return RequestEvent
    if event_type.startswith("realtime_session."):
        return SessionEvent
    if event_type == "app.suspended":
        return SuspensionEvent
    return AppEvent if event_type == "app.spend_limit_reached" else Event


@dataclass(frozen=True)
class LiveEvent(Resource):
    """What happens to a connection while it happens.

    type: ``balance``, ``hold``, ``charge``, ``refund``, ``release`` or ``end``. Ignore others.
    event_id: what to pass as ``after`` to go on from here, or None.
    connection: of ``balance``. entry: of ``charge`` and ``refund``. The other members are of
    ``hold``, ``release`` and ``end``.
    """

    nested: ClassVar[dict[str, type[Resource]]] = {"connection": ConnectionState, "entry": LedgerEntry}

    type: str
    connection: ConnectionState | None
    entry: LedgerEntry | None
    request_id: str | None
    feature: str | None
    model: str | None
    paid_by: str | None
    hold_amount_mc: int | None
    hold_amount_display: str | None
    released_mc: int | None
    released_display: str | None
    created_at: str | None
    reason: str | None
    reconnect: bool | None
    event_id: str | None = None
