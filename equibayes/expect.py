"""Values from a file as a program expects them; anything else is an `InputError` that names the field.

Whoever reads a file adds its name.  A checksum shows that a file is undamaged, not that its values make sense.
"""

from typing import Any

import torch

from equibayes.errors import InputError, one_line

HUGE = 1e100
"""No quantity is larger; its square is still a number."""


def number(value: Any, name: str, low: float = -HUGE, high: float = HUGE) -> float:
    """A finite number within bounds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise _unexpected(value, name, f"a number between {low:g} and {high:g}")
    return float(value)


def whole(value: Any, name: str, low: int = 0, high: int = 2**62) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _unexpected(value, name, f"a whole number between {low} and {high}")
    return value


def text(value: Any, name: str) -> str:
    """A text that can be printed."""
    if not isinstance(value, str) or any("\ud800" <= c <= "\udfff" for c in value):
        raise _unexpected(value, name, "a text")
    return value


def section(value: Any, name: str) -> dict[str, Any]:
    """Values by name."""
    if not isinstance(value, dict):
        raise _unexpected(value, name, "values by name")
    for key in value:
        text(key, f"a name in {name}")
    return value


def items(value: Any, name: str) -> list[Any]:
    """A list."""
    if not isinstance(value, list):
        raise _unexpected(value, name, "a list")
    return value


def texts(value: Any, name: str) -> list[str]:
    """A list of texts."""
    return [text(each, name) for each in items(value, name)]


def plain(value: Any, name: str, depth: int = 6) -> None:
    """None, true or false, numbers, texts, and lists and sections of them."""
    if isinstance(value, (dict, list)):
        if depth == 0:
            raise _unexpected(value, name, "nested less deeply")
        named = section(value, name).items() if isinstance(value, dict) else enumerate(value)
        for key, each in named:
            plain(each, f"{name}.{key}", depth - 1)
    elif isinstance(value, str):
        text(value, name)
    elif value is not None and not isinstance(value, bool):
        number(value, name)


def array(value: torch.Tensor, name: str, shape: tuple[int | None, ...], low: float | None = None) -> torch.Tensor:
    """A tensor of real numbers of this shape (None: any length), finite, and none below `low`."""
    found = tuple(value.shape)
    if len(found) != len(shape) or any(there is not None and there != own for own, there in zip(found, shape)):
        wanted = ", ".join("any" if there is None else str(there) for there in shape)
        raise InputError(f"{name} has shape {found}, not ({wanted})")
    if not value.is_floating_point():
        raise InputError(f"{name} holds {value.dtype}, not real numbers")
    finite = bool(value.isfinite().all()) if low is None else bool(((value >= low) & value.isfinite()).all())
    if not finite:
        raise InputError(f"{name} has values that are not finite" + ("" if low is None else f" or below {low:g}"))
    return value


def counts(value: torch.Tensor, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of whole numbers, none of them negative."""
    if tuple(value.shape) != shape:
        raise InputError(f"{name} has shape {tuple(value.shape)}, not {shape}")
    if value.dtype != torch.int64 or bool((value < 0).any()):
        raise InputError(f"{name} has values that are not whole or are negative")
    return value


def _unexpected(value: Any, name: str, wanted: str) -> InputError:
    return InputError(f"{name}={one_line(repr(value), 60)}: must be {wanted}")
