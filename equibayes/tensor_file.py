"""Tensors, a JSON header and a checksum in one safetensors file: the format of checkpoints and posterior files.

Nothing in such a file can be executed.  The header is one JSON text under the key `equibayes`; its entry `sha256`
covers the tensors and all other entries, so that any changed byte is noticed.  Equal content gives equal bytes.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from equibayes.errors import InputError, one_line
from equibayes.files import write_atomically

KEY = "equibayes"
Tensors = dict[str, torch.Tensor]
Upgrade = Callable[[dict[str, Any]], None]
"""Changes a header of one format version, in place, to that of the next."""


def write(path: Path, tensors: Tensors, header: Mapping[str, Any], *, format: str, version: int) -> None:
    """Write atomically.  `header` must be JSON without NaN."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = {**header, "format": format, "format_version": version}
    text = json.dumps({**content, "sha256": _digest(plain, content)}, sort_keys=True, allow_nan=False)
    # written through Python's own file object, whose errors give the reason (disk full, missing permission)
    data = save(plain, {KEY: text})
    write_atomically(path, lambda temporary: temporary.write_bytes(data))


def read(
    path: Path, *, format: str, version: int, what: str, upgrades: Mapping[int, Upgrade] | None = None
) -> tuple[dict[str, Any], Tensors]:
    """Header and tensors, verified and brought to format `version`.

    what      the name of such a file in messages
    upgrades  by version, the function that brings a header of that version to the next one
    """
    if not path.is_file():
        raise InputError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}; name a {what}")
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(KEY)
            # clones are aligned, unlike a mapped file; the last bits of some kernels depend on it
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        header: Any = None if text is None else json.loads(text)
        digest = _digest(tensors, {k: v for k, v in header.items() if k != "sha256"}) if _is_header(header) else ""
    except (SafetensorError, OSError, ValueError, TypeError, RuntimeError, AttributeError, KeyError) as cause:
        raise InputError(f"{path}: not a {what}, or a damaged one ({_first_line(cause)})") from cause
    if not _is_header(header) or header["format"] != format:
        found = header["format"] if _is_header(header) else "a safetensors file of another program"
        raise InputError(f"{path}: not a {what} but {one_line(found, 40)}")
    found, upgrades = header.get("format_version"), upgrades or {}
    if isinstance(found, bool) or not isinstance(found, int) or (found != version and found not in upgrades):
        raise InputError(
            f"{path}: {what} of format {one_line(found, 40)}, this equibayes reads format {version}; "
            "use the equibayes that wrote it, or a newer one"
        )
    if header.pop("sha256", None) != digest:
        raise InputError(f"{path}: damaged {what} (the checksum differs)")
    try:
        for number in range(found, version):
            upgrades[number](header)
    except (KeyError, TypeError, AttributeError) as cause:
        raise InputError(f"{path}: this {what} of format {found} makes no sense ({one_line(repr(cause))})") from cause
    return header | {"format_version": version}, tensors


def is_tensor_file(path: Path) -> bool:
    """Whether the content looks like safetensors: the length of a header, then the header's opening brace."""
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except (OSError, ValueError):  # ValueError: a NUL character in the name
        return False
    return len(start) == 9 and start[8:] == b"{" and int.from_bytes(start[:8], "little") <= path.stat().st_size


def _is_header(header: Any) -> bool:
    return isinstance(header, dict) and "format" in header


def _digest(tensors: Mapping[str, torch.Tensor], header: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _first_line(cause: BaseException) -> str:
    return (str(cause).splitlines() or [type(cause).__name__])[0]
