"""A served host in front of a thousand connections of one key, whose bodies do not end."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.cli.process import serving
from tests.figures import FIGURE

CONNECTIONS = 1024
MOST_MIB = 256
PIECE = b" " * (128 * 1024)

CASES = {
    "json": (b"/api/toolsets/import", b"application/json", 1024 * 1024),
    "multipart": (b"/v1/files", b"multipart/form-data; boundary=b", 16 * 1024 * 1024),
}
BEGINNING = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'


@pytest.mark.judge
@pytest.mark.requirement("SEC-unfinished-bodies")
@pytest.mark.parametrize("case", CASES)
def test_a_thousand_unfinished_bodies_of_one_key_take_little_memory(
    case: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path, kind, size = CASES[case]
    (tmp_path / "providers.yaml").write_text("providers: {file_search: {enabled: true}}\nstore: 'memory://'\n")
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (path, kind, size)
    begin = BEGINNING if case == "multipart" else b"{"
    with serving(folder=tmp_path) as service, ExitStack() as wires:
        port = urlsplit(service.url).port
        assert port is not None
        rest_mib = resident_mib(service.process.pid)
        most_mib = rest_mib
        opened = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(CONNECTIONS)]
        for wire in opened:
            wires.callback(wire.close)
            wire.sendall(head + begin)
        for _ in range(6):  # as much as 768 MiB in all
            for wire in opened:
                try:
                    wire.sendall(PIECE)
                except OSError:  # refused: one key may have a quarter of http.edge.body_memory
                    continue
            most_mib = max(most_mib, resident_mib(service.process.pid))
        above_mib = most_mib - rest_mib
    record_property(FIGURE, f"{CONNECTIONS} unfinished bodies ({case}): {above_mib:.0f} MiB above rest")
    assert above_mib <= MOST_MIB


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1024**2
