"""Every example of every page runs and does what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clients.environments import FRAMEWORKS, PROGRAMS_OF_PAGES
from tests.docs.fences import fences
from tests.docs.model import model
from tests.docs.reader import Reader
from tests.requirement_table import ROOT

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("README.md", "docs/**/*.md", "plugins/*/README.md", "examples/*.md")
    for path in ROOT.glob(pattern)
)
ELSEWHERE = {f"docs/how-to/use-with-{name.replace('_', '-')}.md" for name in (*FRAMEWORKS, *PROGRAMS_OF_PAGES)}
"""They run with their framework or program: tests/clients/test_integrations.py, tests/clients/test_programs.py."""
FOREIGN = "docs/how-to/use-llm-plugins.md"
"""Its packages are in no environment of the tests: tests/integrations/test_foreign_packages.py."""
CONTAINERS = "docs/how-to/run-replicas.md"
"""What it says runs without containers in tests/docs/test_replicas.py."""
ADVANCED = ("docs/how-to/", "plugins/")
"""These pages take minutes together and are read by the slow tests; what a newcomer follows is read by each run."""
WITH_EXAMPLES = [
    pytest.param(
        page,
        marks=(
            pytest.mark.judge if page.startswith(ADVANCED) else pytest.mark.process,
            pytest.mark.needs(*(["bwrap"] if "code-interpreter" in page else [])),
        ),
        id=page,
    )
    for page in PAGES
    if page not in ELSEWHERE | {CONTAINERS, FOREIGN} and any(fences((ROOT / page).read_text("utf-8")))
]


@pytest.mark.requirement("I2-10-examples-run")
@pytest.mark.needs("curl", "jq")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_every_example_of_a_page_runs(page: str, tmp_path: Path) -> None:
    with model() as environ, Reader(tmp_path, environ) as reader:
        reader.read((ROOT / page).read_text("utf-8"))


@pytest.mark.requirement("I2-10-examples-run")
@pytest.mark.parametrize("page", PAGES)
def test_every_fence_of_a_page_is_read_as_a_block(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert sum("```" in line for line in text.splitlines()) == 2 * len(list(fences(text)))


@pytest.mark.requirement("I14-3-loop-lines")
def test_a_tool_in_a_loop_of_ones_own_takes_fifteen_lines() -> None:
    page = (ROOT / "docs" / "how-to" / "run-a-loop-of-your-own.md").read_text("utf-8")
    program = next(block.text for block in fences(page) if block.title == "loop.py")
    assert len([line for line in program.splitlines() if line.strip()]) <= 15
