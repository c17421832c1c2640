"""The API's objects as typed values.

Members whose names end in ``_mc`` are integers of micro-cents of US dollars: 100,000,000 are $1.00.
Members whose names end in ``_display`` are the same amounts as text. Times are RFC 3339, in UTC.
``raw`` has the object as the API sent it, with members that this version does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _types
from ._resource import Resource
from ._types import *
from ._types import AllocationRequest, Bill, ConnectionState, EndedChild, EventFields, Receipt


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
class Event(EventFields):
    """An event of your app. The same event may come more than once, always with the same ``id``.

    Events may come out of order: ask for the connection that one names, and act on what it is now. ``seq`` rises with
    each event of a connection, and again from an earlier number after a restore of the service.
    ``data`` has the object of the event, in a member with its name. A subclass has it as a typed value.
    """

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


__all__ = [
    "AllocationEvent",
    "Answer",
    "AppEvent",
    "ChildEvent",
    "Chunk",
    "ConnectionEvent",
    "Event",
    "RequestEvent",
    "Resource",
    "SessionEvent",
    "SuspensionEvent",
]
__all__ += _types.__all__
