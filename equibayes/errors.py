"""Errors in user input, reported in one line."""


class InputError(Exception):
    """Wrong user input: a file, a frame, a setting.

    The message is one line that names the cause and the remedy.  The command line prints it without a traceback
    and exits with status 2; in Python it is an ordinary exception.
    """


class TrustWarning(UserWarning):
    """A predicted σ that is above a trust level given to `equibayes.Calculator`, or that is not a number."""


class InputWarning(UserWarning):
    """Input that was accepted but looks wrong (units off by orders of magnitude, duplicate frames)."""


def one_line(text: object, limit: int = 160) -> str:
    """Any message or value, as a single line of bounded length without control characters."""
    try:
        whole = str(text)
    except ValueError:  # a whole number of thousands of digits
        return f"a {type(text).__name__} too long to show"
    line = " ".join("".join(c if c.isprintable() else " " for c in whole).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
