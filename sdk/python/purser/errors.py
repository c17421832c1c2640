"""The errors of this package, and what an app does about each (contract §7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Action = Literal[
    "connect_again",  # forget the tokens, and send the user through the consent screen
    "raise_cap",  # send the user to increase_url, or request an allocation
    "ask_user",  # show review_url if there is one; keep the tokens; do not repeat by itself
    "wait",  # try again after retry_after seconds
    "retry",  # try again, with the same idempotency key
    "fix_request",  # the program or its settings are wrong
    "contact_developer",  # the user can do nothing; the app's developer can
]


class PurserError(Exception):
    """A request that failed. Decide by ``action``, or by ``code`` where you know it.

    status: the HTTP status; 0 if there was no response.
    code: for programs, such as ``allocation_exhausted``. More may be added.
    message: for a developer to read. May change.
    type: the category of the code.
    request_id: names the request in the service's logs.
    doc_url: the page that explains the code.
    details: facts for a program, such as ``max_tokens_that_fit``.
    retry_after: seconds until a repeat may succeed, or None.
    should_retry: whether this package repeats such a request by itself.
    action: what the app does now; see ``Action``.
    increase_url: where the user raises the spend cap, or None.
    review_url: where the user resumes the connection, or None.
    raw: the body of the response.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        code: str = "",
        type: str = "",
        request_id: str | None = None,
        doc_url: str | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
        should_retry: bool = False,
        action: Action = "fix_request",
        connection_id: str | None = None,
        increase_url: str | None = None,
        review_url: str | None = None,
        raw: Any = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.type = type
        self.request_id = request_id
        self.doc_url = doc_url
        self.details: Mapping[str, Any] = details or {}
        self.retry_after = retry_after
        self.should_retry = should_retry
        self.action: Action = action
        self.connection_id = connection_id
        self.increase_url = increase_url
        self.review_url = review_url
        self.raw = raw

    def __str__(self) -> str:
        where = ", ".join(str(part) for part in (self.code, self.status or None, self.request_id) if part)
        return f"{self.message} ({where})" if where else self.message


class BudgetError(PurserError):
    """402: the call does not fit into the spend cap, or into the feature's cost per call."""


class LimitError(PurserError):
    """429: a limit of calls or spend is reached. ``retry_after`` says when it helps to repeat."""


class ConnectAgainError(PurserError):
    """The connection or its tokens have ended: send the user through the consent screen again."""


class PausedError(PurserError):
    """403 ``connection_frozen``: keep the tokens, and show the user ``review_url``."""


class DeclinedError(PurserError):
    """The user declined on the consent screen: an ordinary outcome."""


class NetworkError(PurserError):
    """No response came, or it broke off."""


class SignatureError(PurserError):
    """A webhook delivery whose signature is missing, wrong or too old. Answer 400."""
