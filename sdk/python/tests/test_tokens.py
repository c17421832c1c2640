"""Token stores."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

from purser import FileTokenStore, MemoryTokenStore, Tokens

VALUES = {
    "access_token": "a",
    "refresh_token": "r",
    "expires_at": "2030-01-02T03:04:05.678Z",
    "connection_id": "conn_1",
}


class TokensTest(unittest.TestCase):
    def test_dict(self) -> None:
        self.assertEqual(Tokens.from_dict(VALUES).to_dict(), VALUES)
        for text in ("2030-01-02T03:04:05Z", "2030-01-02T03:04:05.1234567891Z", "2030-01-02T04:04:05+01:00"):
            written = Tokens.from_dict({**VALUES, "expires_at": text}).to_dict()["expires_at"]
            self.assertTrue(written.startswith("2030-01-02T03:04:05.") and written.endswith("Z"), written)

    def test_fresh(self) -> None:
        tokens = Tokens.from_dict(VALUES)
        end = tokens.expires_at.timestamp()
        self.assertTrue(tokens.is_fresh(end - 61))
        self.assertFalse(tokens.is_fresh(end - 59))


class StoreTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "tokens"

    def test_save_load_delete(self) -> None:
        for store in (MemoryTokenStore(), FileTokenStore(self.folder)):
            self.assertIsNone(store.load("conn_1"))
            store.save("conn_1", Tokens.from_dict(VALUES))
            self.assertEqual(store.load("conn_1").to_dict(), VALUES)
            store.delete("conn_1")
            store.delete("conn_1")
            self.assertIsNone(store.load("conn_1"))

    def test_files_are_private(self) -> None:
        store = FileTokenStore(self.folder)
        store.save("conn_1", Tokens.from_dict(VALUES))
        store.save("../evil", Tokens.from_dict(VALUES))
        self.assertEqual((self.folder / "conn_1.json").stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.folder.stat().st_mode & 0o777, 0o700)
        self.assertFalse((self.folder.parent / "evil.json").exists())
        self.assertEqual(len(list(self.folder.iterdir())), 2)

    def test_lock_excludes_threads_and_processes(self) -> None:
        store = FileTokenStore(self.folder)
        counter = self.folder / "counter"
        counter.write_text("0")
        program = (
            "import sys; from pathlib import Path; from purser import FileTokenStore\n"
            "folder = Path(sys.argv[1]); counter = folder / 'counter'\n"
            "for _ in range(50):\n"
            "    with FileTokenStore(folder).lock('conn_1'):\n"
            "        counter.write_text(str(int(counter.read_text()) + 1))\n"
        )
        root = str(Path(__file__).resolve().parent.parent)
        environment = {**os.environ, "PYTHONPATH": root}
        command = [sys.executable, "-c", program, str(self.folder)]
        processes = [subprocess.Popen(command, env=environment) for _ in range(2)]

        def count() -> None:
            for _ in range(50):
                with store.lock("conn_1"):
                    counter.write_text(str(int(counter.read_text()) + 1))

        threads = [threading.Thread(target=count) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([process.wait() for process in processes], [0, 0])
        self.assertEqual(counter.read_text(), "200")
