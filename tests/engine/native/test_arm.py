"""The C++ sources for ARM with NEON, compiled by the compiler of the extra `compiler` (ziglang), which knows all CPUs.

What they compute is looked at on an emulated CPU, where there is one: `apt-get install qemu-user`.
"""

import ctypes
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import Flat
from equibayes.engine import selftest_cases, selftest_checks
from equibayes.engine.native import compile as compiling
from equibayes.engine.native.layout import WeightMemory
from equibayes.engine.native.module import sources
from equibayes.engine.native.steps import view_of_data
from equibayes.engine.native.target import TARGETS
from equibayes.sampling.noise import NoiseKey, random_words, standard_normal

from .test_gradients import MOLECULES, TINY

if importlib.util.find_spec("ziglang") is None:
    pytest.skip("no compiler for ARM: pip install ziglang", allow_module_level=True)
QEMU = shutil.which("qemu-aarch64")
NEON = TARGETS["neon"]
ZIG = (sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-linux-musl", "-mcpu=neoverse_n1")
FLAGS = (*compiling.FLAGS, compiling.FAST, f"-DWIDTH={NEON.width}")
DRIVER = """
#include <cstdio>
#include <vector>
#include "potential.h"
#include "vector.h"
namespace equibayes {
EXPORT void potential_run(const Data*, int64_t, int64_t, int, const int64_t*, const float*, const float*, double, double,
                          float*, Seen*, int64_t);
EXPORT void draw_noise(uint64_t, uint32_t, uint32_t, uint32_t, long, uint32_t*, float*);
}
using namespace equibayes;
static int64_t number() { int64_t x; return fread(&x, 8, 1, stdin) == 1 ? x : -1; }
static void* array() {
    const int64_t bytes = number();
    char* start = new char[bytes + 64];
    return fread(start, 1, bytes, stdin) == size_t(bytes) ? start : nullptr;
}
// Data as words, each a number or an array; chains, frames of a minibatch, frames, weights; numbers of noise
int main() {
    std::vector<int64_t> words(number());
    for (auto& word : words) word = number() ? (int64_t)array() : number();
    const int64_t chains = number(), batch = number();
    const int64_t* frames = (const int64_t*)array();
    const float* weights = (const float*)array();
    std::vector<float> gradient(chains * WEIGHTS);
    std::vector<Seen> seen(chains);
    const Data* data = (const Data*)words.data();
    potential_run(data, chains, batch, 0, frames, weights, nullptr, 1.0, 0.0, gradient.data(), seen.data(), 2);
    fwrite(gradient.data(), 4, gradient.size(), stdout);
    for (auto& each : seen) fwrite(&each.log_p, 8, 1, stdout);
    const long size = number();
    std::vector<uint32_t> bits(size);
    std::vector<float> normals(size);
    draw_noise(7, 5, 3, 0, size, bits.data(), normals.data());
    fwrite(bits.data(), 4, size, stdout);
    fwrite(normals.data(), 4, size, stdout);
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All sources of a network."""
    place, model = tmp_path_factory.mktemp("arm"), StochasticModel(TINY)
    own = sources(model, WeightMemory(model, NEON.width))
    common = ((compiling.HERE / "source" / name) for name in (*compiling.COMMON, *compiling.STEPS))
    texts = compiling._headers() | own | {path.name: path.read_text(encoding="utf-8") for path in common}
    compiling._write(place, texts | {"driver.cpp": DRIVER})
    return place


def run(folder: Path, *words: str) -> None:
    done = subprocess.run([*ZIG, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_every_source_compiles_to_vectors_of_neon(folder: Path) -> None:
    names = sorted(path.name for path in folder.glob("*.cpp"))
    assert {"gemm.cpp", "layer0.cpp", "prediction.cpp", "radial.cpp", "steps.cpp", "training.cpp"} < set(names)
    running = {
        name: subprocess.Popen(
            [*ZIG, *FLAGS, "-g0", "-I.", "-S", name, "-o", f"{name}.s"], cwd=folder, stderr=subprocess.PIPE, text=True
        )
        for name in names
    }
    for name, process in running.items():
        errors = process.communicate()[1]
        assert process.returncode == 0, (name, errors[-3000:])
    assembly = {name: (folder / f"{name}.s").read_text(encoding="utf-8", errors="replace") for name in names}
    for name in ("gemm.cpp", "layer0.cpp", "layer1.cpp", "radial.cpp"):
        assert len(re.findall(r"\bfml[as]\tv\d+\.4s", assembly[name])) > 10, f"{name}: four floats at a time"
    assert len(re.findall(r"\bumull2?\tv\d+\.2d", assembly["steps.cpp"])) > 10, "noise: two 64-bit products at a time"
    assert len(re.findall(r"\bzip[12]\tv\d+\.4s", assembly["layer1.cpp"])) > 3, "sums over channels"


@pytest.mark.slow
@pytest.mark.skipif(QEMU is None, reason="no emulated ARM CPU: apt-get install qemu-user")
def test_what_an_emulated_cpu_computes(folder: Path) -> None:
    """Gradients of the likelihood within float32 of the reference, and the noise of a step."""
    names = sorted(path.name for path in folder.glob("*.cpp"))
    run(folder, *FLAGS, "-I.", "-static", *names, "-o", "driver")
    model, size = StochasticModel(TINY), 6400
    memory, flat = WeightMemory(model, NEON.width), selftest_cases.weights(model, 2, 2)
    single, double = (
        Potential(model, selftest_cases.data(MOLECULES, TINY, dtype, "cpu"), Flat())
        for dtype in (torch.float32, torch.float64)
    )
    frames, scale = torch.tensor([[0, 1, 2], [1, 1, 0]]), model.layout.scale.like(flat)
    weights = torch.zeros(2, memory.size)
    weights[:, memory.places.long()] = (flat * scale).float()
    view, kept = view_of_data(single.data)
    given = words_of(view, kept) + numbers(2, 3) + blob(frames) + blob(weights) + numbers(size)
    done = subprocess.run([str(QEMU), "./driver"], cwd=folder, input=given, capture_output=True)
    assert done.returncode == 0, done.stderr
    found = np.frombuffer(done.stdout[: 8 * memory.size], np.float32).reshape(2, -1)
    log_p = np.frombuffer(done.stdout[8 * memory.size :][:16], np.float64)
    noise = np.frombuffer(done.stdout[8 * memory.size + 16 :], np.uint32)

    expected = double(flat, frames)
    gradient = torch.from_numpy(found.copy())[:, memory.places.long()] * scale * single.data_size / frames.shape[1]
    assert selftest_checks.relative(gradient, expected.gradient) < 1e-5
    assert selftest_checks.relative(torch.from_numpy(log_p.copy()) / 3, expected.log_likelihood) < 1e-6
    key = NoiseKey(7, (3,))
    np.testing.assert_array_equal(noise[:size], random_words(key, 5, size, stream=0)[0].numpy())
    normals = torch.from_numpy(noise[size:].copy().view(np.float32))
    assert float((normals - standard_normal(key, 5, size, dtype=torch.float32)[0]).abs().max()) < 3e-6


def numbers(*values: int) -> bytes:
    return np.array(values, np.int64).tobytes()


def blob(tensor: torch.Tensor) -> bytes:
    content = tensor.contiguous().numpy().tobytes()
    return numbers(len(content)) + content


def words_of(view: ctypes.Structure, kept: list[torch.Tensor]) -> bytes:
    """A structure of numbers and addresses of these tensors, for the driver."""
    by_address = {tensor.data_ptr(): tensor for tensor in kept}
    found = numbers(len(view._fields_))
    for name, kind in (field[:2] for field in view._fields_):
        value = getattr(view, name) or 0
        pointer = kind is ctypes.c_void_p and value
        found += numbers(1) + blob(by_address[value]) if pointer else numbers(0, value)
    return found
