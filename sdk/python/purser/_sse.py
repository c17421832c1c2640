"""Server-sent events (HTML standard, section 9.2.6), without I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerSentEvent:
    """One event. ``id`` is that of this event alone, or None."""

    data: str
    event: str
    id: str | None


class EventParser:
    """Turns the bytes of a stream into events. Comments and events without data are skipped."""

    def __init__(self) -> None:
        self._buffer = b""
        self._data: list[str] = []
        self._event = ""
        self._id: str | None = None

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Return the events that these bytes complete."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        events = []
        for line in lines:
            event = self._read_line(line.rstrip(b"\r").decode("utf-8", "replace"))
            if event is not None:
                events.append(event)
        return events

    def _read_line(self, line: str) -> ServerSentEvent | None:
        if line == "":
            event = ServerSentEvent("\n".join(self._data), self._event or "message", self._id) if self._data else None
            self._data, self._event, self._id = [], "", None
            return event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id":
            self._id = value
        return None
