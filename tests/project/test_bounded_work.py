"""No work that grows faster than what a stranger sends: rules for code that reviewers overlook."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import PurePath

import pytest
from tests.project.regex_audit import ambiguous
from tests.project.sources import Source, product

pytestmark = pytest.mark.slow

EXEMPT = re.compile(r"#.*\blinear: \S+")
"""A line that breaks a rule may say why its work is bounded nevertheless: `# linear: at most 20 names`."""

Finder = Callable[[ast.Module], Iterator[tuple[int, str]]]


def breaches(find: Finder) -> list[str]:
    """Return each place in the product that breaks a rule and gives no reason."""
    return [
        f"{source.name}:{line} {why}"
        for source in product()
        for line, why in find(source.tree)
        if not EXEMPT.search(source.text.splitlines()[line - 1])
    ]


def test_nothing_waits_in_the_threads_that_the_whole_process_shares() -> None:
    assert breaches(default_executor) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("await asyncio.to_thread(read)", True),
        ("from asyncio import to_thread", True),
        ("import asyncio as aio\nawait aio.to_thread(read)", True),
        ("await loop.run_in_executor(None, read)", True),
        ("await loop.run_in_executor(executor=None, func=read)", True),
        ("await loop.getaddrinfo(host, 80)", True),
        ("loop.set_default_executor(pool)", True),
        ("await anyio.to_thread.run_sync(read)", True),
        ("await run_in_threadpool(read)", True),
        ("await site.in_thread(read)", False),
        ("await loop.run_in_executor(pool, read)", False),
        ("socket.getaddrinfo(host, 80)", False),
        ("await in_own_thread(partial(socket.getaddrinfo, host, 80))", False),
    ],
)
def test_the_rule_of_threads_knows_its_cases(code: str, found: bool) -> None:
    assert bool([*default_executor(ast.parse(code))]) is found


def default_executor(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield uses of the loop's default executor, and of anyio's and Starlette's, which are one for the process too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            if names & {"to_thread", "run_in_threadpool"}:
                yield node.lineno, "uses threads that the whole process shares; site.in_thread has the provider's own"
        elif isinstance(node, ast.Attribute) and node.attr in ("to_thread", "set_default_executor"):
            yield node.lineno, "uses threads that the whole process shares; site.in_thread has the provider's own"
        elif isinstance(node, ast.Call):
            name = _called(node)
            given = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "executor")]
            no_pool = any(isinstance(each, ast.Constant) and each.value is None for each in given)
            if name == "run_in_threadpool" or (name == "run_in_executor" and no_pool):
                yield node.lineno, "uses threads that the whole process shares; site.in_thread has the provider's own"
            elif name in ("getaddrinfo", "getnameinfo") and ast.unparse(node.func) != f"socket.{name}":
                yield node.lineno, f"loop.{name} waits in threads that the whole process shares"


def test_no_regular_expression_of_re_backtracks_for_long() -> None:
    found = [
        f"{source.name}:{line} {why}"
        for source in product()
        for line, pattern, flags in expressions(source)
        for why in ambiguous(pattern, flags)
        if not EXEMPT.search(source.text.splitlines()[line - 1])
    ]
    assert found == []


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*", True),  # a line of 16 KB took five minutes
        (r"(\s*)(.*)", True),
        (r"\s+\s*$", True),
        (r"(a+)+b", True),
        (r"(?:a*)*", True),
        (r"(?:\s*\w*)*", True),
        (r"(?:\w|\dx)+y", True),
        (r"(?:a|ab)+c", False),  # re takes it for (?:ab?)+c
        (r"x*(?:y?)x*", True),
        (r"[^,]*,?[^;]*", True),
        (r"(?i)K+k+", True),
        (r"\s*=\s*(\S+)\s*", False),
        (r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", False),
        (r"(?:[A-Za-z]+ )+x", False),
        (r"(?:foo|bar)+", False),
        (r"[ \t]++(.*?)", False),
        (r"(?>\s+)(.*)", False),
        (r"\w+ \w+", False),
        (r"a{0,9}a{0,9}", False),
    ],
)
def test_the_rule_of_expressions_knows_its_cases(pattern: str, found: bool) -> None:
    assert bool(ambiguous(pattern)) is found


TAKES_PATTERN = frozenset({"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"})


def expressions(source: Source) -> Iterator[tuple[int, str | bytes, int]]:
    """Yield line, text and flags of each expression that a file gives to `re`.

    The value of one that is put together is taken from its module; what a function fills in counts as a letter.
    """
    for node in source.nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        if node.func.attr in TAKES_PATTERN and ast.unparse(node.func.value) == "re":
            flags = [ast.unparse(each) for each in (*node.args[1:], *(word.value for word in node.keywords))]
            number = sum(int(getattr(re, name[3:])) for name in re.findall(r"re\.[A-Z]+", " ".join(flags)))
            yield node.lineno, _text_of(source, node.args[0]), number


def _text_of(source: Source, node: ast.expr) -> str | bytes:
    if isinstance(node, ast.Constant):
        return node.value
    parts = PurePath(source.name).with_suffix("").parts
    module = import_module(".".join(parts[parts.index("src") + 1 :]).removesuffix(".__init__"))
    try:
        return eval(ast.unparse(node), vars(module))
    except NameError:
        assert isinstance(node, ast.JoinedStr), f"{source.name}:{node.lineno}: give re a text that can be read"
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)


def test_no_loop_counts_in_what_it_runs_over() -> None:
    assert breaches(counted_in_loop) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("twice = next(name for name in names if names.count(name) > 1)", True),
        ("twice = [item.tool for item in notes if [each.tool for each in notes].count(item.tool) > 1]", True),
        ("for key in keys:\n    if keys.count(key) > 1: raise ValueError(key)", True),
        ("for name in SINGLE:\n    if names.count(name) > 1: raise ValueError(name)", True),
        ("rows = [Row(types.count(entry.type)) for entry in entries]", True),
        ("line = text.count('\\n')", False),
        ("for text in texts:\n    total += text.count('\\n')", False),
    ],
)
def test_the_rule_of_counting_knows_its_cases(code: str, found: bool) -> None:
    assert bool([*counted_in_loop(ast.parse(code))]) is found


def counted_in_loop(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each `.count(x)` in a loop whose variable x is: it reads a whole sequence for each item."""
    loops = (ast.For, ast.AsyncFor, ast.comprehension)
    for outer in ast.walk(tree):
        generators = getattr(outer, "generators", [outer] if isinstance(outer, loops) else [])
        variables = {name.id for loop in generators for name in ast.walk(loop.target) if isinstance(name, ast.Name)}
        if not variables:
            continue
        for node in ast.walk(outer):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
                given = {name.id for name in ast.walk(node.args[0]) if isinstance(name, ast.Name)}
                own = {name.id for name in ast.walk(node.func.value) if isinstance(name, ast.Name)} & variables
                if node.func.attr == "count" and given & variables and not own:
                    yield node.lineno, "counts each item; toolplug.runtime.duplicates takes one pass"


def test_no_loop_copies_what_is_left_in_each_turn() -> None:
    assert breaches(copied_in_loop) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("while text:\n    text = text[3:]", True),
        ("while text:\n    head, text = text[:3], text[3:]", True),
        ("while lines:\n    lines.pop(0)", True),
        ("while lines:\n    del lines[:9]", True),
        ("while lines:\n    lines.insert(0, 1)", True),
        ("while at < len(text):\n    part = text[at:at + 9]\n    at += 9", False),
        ("while lines:\n    lines.pop()", False),
        ("text = text[3:]", False),
    ],
)
def test_the_rule_of_copies_knows_its_cases(code: str, found: bool) -> None:
    assert bool([*copied_in_loop(ast.parse(code))]) is found


def copied_in_loop(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield what takes the front off a sequence in a `while` loop: each turn copies the whole rest."""
    for loop in ast.walk(tree):
        if isinstance(loop, ast.While):
            for node in ast.walk(loop):
                if _takes_front(node):
                    yield getattr(node, "lineno", loop.lineno), "copies the rest in each turn; keep a place, or a deque"


def _takes_front(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        names = {ast.unparse(name) for target in node.targets for name in getattr(target, "elts", [target])}
        values = getattr(node.value, "elts", [node.value])
        return any(_is_tail(value) and ast.unparse(value.value) in names for value in values)
    if isinstance(node, ast.Delete):
        return any(
            isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Slice) and each.slice.lower is None
            for each in node.targets
        )
    zero = isinstance(node, ast.Call) and node.args and ast.unparse(node.args[0]) == "0"
    return bool(zero) and _called(node) in ("pop", "insert")


def _is_tail(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and node.slice.lower is not None


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
