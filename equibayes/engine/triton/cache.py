"""The cache of generated kernels."""

import hashlib
import importlib.util
from types import ModuleType

from equibayes.engine.cache import code_cache
from equibayes.files import write_text


def load_kernels(source: str) -> ModuleType:
    """The generated module.  Triton reads the source from a file, so there is one file per network, which is kept."""
    name = hashlib.sha256(source.encode()).hexdigest()[:16]
    path = code_cache() / f"kernels_{name}.py"
    if not path.is_file() or path.read_text(encoding="utf-8") != source:
        write_text(path, source)
    spec = importlib.util.spec_from_file_location(f"equibayes_kernels_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
