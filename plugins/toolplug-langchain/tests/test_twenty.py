"""Twenty tools of LangChain that need no network, in an environment of their own, served and called unchanged."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.environments import build_wheel, make_environment
from tests.requirement_table import ROOT

pytestmark = [pytest.mark.judge, pytest.mark.timeout(900)]

PACKAGE = Path(__file__).parent.parent

MADE = """
import sqlite3
from langchain_community.agent_toolkits import FileManagementToolkit
from langchain_community.tools import *
from langchain_community.tools.json.tool import JsonGetValueTool, JsonListKeysTool, JsonSpec
from langchain_community.utilities import SQLDatabase
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListLLM
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import create_retriever_tool
from langchain_core.vectorstores import InMemoryVectorStore

connection = sqlite3.connect("shop.db")
connection.executescript("create table if not exists tea (price int); delete from tea; insert into tea values (42)")
connection.close()

def database(kind, **others):
    return kind(db=SQLDatabase.from_uri("sqlite:///shop.db"), **others)

def tables(): return database(ListSQLDatabaseTool)
def columns(): return database(InfoSQLDatabaseTool)
def query(): return database(QuerySQLDatabaseTool)
def check(): return database(QuerySQLCheckerTool, llm=FakeListLLM(responses=["select 42"]))

def files(): return FileManagementToolkit(root_dir=".")

spec = JsonSpec(dict_={"tea": {"price": 42}})
keys = JsonListKeysTool(spec=spec)
value = JsonGetValueTool(spec=spec)

def retriever():
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents([Document("otters swim")])
    return create_retriever_tool(store.as_retriever(), "find_notes", "Find notes.")

def double(given: dict) -> int:
    return given["number"] * 2

runnable = RunnableLambda(double).as_tool(name="double", description="Double.", arg_types={"number": int})
human = HumanInputRun(input_func=lambda: "yes", prompt_func=lambda text: None)
"""

ENTRIES: Mapping[str, Mapping[str, object]] = {
    "files": {"tool": "./made.py:files"},
    "sleep": {"tool": "langchain_community.tools:SleepTool"},
    "shell": {"tool": "langchain_community.tools:ShellTool"},
    "repl": {"tool": "langchain_experimental.tools:PythonREPLTool"},
    "ast": {"tool": "langchain_experimental.tools:PythonAstREPLTool", "arguments": {"name": "python_ast"}},
    **{name: {"tool": f"./made.py:{name}"} for name in ("tables", "columns", "query", "check", "keys", "value")},
    **{name: {"tool": f"./made.py:{name}"} for name in ("retriever", "runnable", "human")},
}

CALLS: Mapping[str, tuple[Mapping[str, object], str]] = {
    "write_file": ({"file_path": "a.txt", "text": "two otters"}, "File written successfully"),
    "read_file": ({"file_path": "a.txt"}, "two otters"),
    "copy_file": ({"source_path": "a.txt", "destination_path": "b.txt"}, "copied successfully"),
    "move_file": ({"source_path": "b.txt", "destination_path": "c.txt"}, "moved successfully"),
    "list_directory": ({"dir_path": "."}, "c.txt"),
    "file_search": ({"pattern": "c.*", "dir_path": "."}, "c.txt"),
    "file_delete": ({"file_path": "c.txt"}, "deleted successfully"),
    "sleep": ({"sleep_time": 0}, "0 seconds"),
    "terminal": ({"commands": ["echo $((6*7))"]}, "42"),
    "Python_REPL": ({"query": "print(6*7)"}, "42"),
    "python_ast": ({"query": "6*7"}, "42"),
    "sql_db_list_tables": ({"tool_input": ""}, "tea"),
    "sql_db_schema": ({"table_names": "tea"}, "price"),
    "sql_db_query": ({"query": "select price from tea"}, "42"),
    "sql_db_query_checker": ({"query": "select 42"}, "42"),
    "json_spec_list_keys": ({"tool_input": "data['tea']"}, "price"),
    "json_spec_get_value": ({"tool_input": "data['tea']['price']"}, "42"),
    "find_notes": ({"query": "otters"}, "otters swim"),
    "double": ({"number": 21}, "42"),
    "human": ({"query": "Go on?"}, "yes"),
}

SCRIPT = """
import asyncio, json, sys, warnings
warnings.simplefilter("ignore")
from toolplug import Principal, open_host
entries, calls = json.load(sys.stdin)
providers = {key: {"enabled": True, "required": False, "type": "langchain", **entry} for key, entry in entries.items()}
with open("providers.yaml", "w") as file:
    json.dump({"store": "memory://", "providers": providers}, file)

async def main():
    async with open_host("providers.yaml") as host:
        failed = {record.key: record.reason for record in host.records() if record.key in entries and record.reason}
        executor = host.executor_for(Principal(subject="a", scopes=frozenset({"tools:call"})))
        answers = {}
        for name, (arguments, _) in calls.items():
            result = await executor.call(name, **arguments)
            answers[name] = [result.status, result.output]
    print("\\n" + json.dumps([failed, answers]))

asyncio.run(main())
"""


@pytest.mark.requirement("I39-langchain-twenty")
def test_twenty_tools_that_need_no_network_are_served_and_answer(tmp_path: Path) -> None:
    core, plugin = (build_wheel(tmp_path / "wheels", source) for source in (ROOT, PACKAGE))
    packages = ("langchain-community", "langchain-experimental", "pandas")
    scripts = make_environment(tmp_path / "venv", f"{core}[sqlite]", plugin, *packages)
    work = tmp_path / "work"
    work.mkdir()
    (work / "made.py").write_text(MADE)
    done = subprocess.run(
        [scripts / "python", "-c", SCRIPT],
        input=json.dumps([ENTRIES, CALLS]),
        capture_output=True,
        text=True,
        check=False,
        cwd=work,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    failed, answers = json.loads(done.stdout.splitlines()[-1])
    assert failed == {}
    wrong = {
        name: answer for name, answer in answers.items() if answer[0] != "success" or CALLS[name][1] not in answer[1]
    }
    assert (len(answers), wrong) == (20, {})
