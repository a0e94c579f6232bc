"""Counted nouns in messages: 1 frame, 2 frames."""


def counted(number: int | str, singular: str, plural: str | None = None) -> str:
    """The number with its noun; the plural ends in s unless it is given."""
    noun = singular if str(number) == "1" else plural or f"{singular}s"
    return f"{number} {noun}"
