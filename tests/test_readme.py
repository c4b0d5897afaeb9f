"""What the documents show is what happens."""

from __future__ import annotations

import doctest
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.exists()]

# Wheels are tested without the documents.
pytestmark = pytest.mark.skipif(not DOCUMENTS, reason="no documents beside the tests")


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_examples(path: Path) -> None:
    source = "\n".join(blocks(path, "python"))
    examples = doctest.DocTestParser().get_doctest(source, {}, path.name, str(path), 0)
    assert examples.examples, "no examples were found"
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST)
    assert runner.run(examples, out=said.append).failed == 0, "".join(said)


def test_commands_of_the_readme_exist() -> None:
    first, second, *_ = (block.strip() for block in blocks(ROOT / "README.md", "sh"))
    assert (first, second) == ("pip install '.[cli]' && fastpool demo", "pip install '.[test]' && pytest")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"cli", "test"} <= set(project["optional-dependencies"])
    assert project["scripts"] == {"fastpool": "fastpool.cli:main"}


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert link.startswith("https://") or (path.parent / link).exists(), link
