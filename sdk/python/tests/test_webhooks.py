"""Verifying webhook deliveries. The vectors are computed here by the contract's text, not by the package."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import unittest

from purser import AllocationEvent, ChildEvent, ConnectionEvent, RequestEvent, SignatureError, verify_webhook

SECRET = "whsec_" + base64.b64encode(b"k" * 33).decode()
EVENT = {"id": "evt_1", "type": "connection.frozen", "data": {"connection": {"id": "conn_1"}, "review_url": "u"}}
BODY = json.dumps(EVENT).encode()
NOW = 1_800_000_000


def svc_headers(body: bytes = BODY, secret: str = SECRET, at: int = NOW) -> dict[str, str]:
    signature = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Svc-Signature": f"t={at},v1={signature}"}


def standard_headers(body: bytes = BODY, at: int = NOW, key: bytes = b"k" * 33) -> dict[str, str]:
    digest = hmac.new(key, f"evt_1.{at}.".encode() + body, hashlib.sha256).digest()
    signature = "v1," + base64.b64encode(digest).decode()
    return {"webhook-id": "evt_1", "webhook-timestamp": str(at), "webhook-signature": "v2,x " + signature}


class WebhookTest(unittest.TestCase):
    def test_both_schemes(self) -> None:
        for headers in (svc_headers(), standard_headers()):
            event = verify_webhook(BODY, headers, SECRET, now=NOW)
            assert isinstance(event, ConnectionEvent)
            self.assertEqual((event.id, event.connection.id, event.review_url), ("evt_1", "conn_1", "u"))
        self.assertEqual(verify_webhook(BODY.decode(), svc_headers(), ["whsec_old", SECRET], now=NOW).id, "evt_1")

    def test_refused(self) -> None:
        for headers, body, secret in (
            ({}, BODY, SECRET),
            (svc_headers(), BODY + b" ", SECRET),
            (svc_headers(secret="whsec_b3RoZXI="), BODY, SECRET),
            (svc_headers(at=NOW - 301), BODY, SECRET),
            (svc_headers(at=NOW + 301), BODY, SECRET),
            ({"Svc-Signature": "t=x,v1=ü"}, BODY, SECRET),
            (standard_headers(at=NOW - 301), BODY, SECRET),
            ({**standard_headers(), "webhook-id": "evt_2"}, BODY, SECRET),
            (standard_headers(), BODY, "whsec_not base64"),
            (svc_headers(), BODY, []),
            (svc_headers(secret=""), BODY, ""),
            (svc_headers(secret=" "), BODY, " "),
            (svc_headers(secret=""), BODY, ["", SECRET]),
            (svc_headers(), BODY, ["", SECRET]),
            (svc_headers(secret="whsec_"), BODY, "whsec_"),
            (standard_headers(key=b""), BODY, "whsec_"),
            (standard_headers(key=b""), BODY, [SECRET, "whsec_"]),
            (standard_headers(key=b""), BODY, ""),
        ):
            with self.assertRaises(SignatureError):
                verify_webhook(body, headers, secret, now=NOW)

    def test_types(self) -> None:
        for event_type, data, kind in (
            ("allocation_change.approved", {"allocation_request": {"id": "acr_1"}}, AllocationEvent),
            ("connection.child_ended", {"child": {"id": "chd_1", "spent_mc": 5}}, ChildEvent),
            ("request.refunded", {"request": {"id": "req_1"}}, RequestEvent),
        ):
            body = json.dumps({"id": "evt_1", "type": event_type, "data": data}).encode()
            self.assertIs(type(verify_webhook(body, svc_headers(body), SECRET, now=NOW)), kind)
