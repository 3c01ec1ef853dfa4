"""Hostile scripts: each ends with one result, within its limits, and the next script runs as ever."""

from __future__ import annotations

import asyncio
import json

import pytest

from toolplug import ToolStatus

from .conftest import Opened, Serve, interpreters

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.requirement("I37-hostile")]

SECRET = "a-secret-of-the-host"
LIMITS = {"max_calls": 20, "max_s": 0.5, "memory": "16MiB", "processes": 2}

REACHES = [
    *(
        f"import {name}"
        for name in ("socket", "subprocess", "ctypes", "shutil", "signal", "threading", "multiprocessing")
    ),
    *(f"import {name}" for name in ("pickle", "importlib", "inspect", "builtins", "urllib.request", "http.client")),
    "open('/etc/passwd').read()",
    "open('made-by-a-script', 'w').write('x')",
    "import os\nos.environ['TOOLPLUG_TEST_SECRET']",
    "import os\nos.getenv('TOOLPLUG_TEST_SECRET')",
    "import os\nos.system('id')",
    "import os\nos.listdir('.')",
    "from pathlib import Path\nPath('made-by-a-script').write_text('x')",
    "from pathlib import Path\nlist(Path('/').iterdir())",
    "from pathlib import Path\nPath('/proc/self/environ').read_bytes()",
    "import sys\nsys.modules['os']",
    "import sys\nsys._getframe()",
    "__import__('os').environ",
    "__builtins__",
    "globals()",
    "eval(\"__import__('os')\")",
    'exec("import socket")',
    "compile('1', 'x', 'eval')",
    "().__class__.__base__.__subclasses__()",
    "(lambda: 0).__globals__",
    "(lambda: 0).__code__",
    "price.__closure__",
    "getattr(price, '__globals__')",
    "f'{price.__globals__}'",
    "'{0.__globals__}'.format(price)",
    "class X:\n    def __del__(self):\n        open('made-by-a-script')\nX()",
    "breakpoint()",
    "input()",
    "exit()",
    "raise SystemExit",
    "raise KeyboardInterrupt",
    "raise BaseException",
]
"""Scripts that reach for the machine: none of them succeeds, or is told anything of it."""

GREEDY = [
    "while True:\n    pass",
    "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
    "def f():\n    f()\nf()",
    "f = lambda g: g(g)\nf(f)",
    "x = [0]\nwhile True:\n    x += x",
    "x = 'x'\nwhile True:\n    x += x",
    "x = {}\nn = 0\nwhile True:\n    n += 1\n    x[n] = str(n) * 100",
    "'x' * 10**9",
    "[0] * 10**9",
    "(0,) * 10**9",
    "b'x' * 10**9",
    "'%1000000000d' % 1",
    "'{:1000000000}'.format(1)",
    "f'{1:1000000000}'",
    "'x'.ljust(10**9)",
    "'a'.replace('a', 'b' * 10**6) * 10**4",
    "','.join(['x' * 10**6] * 10**4)",
    "2 ** 10**9",
    "1 << 10**10",
    "int('9' * 10**6)",
    "str(9 ** 10**6)",
    "list(range(10**10))",
    "sum(range(10**12))",
    "sorted(range(10**9))",
    "max(range(10**12))",
    "set(range(10**9))",
    "[[i for i in range(10**5)] for _ in range(10**5)]",
    "import re\nre.sub('a', 'b' * 10**6, 'a' * 10**5)",
    "import json\njson.loads('[' * 10**6)",
    "import json\nx = []\nx.append(x)\njson.dumps(x)",
    "import math\nmath.factorial(10**7)",
    "x = []\nfor _ in range(10**6):\n    x = [x]\nstr(x)",
    "x = []\nfor _ in range(10**5):\n    x = [x]\nx == x",
    "import asyncio\nasync def f():\n    await f()\nawait f()",
    "import asyncio\nawait asyncio.gather(*[price(item='tea') for _ in range(10**6)])",
    "import asyncio\nawait asyncio.sleep(10**9)",
    "while True:\n    await price(item='tea')",
    "while True:\n    try:\n        await price(item='tea')\n    except RuntimeError:\n        pass",
    "while True:\n    try:\n        eval('no_such_name')\n    except NameError:\n        pass",
    "await price(item='x' * 2_000_000)",
    "raise ValueError('x' * 10**6)",
]
"""Scripts that never end or hold too much: each ends within its limits, with an error."""

WRITTEN = [
    "10**10**6 * 10**10**6",
    "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    "type('X', (), {})",
    "(" * 5_000 + ")" * 5_000,
    "[" * 5_000,
    "-" * 60_000 + "1",
    "not " * 15_000 + "1",
    "1" + "+1" * 30_000,
    "x" * 65_000,
    "x." * 30_000 + "x",
    "lambda: " * 8_000 + "1",
    "\n".join(f"{' ' * n}if 1:" for n in range(300)),
    "f'{" * 100 + "1" + "}'" * 100,
    "\x00",
    "1 # \u202e\u2066",
    "pri\u0441e",
    "'\ud800'",
    "#" * 65_000,
    ";" * 60_000,
    "\n" * 65_000,
    "x = " * 15_000 + "1",
    "del " + ", ".join(["x"] * 20_000),
    "{" + "**{}," * 10_000 + "}",
    "match 1:\n" + "".join(f"    case {n}:\n        pass\n" for n in range(2_000)),
    "\n".join(f"x{n}: 'int' = x{n - 1}" for n in range(3_000)),
    "def f[T: (" + "int, " * 5_000 + ")](x: T): pass",
]
"""Scripts that are dear to read, to check or to show: each is answered, whatever the answer is."""


async def check(opened: Opened, code: str, *, may_succeed: bool = False) -> None:
    """Run a script: it ends in time, tells nothing, and leaves the host as it was."""
    async with asyncio.timeout(60):
        result = await opened.run(code)
        said = json.dumps([result.output, result.structured, dict(result.metadata)], default=str)
        assert "root:" not in said, code
        assert SECRET not in said, code
        assert len(said) < 300_000, code
        failed = (ToolStatus.INVALID_ARGUMENTS, ToolStatus.TOOL_ERROR)
        assert may_succeed or result.status in failed, (code[:100], result.output[:300])
        assert result.status in (*failed, ToolStatus.SUCCESS), (code[:100], result.status, result.output[:300])
        assert await opened.value("1 + 1") == 2, code


@pytest.mark.parametrize("scripts", [REACHES, GREEDY, WRITTEN], ids=["reaches", "greedy", "written"])
async def test_a_hostile_script_ends_with_one_result(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, scripts: list[str]
) -> None:
    monkeypatch.setenv("TOOLPLUG_TEST_SECRET", SECRET)
    folder = tmp_path_factory.mktemp("hostile")
    monkeypatch.chdir(folder)
    async with serve(LIMITS) as opened:
        for code in scripts:
            await check(opened, code, may_succeed=scripts is WRITTEN)
            assert len(interpreters()) <= 2, code
        assert opened.shop.orders == []
    assert interpreters() == []
    assert [each.name for each in folder.iterdir() if each.name != ".toolplug"] == []
