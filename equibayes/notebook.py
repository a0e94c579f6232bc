"""What Jupyter shows of an object: a table of headings and texts."""

import sys
from collections.abc import Iterable
from html import escape


def html_table(lines: Iterable[tuple[str, str]], title: str = "") -> str:
    """Headings, empty where a line continues the one before, with their texts; in the notebook's own style."""
    cells = (
        f'<tr><th style="text-align:left;vertical-align:top">{escape(heading)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for heading, text in lines
    )
    caption = f'<caption style="text-align:left"><b>{escape(title)}</b></caption>' if title else ""
    return f"<table>{caption}{''.join(cells)}</table>"


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, where output is HTML."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None
