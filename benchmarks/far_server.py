"""A server far away: what passes in either direction arrives some milliseconds later.

`python -m benchmarks.far_server PORT MS` forwards to PORT, and prints the port on which it listens.
"""

from __future__ import annotations

import asyncio
import sys


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    while received := await reader.read(1 << 16):
        loop.call_later(delay_s, writer.write, received)
    loop.call_later(delay_s, writer.close)


async def main(port: int, delay_s: float) -> None:
    """Forward until the process ends."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_forward(reader, requests, delay_s), _forward(answers, writer, delay_s))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]) / 1e3))
