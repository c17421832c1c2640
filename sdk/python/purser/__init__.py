"""Client of the Purser billing gateway.

``Purser`` works with threads, ``AsyncPurser`` with coroutines; both have the same methods::

    purser = Purser(BASE_URL, CLIENT_ID, CLIENT_SECRET, redirect_uri=REDIRECT_URI)
    attempt = purser.connect.start(features=["chat"])          # send the browser to attempt.url
    connection = purser.connect.finish(callback_url, attempt)  # the user came back
    answer = connection.call("gpt-6-luna", {"messages": [{"role": "user", "content": "Hello"}]})
    print(answer.text, answer.bill.user_charge_display)

Amounts are integers of micro-cents of US dollars: 100,000,000 are $1.00.
"""

from ._core import ConnectAttempt
from ._version import VERSION as __version__
from .aio import AsyncConnection, AsyncPurser
from .auth import PurserAuth, token_provider
from .client import Connection, Purser
from .errors import (
    Action,
    BudgetError,
    ConnectAgainError,
    DeclinedError,
    LimitError,
    NetworkError,
    PausedError,
    PurserError,
    SignatureError,
)
from .resources import (
    AllocationEvent,
    AllocationRequest,
    Answer,
    App,
    AppEvent,
    Bill,
    Child,
    ChildEvent,
    Chunk,
    ConnectionEvent,
    ConnectionState,
    Delivery,
    DeviceAuthorization,
    EndedChild,
    Estimate,
    EstimateCosts,
    Event,
    Feature,
    Freeze,
    Hold,
    LedgerEntry,
    LiveEvent,
    Model,
    Receipt,
    ReceiptCharge,
    ReceiptError,
    RequestEvent,
    Resource,
    Recovered,
    Revocation,
    SessionEvent,
    SuspensionEvent,
    TestAccount,
    WebhookEndpoint,
)
from .streams import AsyncStream, Stream
from .tokens import AsyncTokenStore, FileTokenStore, MemoryTokenStore, Tokens, TokenStore
from .webhooks import verify_webhook

__all__ = [
    "Action",
    "AllocationEvent",
    "AllocationRequest",
    "Answer",
    "App",
    "AppEvent",
    "AsyncConnection",
    "AsyncPurser",
    "AsyncStream",
    "AsyncTokenStore",
    "Bill",
    "BudgetError",
    "Child",
    "ChildEvent",
    "Chunk",
    "ConnectAgainError",
    "ConnectAttempt",
    "Connection",
    "ConnectionEvent",
    "ConnectionState",
    "DeclinedError",
    "Delivery",
    "DeviceAuthorization",
    "EndedChild",
    "Estimate",
    "EstimateCosts",
    "Event",
    "Feature",
    "FileTokenStore",
    "Freeze",
    "Hold",
    "LedgerEntry",
    "LimitError",
    "LiveEvent",
    "MemoryTokenStore",
    "Model",
    "NetworkError",
    "PausedError",
    "Purser",
    "PurserAuth",
    "PurserError",
    "Receipt",
    "ReceiptCharge",
    "ReceiptError",
    "RequestEvent",
    "Resource",
    "Recovered",
    "Revocation",
    "SessionEvent",
    "SignatureError",
    "Stream",
    "SuspensionEvent",
    "TestAccount",
    "TokenStore",
    "Tokens",
    "WebhookEndpoint",
    "__version__",
    "token_provider",
    "verify_webhook",
]
