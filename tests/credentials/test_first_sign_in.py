"""The first sign-in of a process, while the host lists its servers: both import the SDK, each in a thread."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.process, pytest.mark.requirement("I38-sign-in")]

AT_ONCE = '''
import asyncio
import sys
import threading
import time
from functools import partial
from importlib import import_module

{first}
from toolplug.runtime.threads import in_own_thread

begun, meets = threading.Event(), threading.Event()


class InTheMiddle:
    """Stops the first thread in the SDK until the second one looks for a part of it, or waits for the whole."""

    def find_spec(self, name, path=None, target=None):
        if name == "mcp.types" and not begun.is_set():
            begun.set()
            meets.wait(2)
        elif begun.is_set() and name.startswith("mcp.") and not meets.is_set():
            meets.set()
            time.sleep(0.5)


async def main():
    sys.meta_path.insert(0, InTheMiddle())
    listing = asyncio.create_task(in_own_thread(partial(import_module, "mcp")))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    {second}
    assert (await listing).ClientSession


asyncio.run(main())
'''


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            "from toolplug.parts.credentials.oauth import issuers_module",
            "assert (await issuers_module()).find_issuer",
        ),
        (
            "from toolplug import ToolResult\nfrom toolplug.mcp_extensions import result_fields",
            "assert not result_fields(ToolResult('c1', 'x'), None)['isError']",
        ),
    ],
    ids=["sign-in", "extension"],
)
def test_the_sdk_is_imported_as_a_whole_by_whoever_is_second(first: str, second: str) -> None:
    code = AT_ONCE.format(first=first, second=second)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
