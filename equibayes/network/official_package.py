"""What a package of NequIP (`.nequip.zip`) holds: the settings of its model and its weights.

A package is an archive of `torch.package`: source files, the settings as YAML, tensors as plain files, and a pickle of
the model.  Loading it with torch runs its code.  Here the pickle is read by an unpickler that knows no class and no
function: whatever it names becomes an empty shell that keeps its state, and tensors are made of the plain files.
"""

import io
import pickle
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from equibayes import plain_yaml
from equibayes.errors import InputError, one_line

CONFIG, MODEL = "model/config.yaml", "model/eager_model.pkl"
TYPES = {"DoubleStorage": torch.float64, "FloatStorage": torch.float32, "LongStorage": torch.int64}
TYPES |= {"IntStorage": torch.int32, "BoolStorage": torch.bool}
LARGEST = 1 << 32
"""Bytes of a file in the archive."""


def read_package(path: str | Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Settings of the model and its state dict; nothing in the file is executed."""
    try:
        with zipfile.ZipFile(path) as archive:
            root = _root(archive)
            config = plain_yaml.load(_read(archive, f"{root}/{CONFIG}").decode("utf-8"))
            model = _Reader(archive, root).load()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except InputError as cause:
        raise InputError(f"{path}: {cause}") from cause
    except Exception as cause:  # zipfile and pickle raise nearly any exception for damaged files
        raise InputError(f"{path}: not a readable package of NequIP ({one_line(cause, 100)})") from cause
    try:
        settings = dict(config["training_module"]["model"])
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: no settings of a model in its {CONFIG}") from None
    state: dict[str, torch.Tensor] = {}
    _collect(model, "", state)
    if not state:
        raise InputError(f"{path}: no weights in its {MODEL}")
    return settings, state


def _root(archive: zipfile.ZipFile) -> str:
    found = [name for name in archive.namelist() if name.endswith(f"/{MODEL}")]
    if len(found) != 1:
        raise InputError(f"not a package of NequIP (no {MODEL} in it)")
    return str(PurePosixPath(found[0]).parent.parent)


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > LARGEST:
        raise InputError(f"{name} in it is too large")
    return archive.read(name)


class Shell:
    """Stands for an object of any class; what it was made of is kept and never used."""

    def __new__(cls, *_: Any, **__: Any) -> "Shell":
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        self.state: Any = {}

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass

    def extend(self, values: Any) -> None:
        pass

    def add(self, value: Any) -> None:
        pass


class _Reader(pickle.Unpickler):
    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(io.BytesIO(_read(archive, f"{root}/{MODEL}")))
        self.archive, self.root = archive, root
        self.known: dict[str, Any] = {
            "collections.OrderedDict": dict,
            "torch._utils._rebuild_tensor_v2": _tensor,
            "torch._utils._rebuild_parameter": lambda data, *_: data,
        }

    def find_class(self, module: str, name: str, /) -> Any:
        """Never a class or function of a module: nothing is imported."""
        return self.known.get(f"{module}.{name}") or type(name, (Shell,), {})

    def persistent_load(self, pid: Any) -> torch.Tensor:
        """A storage: ("storage", type, number, device, length)."""
        kind, of, number, _, length = pid
        dtype = TYPES.get(of.__name__)
        if kind != "storage" or dtype is None:
            raise InputError(f"a tensor of type {of.__name__} in it cannot be read")
        content = _read(self.archive, f"{self.root}/.data/{int(number)}.storage")
        if not content:
            return torch.empty(0, dtype=dtype)
        return torch.frombuffer(bytearray(content), dtype=dtype)[: int(length)]


def _tensor(storage: torch.Tensor, offset: int, size: Any, stride: Any, *_: Any) -> torch.Tensor:
    """A copy; torch checks that the view lies within the storage."""
    count = int(np.prod(size, dtype=np.int64))
    if not count:
        return storage.new_empty(tuple(size))
    return torch.as_strided(storage, tuple(size), tuple(stride), offset).clone()


def _collect(module: Any, prefix: str, state: dict[str, torch.Tensor]) -> None:
    """Parameters and buffers of a module and of those in it, under the names of its state dict."""
    own = module.state if isinstance(module, Shell) else {}
    if not isinstance(own, dict):
        return
    for part in ("_parameters", "_buffers"):
        for name, value in (own.get(part) or {}).items():
            if torch.is_tensor(value):
                state[f"{prefix}{name}"] = value
    for name, inner in (own.get("_modules") or {}).items():
        _collect(inner, f"{prefix}{name}.", state)
