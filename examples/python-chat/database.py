"""The app's own data: users, sessions, messages, and which connection is whose."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS users (
  id INTEGER PRIMARY KEY, name TEXT UNIQUE, salt BLOB, password_hash BLOB, attempt TEXT, connection_id TEXT);
CREATE TABLE IF NOT EXISTS sessions (hash BLOB PRIMARY KEY, user_id INTEGER);
CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, user_id INTEGER, role TEXT, content TEXT, cost TEXT);
"""
HISTORY = 20  # messages that the model sees
MIN_PASSWORD = 8  # characters


@dataclass(frozen=True)
class User:
    """A user of this app. ``connection_id`` is None until they connect Purser."""

    id: int
    name: str
    connection_id: str | None


class Database:
    """A file of SQLite. Each method opens it, so that threads may share this."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as db:
            db.executescript(SCHEMA)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=10)) as db, db:
            yield db

    def sign_up(self, name: str, password: str) -> str | None:
        """Create a user. Return a session, or None if the name is taken or the password too short."""
        salt = secrets.token_bytes(16)
        if not name or len(password) < MIN_PASSWORD:
            return None
        try:
            with self._open() as db:
                row = (name, salt, hash_password(password, salt))
                user_id = db.execute("INSERT INTO users (name, salt, password_hash) VALUES (?, ?, ?)", row).lastrowid
                return self._add_session(db, user_id)
        except sqlite3.IntegrityError:
            return None

    def sign_in(self, name: str, password: str) -> str | None:
        """Return a session, or None if name and password don't fit."""
        with self._open() as db:
            row = db.execute("SELECT id, salt, password_hash FROM users WHERE name = ?", (name,)).fetchone()
            if row is None or not hmac.compare_digest(hash_password(password, row[1]), row[2]):
                return None
            return self._add_session(db, row[0])

    def _add_session(self, db: sqlite3.Connection, user_id: int | None) -> str:
        session = secrets.token_urlsafe(32)
        db.execute("INSERT INTO sessions VALUES (?, ?)", (hash_session(session), user_id))
        return session

    def find_user(self, session: str) -> User | None:
        """Return the user of a session."""
        query = "SELECT u.id, name, connection_id FROM sessions s JOIN users u ON u.id = s.user_id WHERE hash = ?"
        with self._open() as db:
            row = db.execute(query, (hash_session(session),)).fetchone()
        return User(*row) if row else None

    def end_sessions(self, user: User) -> None:
        """Sign the user out everywhere."""
        with self._open() as db:
            db.execute("DELETE FROM sessions WHERE user_id = ?", (user.id,))

    def save_attempt(self, user: User, attempt: str) -> None:
        """Keep an attempt to connect until the browser comes back."""
        with self._open() as db:
            db.execute("UPDATE users SET attempt = ? WHERE id = ?", (attempt, user.id))

    def take_attempt(self, user: User) -> str | None:
        """Return the user's attempt, once."""
        with self._open() as db:
            row = db.execute("SELECT attempt FROM users WHERE id = ?", (user.id,)).fetchone()
            db.execute("UPDATE users SET attempt = NULL WHERE id = ?", (user.id,))
        return row[0] if row else None

    def save_connection(self, user: User, connection_id: str | None) -> None:
        """Keep which connection is the user's."""
        with self._open() as db:
            db.execute("UPDATE users SET connection_id = ? WHERE id = ?", (connection_id, user.id))

    def messages(self, user: User) -> list[dict[str, str]]:
        """Return the user's latest messages, oldest first, and what each answer cost."""
        query = "SELECT role, content, cost FROM messages WHERE user_id = ? ORDER BY id DESC LIMIT ?"
        with self._open() as db:
            rows = db.execute(query, (user.id, HISTORY)).fetchall()
        return [{"role": role, "content": content, "cost": cost} for role, content, cost in reversed(rows)]

    def add_exchange(self, user: User, question: str, answer: str, cost: str) -> None:
        """Keep a message, its answer, and what it cost."""
        rows = [(user.id, "user", question, ""), (user.id, "assistant", answer, cost)]
        with self._open() as db:
            db.executemany("INSERT INTO messages (user_id, role, content, cost) VALUES (?, ?, ?, ?)", rows)


def hash_password(password: str, salt: bytes) -> bytes:
    """Return the scrypt hash of a password (RFC 7914)."""
    return hashlib.scrypt(password.encode(), salt=salt, n=2**14, r=8, p=1)


def hash_session(session: str) -> bytes:
    """Return what the database has of a session's random value."""
    return hashlib.sha256(session.encode()).digest()
