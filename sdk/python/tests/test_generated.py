"""Whether the client with threads is that of coroutines."""

from __future__ import annotations

import unittest

import generate


class GeneratedTest(unittest.TestCase):
    def test_client(self) -> None:
        client = (generate.FOLDER / "client.py").read_text()
        wanted = generate.without_coroutines((generate.FOLDER / "aio.py").read_text())
        self.assertEqual(client, wanted, "run python3 generate.py")
        self.assertNotRegex(client, r"\basync\b|\bawait\b|\bAsync")
