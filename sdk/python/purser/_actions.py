"""The table from codes to actions. A test holds it against sdk/conformance/errors.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

# status, action
CODES: dict[str, tuple[int, Action]] = {
    "invalid_request": (400, "fix_request"),
    "feature_model_not_configured": (400, "fix_request"),
    "invalid_grant": (400, "connect_again"),
    "unsupported_grant_type": (400, "fix_request"),
    "invalid_ticket": (401, "fix_request"),
    "unauthorized": (401, "connect_again"),
    "allocation_exhausted": (402, "raise_cap"),
    "feature_cost_exceeded": (402, "fix_request"),
    "connection_revoked": (403, "connect_again"),
    "connection_frozen": (403, "ask_user"),
    "app_suspended": (403, "contact_developer"),
    "model_not_allowed": (403, "fix_request"),
    "call_stopped": (403, "ask_user"),
    "not_found": (404, "fix_request"),
    "method_not_allowed": (405, "fix_request"),
    "idempotency_key_reused": (409, "fix_request"),
    "rate_limited": (429, "wait"),
    "risk_throttled": (429, "wait"),
    "daily_limit_reached": (429, "wait"),
    "app_spend_limited": (429, "wait"),
    "too_many_sessions": (429, "fix_request"),
    "sandbox_live_cost_limited": (429, "wait"),
    "internal_error": (500, "retry"),
    "provider_error": (502, "retry"),
    "unavailable": (503, "retry"),
}
# Codes of the device flow (RFC 6749 §5.2, RFC 8628 §3.5) and of the callback.
OAUTH: dict[str, Action] = {
    "access_denied": "ask_user",
    "authorization_pending": "wait",
    "slow_down": "wait",
    "expired_token": "connect_again",
    "invalid_client": "fix_request",
    "temporarily_unavailable": "retry",
    "server_error": "retry",
}
# Codes of this package.
SDK: dict[str, Action] = {
    "connection_error": "retry",
    "invalid_response": "retry",
    "stream_broken": "retry",
    "not_connected": "connect_again",
    "state_mismatch": "connect_again",
    "issuer_mismatch": "connect_again",
    "invalid_signature": "fix_request",
}
REASONS: dict[str, dict[str, Action]] = {
    "invalid_grant": {
        "redirect_uri_mismatch": "fix_request",
        "verifier_mismatch": "fix_request",
        "app_suspended": "contact_developer",
    },
    "allocation_exhausted": {"held_by_in_flight": "wait"},
}
NOT_RETRYABLE: dict[str, Action] = {"provider_error": "fix_request"}
NO_RETRY_AFTER: dict[str, Action] = {
    "risk_throttled": "fix_request",
    "daily_limit_reached": "fix_request",
    "app_spend_limited": "fix_request",
    "sandbox_live_cost_limited": "fix_request",
}
CLIENT_CREDENTIALS: dict[str, Action] = {"unauthorized": "fix_request"}
BY_STATUS: dict[int, Action] = {
    401: "connect_again",
    402: "raise_cap",
    403: "contact_developer",
    408: "retry",
    429: "wait",
}


def choose_action(
    code: str,
    status: int,
    details: Mapping[str, Any],
    retry_after: float | None,
    with_client_credentials: bool,
) -> Action:
    """Return what the app does about an error. The first rule that applies wins."""
    reason = REASONS.get(code, {}).get(str(details.get("reason")))
    if reason is not None:
        return reason
    if details.get("retry") is False and code in NOT_RETRYABLE:
        return NOT_RETRYABLE[code]
    if retry_after is None and code in NO_RETRY_AFTER:
        return NO_RETRY_AFTER[code]
    if with_client_credentials and code in CLIENT_CREDENTIALS:
        return CLIENT_CREDENTIALS[code]
    if code in CODES:
        return CODES[code][1]
    known = OAUTH.get(code) or SDK.get(code) or BY_STATUS.get(status)
    return known or ("retry" if status >= 500 else "fix_request")


def choose_class(code: str, status: int, action: Action) -> type[PurserError]:
    """Return the class of an error."""
    if code in ("connection_error", "stream_broken"):
        return NetworkError
    if code == "access_denied":
        return DeclinedError
    if code == "invalid_signature":
        return SignatureError
    if code == "connection_frozen":
        return PausedError
    if action == "connect_again":
        return ConnectAgainError
    return {402: BudgetError, 429: LimitError}.get(status, PurserError)


def sdk_error(code: str, message: str, *, should_retry: bool = False, cause: Exception | None = None) -> PurserError:
    """Return an error of this package, which has no status."""
    action = choose_action(code, 0, {}, None, False)
    error = choose_class(code, 0, action)(message, code=code, type="sdk", action=action, should_retry=should_retry)
    error.__cause__ = cause
    return error
