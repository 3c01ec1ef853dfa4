"""A server of one key set, as an issuer of tokens has it, on a free port of this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import sleep


class KeyServer:
    """Serves `body`; counts how often it was asked.

    `broken` answers 500. `drips` sends a byte now and then, until the client leaves; `dripped_out`: it did not.
    """

    def __init__(self) -> None:
        self.body: object = {"keys": []}
        self.broken = False
        self.drips = False
        self.dripped_out = False
        self.asked = 0
        self.url = ""

    @contextmanager
    def served(self) -> Iterator[KeyServer]:
        """Serve until the block ends."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                self.send_response(500 if outer.broken else 200)
                self.end_headers()
                if outer.drips:
                    self._drip()
                    return
                self.wfile.write(outer.body if isinstance(outer.body, bytes) else json.dumps(outer.body).encode())

            def _drip(self) -> None:
                with suppress(OSError):
                    for _ in range(1_000):
                        self.wfile.write(b" ")
                        sleep(0.02)
                    outer.dripped_out = True

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_address[1]}/keys"
            thread = Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()
