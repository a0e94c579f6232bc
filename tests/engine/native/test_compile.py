"""From C++ text to a loaded library: the cache, two processes at once, and what is said where it fails."""

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

from equibayes.engine.native import compile as compiling
from equibayes.engine.native.compile import CompileError, build, compiler, why_no_compiler
from equibayes.engine.native.target import TARGETS, VARIABLE, best, target
from equibayes.errors import InputError

if why_no_compiler():
    pytest.skip(str(why_no_compiler()), allow_module_level=True)

ANSWER = {"answer.h": "constexpr int ANSWER = %d;", "answer.cpp": '#include "answer.h"\nextern "C" __attribute__(( \
visibility("default"))) int answer() { return ANSWER; }\n'}  # fmt: skip


def answer(number: int) -> dict[str, str]:
    return ANSWER | {"answer.h": ANSWER["answer.h"] % number}


def test_compiled_once_and_found_again(monkeypatch):
    said: list[str] = []
    number = os.getpid()
    assert build("answer", answer(number), say=said.append).answer() == number
    assert len(said) == 1
    assert "once on this machine" in said[0]
    assert build("answer", answer(number), say=said.append).answer() == number
    monkeypatch.setattr(compiling, "_loaded", {})  # as another process would find it
    assert build("answer", answer(number), say=said.append).answer() == number
    assert len(said) == 1
    assert build("answer", answer(number + 1), say=said.append).answer() == number + 1, "a header is part of it"


def test_an_error_of_the_compiler_is_one_line():
    with pytest.raises(CompileError, match=r"^the C\+\+ compiler failed: .*bad\.cpp.*error") as caught:
        build("bad", {"bad.cpp": "int half( {"})
    assert "\n" not in str(caught.value)


def test_without_a_compiler(monkeypatch):
    monkeypatch.setattr(compiling, "compiler", lambda: None)
    assert "equibayes[compiler]" in str(why_no_compiler())
    with pytest.raises(CompileError, match=r"install a C\+\+ compiler"):
        build("answer", answer(-1))


def test_which_compiler(monkeypatch, tmp_path):
    for name in ("clang++", "my"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert compiler.__wrapped__() == ("clang++",)
    monkeypatch.setenv("CXX", "my -x c++")
    assert compiler.__wrapped__() == ("my", "-x", "c++")
    monkeypatch.setenv("CXX", "missing")
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr(compiling.importlib.util, "find_spec", lambda name: None)
    assert compiler.__wrapped__() is None
    monkeypatch.setattr(compiling.importlib.util, "find_spec", lambda name: name == "ziglang")
    assert compiler.__wrapped__() == (sys.executable, "-m", "ziglang", "c++")


def test_two_processes_at_once(tmp_path):
    """Both need what neither finds; one compiles, the other waits for it."""
    script = f"""
from equibayes.engine.native import compile as compiling
compiling.COMMON = ()
said = []
print(compiling.build("answer", {answer(7)!r}, say=said.append).answer(), len(said))
"""
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", script]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = sorted(process.communicate()[0].split() for process in running)
    assert printed == [["7", "0"], ["7", "1"]]


def test_the_cpu_can_be_chosen(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert target() == TARGETS[best()]
    monkeypatch.setenv(VARIABLE, "avx2")
    assert target().width == 8
    monkeypatch.setenv(VARIABLE, "mmx")
    with pytest.raises(InputError, match="EQUIBAYES_CPU=mmx: is unknown; use one of avx512, avx2"):
        target()


CHECKS = """
#include <atomic>
#include "gemm.h"
#include "space.h"
#include "threads.h"
#include "vector.h"
using namespace equibayes;
EXPORT void multiply(long M, long N, long K, const float* A, long row, long column, const float* B, long b, float* C, long c, int add) {
    gemm(M, N, K, A, row, column, B, b, C, c, add);
}
EXPORT void turn(const float* W, long rows, long columns, float* T) { transpose(W, rows, columns, columns, T, rows); }
EXPORT void functions(const float* x, float* out, long n) {
    for (long i = 0; i < n; i += WIDTH) {
        vec v = load(x + i), s, c, all[6] = {exp(v), sigmoid(v), tanh(v), log(v * v + 1e-3f)};
        sincos(v, all[4], all[5]);
        for (int k = 0; k < 6; ++k) store(out + k * n + i, all[k]);
    }
}
EXPORT void curve(uint32_t side, uint32_t* numbers) {
    for (uint32_t i = 0; i < side * side * side; ++i) {
        uint32_t cell[3] = {i / side / side, i / side % side, i % side};
        numbers[i] = along_curve(cell);
    }
}
EXPORT float sum(const float* x) { return hsum(load(x)); }
EXPORT long nested(int threads, long count) {
    set_threads(threads);
    std::atomic<long> total{0};
    parallel(count, [&](long i) { parallel(4, [&](long j) { total += i * j; }); });
    parallel_if_long(count, [&](long i) { parallel_if_long(3, [&](long j) { total += i * (j + 4); }); });
    return total;
}
"""


# the vectors that this CPU has
HERE = {"avx512": ("avx512", "avx2", "sse"), "avx2": ("avx2", "sse")}.get(best(), (best(),))


@pytest.fixture(params=HERE)
def checks(request, monkeypatch):
    """Compiled for each kind of vectors."""
    monkeypatch.setenv(VARIABLE, request.param)
    return build("checks", {"checks.cpp": CHECKS})


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (7, 16, 5), (64, 64, 64), (13, 37, 3), (50, 112, 9), (3, 8, 0), (0, 4, 4)]
)
def test_products_of_matrices(checks, sizes):
    M, N, K = sizes
    rng = np.random.default_rng(0)
    A, B, C = (rng.normal(size=size).astype(np.float32) for size in ((M, K), (K, N + 3), (M, N + 2)))
    T = np.ascontiguousarray(A.T)
    expected = A.astype(float) @ B[:, :N]
    for add in (0, 1):
        for source, row, column in ((A, K, 1), (T, 1, M)):
            found = C.copy()
            numbers = (ctypes.c_long(each) for each in (M, N, K))
            checks.multiply(
                *numbers, pointer(source), ctypes.c_long(row), ctypes.c_long(column), pointer(B), ctypes.c_long(N + 3),
                pointer(found), ctypes.c_long(N + 2), add,
            )  # fmt: skip
            np.testing.assert_allclose(found[:, :N], expected + add * C[:, :N], atol=2e-5)
            np.testing.assert_array_equal(found[:, N:], C[:, N:])


def test_functions_are_exact_to_the_last_place_or_two(checks):
    x = np.linspace(-30, 30, 16 * 4000, dtype=np.float32)
    found = np.zeros((6, len(x)), np.float32)
    checks.functions(pointer(x), pointer(found), ctypes.c_long(len(x)))
    y = x.astype(float)
    expected = [np.exp(y), 1 / (1 + np.exp(-y)), np.tanh(y), np.log(y * y + 1e-3), np.sin(y), np.cos(y)]
    for number, (ours, exact) in enumerate(zip(found, expected)):
        size = np.abs(exact) if number < 3 else 1 + np.abs(exact)
        assert float((np.abs(ours - exact) / size).max()) < 2.5e-7, number


def test_sum_of_lanes_and_transposed(checks):
    checks.sum.restype = ctypes.c_float
    x = np.arange(16, dtype=np.float32)
    assert checks.sum(pointer(x)) == float(x[: target().width].sum())
    W, T = np.arange(600, dtype=np.float32).reshape(20, 30), np.zeros((30, 20), np.float32)
    checks.turn(pointer(W), ctypes.c_long(20), ctypes.c_long(30), pointer(T))
    np.testing.assert_array_equal(T, W.T)


def test_neighbouring_cells_along_a_curve(checks):
    side = 32
    numbers = np.zeros(side**3, np.uint32)
    checks.curve(ctypes.c_uint32(side), pointer(numbers))
    assert sorted(numbers) == list(range(side**3))
    cells = np.stack(np.unravel_index(np.argsort(numbers), [side] * 3), axis=1)
    assert (np.abs(np.diff(cells, axis=0)).sum(1) == 1).all()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_share_nested_work(checks, threads):
    checks.nested.restype = ctypes.c_long
    for count in (0, 1, 2, 300):
        assert checks.nested(threads, ctypes.c_long(count)) == 21 * (count - 1) * count // 2


def test_a_forked_process_has_threads_of_its_own(checks):
    checks.nested.restype = ctypes.c_long
    assert checks.nested(3, ctypes.c_long(50)) == 21 * 49 * 25
    child = os.fork()
    if child == 0:
        os._exit(0 if checks.nested(3, ctypes.c_long(50)) == 21 * 49 * 25 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_unit_depends_on_the_headers_that_it_includes():
    texts = {"a.h": '#include "b.h"', "b.h": "int b;", "c.h": "int c;", "one.cpp": '#include "a.h"\n', "two.cpp": ""}

    def keys(**changes):
        now = texts | {name.replace("_", "."): text for name, text in changes.items()}
        return [compiling._unit(name, now, slow=False).key for name in ("one.cpp", "two.cpp")]

    first, second = keys()
    assert first != second
    assert keys(c_h="int d;") == [first, second]
    changed, same = keys(b_h="int c;")
    assert changed != first
    assert same == second


def test_scales_of_the_data_do_not_compile_the_layers_again():
    from equibayes.bayes.model import StochasticModel
    from equibayes.engine import selftest_cases
    from equibayes.engine.native.layout import WeightMemory
    from equibayes.engine.native.module import sources
    from equibayes.network.config import preset

    def keys(scale):
        model = StochasticModel(preset("tiny", **selftest_cases.SCALES | {"per_type_energy_scales": scale}))
        texts = sources(model, WeightMemory(model, 16))
        return {name: compiling._unit(name, texts, slow=False).key for name in texts if name.endswith(".cpp")}

    one, other = keys(1.0), keys(2.0)
    assert [name for name in one if one[name] != other[name]] == ["training.cpp", "prediction.cpp", "rows.cpp"]
