"""The commands in the guides are valid: every option and every setting exists."""

import re
import shlex
from pathlib import Path

import pytest

from equibayes.cli.learn import study_config
from equibayes.cli.main import parse
from equibayes.config import build, parse_overrides
from equibayes.learning.on_the_fly import FlySettings

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = ("molecular-dynamics.md", "active-learning.md", "properties.md")


def commands(page: str) -> list[list[str]]:
    blocks = re.findall(r"```\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("equibayes ")]


@pytest.mark.parametrize("page", GUIDES)
def test_commands_are_understood(page: str) -> None:
    found = commands(page)
    assert len(found) >= 5
    for words in found:
        arguments = parse(words[1:])
        if arguments.verb == "learn":
            study_config(arguments)
        elif arguments.verb == "md":
            build(FlySettings, parse_overrides(arguments.settings))


def test_pages_are_in_the_index() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8").split()
    assert {page.removesuffix(".md") for page in GUIDES} <= set(index)
