"""Code mode: `run_code` runs one script over the caller's own tools, and `find_functions` says what it may call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from toolplug import CallContext, Catalog, FunctionProvider, HostedItem, ProviderContext, ToolResult, ToolStatus, tool
from toolplug_code_mode.calls import in_script
from toolplug_code_mode.functions import FunctionTables
from toolplug_code_mode.interpreter import Interpreter
from toolplug_code_mode.limits import MAX_CODE, MAX_QUERY
from toolplug_code_mode.scripts import Scripts
from toolplug_code_mode.settings import Settings

_RUN = """Run a Python script that calls your tools as functions, in place of many calls: only its end comes back.

Each tool is an async function with keyword arguments: `order = await shop_order(item="tea")`. Several run at once with
`await asyncio.gather(…)`. The value of the last expression is the result, and what is printed is kept. A tool that
fails raises RuntimeError. The script is checked against the types of the functions before it runs; find_functions
tells their names and types. There are no files, no network, and few modules: asyncio, datetime, json, math, re.
A call that a person must approve stops the script: repeat the call, and it goes on from there."""
_FIND = """Find functions that a script of run_code may call: their Python stubs, with types of arguments and results.

Search by what the function should do, in a few words, or by its name."""

Code = Annotated[str, Field(min_length=1, max_length=MAX_CODE, description="the script, in Python")]
Query = Annotated[str, Field(min_length=1, max_length=MAX_QUERY, description="a few words, or names of functions")]


class CodeMode(FunctionProvider):
    """Runs scripts of models in processes of their own; each call in one is an ordinary call of the caller."""

    Config = Settings
    config: Settings
    _interpreter: Interpreter | None = None

    async def start(self, site: ProviderContext) -> None:
        """Open the pool of processes; each begins with the first script that needs it."""
        self._site = site
        callers = self.config.callers
        self._tables = FunctionTables(callers if isinstance(callers, str) else tuple(callers), site.key)
        interpreter = Interpreter(self.config)
        await interpreter.open()
        self._interpreter = interpreter
        self._scripts = Scripts(site, interpreter, self._tables, self.config.max_calls)

    async def aclose(self) -> None:
        """End the processes."""
        if self._interpreter is not None:
            await self._interpreter.aclose()

    def describe_tools(self, catalog: Catalog) -> Mapping[str, str] | None:
        """Describe `run_code` with the functions of its caller, where these are few."""
        definitions = [tool.definition for tool in catalog.values()]
        own = [each.name for each in definitions if each.ref[1:3] == (self._site.key, "run_code")]
        text = self._tables.description(catalog, _RUN) if own else None
        return None if text is None else dict.fromkeys(own, text)

    @tool(description=_RUN, item=HostedItem("mcp_call", at_end=True))
    async def run_code(self, code: Code, context: CallContext) -> ToolResult:
        """Run a script."""
        if in_script.get():
            return ToolResult(status=ToolStatus.DENIED, output="a script cannot run another script: call its functions")
        return await self._scripts.run(code, context)

    @tool(description=_FIND, read_only=True, idempotent=True)
    async def find_functions(self, query: Query, context: CallContext) -> str:
        """Find functions."""
        functions = await self._tables.of(context.tools)
        found, of = await self._site.in_thread(functions.find, query)
        if not found:
            return f"no function fits; there are {of}"
        joined = "\n".join(each.stub for each in found)
        return f"# {len(found)} of {of} functions\n{joined}"
