"""Tokens of connections, and the stores that keep them for many threads and processes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import IO, Any, Protocol

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


@dataclass(frozen=True)
class Tokens:
    """The tokens of one connection. ``expires_at`` is the end of the access token, in UTC.

    ``refresh_key`` is the Idempotency-Key of a refresh that has begun, or None. With it a process that goes on after a
    crash or a lost answer gets the same new tokens.
    """

    access_token: str
    refresh_token: str
    expires_at: datetime
    connection_id: str
    refresh_key: str | None = None

    def is_fresh(self, now: float, margin_s: float = 60) -> bool:
        """Report whether the access token is valid at ``now`` (Unix seconds) and ``margin_s`` later."""
        return self.expires_at.timestamp() - margin_s > now

    def to_dict(self) -> dict[str, str]:
        """Return the tokens as JSON's values. ``expires_at`` is RFC 3339."""
        expires_at = self.expires_at.astimezone(timezone.utc).isoformat(timespec="milliseconds")
        values = {
            "access_token": self.access_token,
            "refresh_token": self.refresh_token,
            "expires_at": expires_at.replace("+00:00", "Z"),
            "connection_id": self.connection_id,
        }
        return values if self.refresh_key is None else {**values, "refresh_key": self.refresh_key}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Tokens:
        """Return the tokens of ``to_dict``."""
        expires_at = re.sub(r"\.\d+", lambda digits: digits[0][:7].ljust(7, "0"), values["expires_at"])
        return Tokens(
            access_token=values["access_token"],
            refresh_token=values["refresh_token"],
            expires_at=datetime.fromisoformat(expires_at.replace("Z", "+00:00")),
            connection_id=values["connection_id"],
            refresh_key=values.get("refresh_key"),
        )

    @staticmethod
    def from_response(response: Mapping[str, Any], connection_id: str, now: float) -> Tokens:
        """Return the tokens of an answer of the token endpoint that was asked for at ``now`` (Unix seconds)."""
        return Tokens(
            access_token=response["access_token"],
            refresh_token=response["refresh_token"],
            expires_at=datetime.fromtimestamp(now, timezone.utc) + timedelta(seconds=response["expires_in"]),
            connection_id=response.get("connection_id") or connection_id,
        )


class TokenStore(Protocol):
    """Keeps the tokens of connections. Implement it for your database.

    A refresh token works once, so that ``lock`` must exclude every other process that shares the
    store: an advisory lock, or a row lock in a transaction that the end of the context commits.
    ``save`` keeps all fields, which must be durable when it returns, or when the lock is released.
    It is called before and after a refresh, each time under a lock of its own.
    """

    def load(self, connection_id: str) -> Tokens | None:
        """Return the tokens, or None."""

    def save(self, connection_id: str, tokens: Tokens) -> None:
        """Replace the tokens."""

    def lock(self, connection_id: str) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which no other thread or process holds the connection's lock."""


class AsyncTokenStore(Protocol):
    """A TokenStore whose methods are coroutines, for ``AsyncPurser``."""

    async def load(self, connection_id: str) -> Tokens | None:
        """Return the tokens, or None."""

    async def save(self, connection_id: str, tokens: Tokens) -> None:
        """Replace the tokens."""

    def lock(self, connection_id: str) -> contextlib.AbstractAsyncContextManager[Any]:
        """Return a context in which no other task or process holds the connection's lock."""


class MemoryTokenStore:
    """Keeps tokens in this process, until it ends."""

    def __init__(self) -> None:
        self._tokens: dict[str, Tokens] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def load(self, connection_id: str) -> Tokens | None:
        """Return the tokens, or None."""
        return self._tokens.get(connection_id)

    def save(self, connection_id: str, tokens: Tokens) -> None:
        """Replace the tokens."""
        self._tokens[connection_id] = tokens

    def delete(self, connection_id: str) -> None:
        """Forget the tokens, if there are any."""
        self._tokens.pop(connection_id, None)

    def lock(self, connection_id: str) -> contextlib.AbstractContextManager[Any]:
        """Return the connection's lock, which excludes other threads."""
        with self._guard:
            return self._locks.setdefault(connection_id, threading.Lock())


class FileTokenStore:
    """Keeps tokens in a folder, for all processes of one user on one machine.

    Each connection has a file that only its owner can read (mode 0600), and which is replaced as a
    whole. The lock is the operating system's (flock, on Windows msvcrt.locking): it ends with its process.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def load(self, connection_id: str) -> Tokens | None:
        """Return the tokens, or None. An unreadable file is an error, not None."""
        try:
            text = self._path(connection_id).read_text("utf-8")
        except FileNotFoundError:
            return None
        return Tokens.from_dict(json.loads(text))

    def save(self, connection_id: str, tokens: Tokens) -> None:
        """Replace the tokens. They are on the disk when it returns."""
        descriptor, name = tempfile.mkstemp(dir=self.folder, prefix=".new-")  # mode 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(tokens.to_dict(), file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self._path(connection_id))
            _sync_folder(self.folder)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise

    def delete(self, connection_id: str) -> None:
        """Forget the tokens, if there are any."""
        self._path(connection_id).unlink(missing_ok=True)

    @contextlib.contextmanager
    def lock(self, connection_id: str) -> Iterator[None]:
        """Return a context in which no other thread or process holds the connection's lock."""
        path = self._path(connection_id).with_suffix(".lock")
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            _lock_file(file)
            try:
                yield
            finally:
                _unlock_file(file)

    def _path(self, connection_id: str) -> Path:
        """Return the connection's file. An id that is no plain name is replaced by its hash."""
        name = connection_id
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", name):
            name = hashlib.sha256(name.encode()).hexdigest()
        return self.folder / f"{name}.json"


if sys.platform == "win32":

    def _lock_file(file: IO[bytes]) -> None:
        while True:  # LK_LOCK gives up after ten seconds
            file.seek(0)
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                return
            except OSError:
                time.sleep(0.05)

    def _unlock_file(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

    def _sync_folder(folder: Path) -> None:
        pass  # Windows can't flush a folder

else:

    def _lock_file(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)

    def _unlock_file(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)

    def _sync_folder(folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
