"""Verifying webhook deliveries."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence

from ._actions import sdk_error
from .resources import Event


def verify_webhook(
    body: bytes | str,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    tolerance_seconds: float = 300,
    now: float | None = None,
) -> Event:
    """Verify a delivery and return its event. Raises SignatureError, also if a secret is empty.

    body: the raw bytes of the request's body, not JSON that was parsed and serialized again.
    headers: of the request, in any case.
    secret: the endpoint's signing secret, or several, as while a secret is replaced.
    tolerance_seconds: how old or how far ahead the signature may be, against replays.
    now: the time in Unix seconds; the clock's by default.
    """
    content = body.encode() if isinstance(body, str) else bytes(body)
    lowered = {name.lower(): value for name, value in headers.items()}
    secrets = [secret] if isinstance(secret, str) else list(secret)
    if not secrets or any(not each.strip().removeprefix("whsec_") for each in secrets):
        raise sdk_error("invalid_signature", "the secret is empty: anyone could sign with it")
    if "svc-signature" in lowered:
        timestamp, signatures = _parse_svc(lowered["svc-signature"])
        signed = timestamp.encode() + b"." + content
        expected = [_sign_svc(each, signed) for each in secrets]
    else:
        timestamp = lowered.get("webhook-timestamp", "")
        signatures = [part[3:] for part in lowered.get("webhook-signature", "").split() if part.startswith("v1,")]
        signed = f"{lowered.get('webhook-id', '')}.{timestamp}.".encode() + content
        expected = [_sign_standard(each, signed) for each in secrets]
    pairs = [(theirs, ours) for theirs in signatures for ours in expected if ours]
    if not any([hmac.compare_digest(theirs.encode(), ours.encode()) for theirs, ours in pairs]):
        raise sdk_error("invalid_signature", "the webhook's signature is missing or wrong")
    if not _is_recent(timestamp, time.time() if now is None else now, tolerance_seconds):
        raise sdk_error("invalid_signature", "the webhook's signature is too old: it may be a replay")
    return Event.read(json.loads(content))


def _parse_svc(header: str) -> tuple[str, list[str]]:
    """Return timestamp and signatures of ``t=<unix seconds>,v1=<hex>``."""
    pairs = [part.strip().partition("=") for part in header.split(",")]
    timestamp = next((value for name, _, value in pairs if name == "t"), "")
    return timestamp, [value for name, _, value in pairs if name == "v1"]


def _sign_svc(secret: str, signed: bytes) -> str:
    """Return the signature of Svc-Signature: the key is the whole secret as text."""
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def _sign_standard(secret: str, signed: bytes) -> str:
    """Return the signature of Standard Webhooks: the key is the decoded secret. "" if that can't be decoded."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        return ""
    if not key:
        return ""
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _is_recent(timestamp: str, now: float, tolerance_seconds: float) -> bool:
    digits = timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 20
    return digits and abs(now - int(timestamp)) <= tolerance_seconds
