"""Writes purser/client.py from purser/aio.py: the same client with threads instead of coroutines.

python3 generate.py
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "purser"

# What is not only a name, first, and then names.
TEXTS = {
    '"""The client with coroutines: ``AsyncPurser``. Its methods are those of ``Purser``."""':
        '"""The client with threads: ``Purser``. Generated from aio.py by generate.py."""',
    "one app, for one event loop.": "one app. Threads may share it.",
    "Tasks and processes": "Threads and processes",
    "TokenStore | AsyncTokenStore": "TokenStore",
    "AsyncTokenStore, ": "",
    "AsyncDriver": "SyncDriver",
    "read_events_async": "read_events",
}
KEYWORDS = re.compile(r"\b(?:async|await) ")
NAMES = re.compile(r"\bAsync(?=[A-Z])|(?<=__)a(?=enter__|exit__)|\ba(?=close\b)")
AWAITED = re.compile(r"(?<!\w)\(await ")  # not the argument of a call


def unwrap(line: str) -> str:
    """Return a line without the parentheses of ``(await value).member``."""
    while found := AWAITED.search(line):
        end, depth = found.start(), 0
        while depth := depth + {"(": 1, ")": -1}.get(line[end], 0):
            end += 1
        line = line[: found.start()] + line[found.end() : end] + line[end + 1 :]
    return line


def without_coroutines(text: str) -> str:
    """Return the text of a module without coroutines."""
    for old, new in TEXTS.items():
        if old not in text:
            raise ValueError(f"aio.py has no longer {old!r}")
        text = text.replace(old, new)
    lines = [unwrap(line) for line in text.splitlines(keepends=True)]
    return NAMES.sub("", KEYWORDS.sub("", "".join(lines)))


if __name__ == "__main__":
    (FOLDER / "client.py").write_text(without_coroutines((FOLDER / "aio.py").read_text()))
