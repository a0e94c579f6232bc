"""HTML from Python, where text is text: every string is escaped unless it was made here."""

from collections.abc import Collection, Iterable
from html import escape
from typing import Any


class Html(str):
    """A string that is HTML already."""

    __slots__ = ()


def text(value: Any) -> Html:
    """Anything as escaped text; HTML stays as it is."""
    return value if isinstance(value, Html) else Html(escape(str(value), quote=True))


def join(parts: Iterable[Any], between: str = "") -> Html:
    return Html(between.join(text(part) for part in parts))


# elements that have no content and no end
_VOID = {"br", "hr", "input", "col", "meta"}


def tag(name: str, *children: Any, **attributes: Any) -> Html:
    """An element.  `class_` is class, `aria_label` aria-label; True is an attribute without value, None is left out."""
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        words.append(attribute if value is True else f'{attribute}="{escape(str(value), quote=True)}"')
    opened = f"<{' '.join(words)}>"
    return Html(opened) if name in _VOID else Html(f"{opened}{join(children)}</{name}>")


def table(caption: str, headings: list[str], rows: list[list[Any]], words: Collection[int] = (0,)) -> Html:
    """A table whose columns `words` hold words and the rest numbers; wide ones scroll by themselves.

    What follows a comma in a heading is the unit.
    """
    kinds = [None if column in words else "number" for column in range(len(headings))]
    head = tag("tr", *(tag("th", _heading(h), scope="col", class_=kind) for h, kind in zip(headings, kinds)))
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", cell, class_=kind) for cell, kind in zip(row[1:], kinds[1:])),
        )
        for row in rows
    ]
    inner = tag("table", tag("caption", tag("span", caption)), tag("thead", head), tag("tbody", *body))
    # a region that scrolls must be reachable by keyboard, and so needs a name
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _heading(words: str) -> Html:
    name, comma, unit = words.partition(", ")
    return join([name, tag("span", unit, class_="of")]) if comma else text(name)
