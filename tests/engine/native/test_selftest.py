"""The checks of `python -m equibayes.selftest --engine native`, for the networks that compile in seconds."""

import pytest

from equibayes.engine import selftest
from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.native.target import VARIABLE, best
from equibayes.engine.selftest import NATIVE_NETWORKS, Check, NativeEngine, cluster, crystal, native_checks, report
from equibayes.engine.selftest_cases import training

if why_no_compiler():
    pytest.skip(str(why_no_compiler()), allow_module_level=True)

WIDTHS = [cpu for cpu in ("avx512", "avx2") if cpu == best() or best() == "avx512"] or [best()]


def passed(checks) -> None:
    found = list(checks)
    assert found
    assert not [check for check in found if not check.passed]


@pytest.mark.parametrize(
    ("name", "cpu"), [("small", best()), *((name, cpu) for name in ("tiny", "tiny, stress") for cpu in WIDTHS)]
)
def test_gradient_and_whole_steps(name, cpu, monkeypatch):
    monkeypatch.setenv(VARIABLE, cpu)
    config, engine = NATIVE_NETWORKS[name], NativeEngine()
    frames = training(config, small=False)[:3]
    passed(selftest.check_gradient(name, config, frames, 2, engine, "cpu"))
    passed(selftest.check_steps(name, config, frames, 2, engine, "cpu"))
    passed(selftest.check_moving(name, config, crystal(8, 5.0, 6), 2, engine, "cpu"))
    passed(selftest.check_derivative(name, config, cluster(12, 13), engine, "cpu"))


@pytest.mark.slow
def test_all_networks():
    passed(native_checks(small=False))


def test_a_failed_check_is_a_failed_command(capsys):
    assert report(iter([Check("good", 1e-7, 1e-5)])) == 0
    assert report(iter([Check("good", 1e-7, 1e-5), Check("bad", float("nan"), 1e-5)])) == 1
    assert "1 checks failed" in capsys.readouterr().out
    assert report(iter([]), "there is no C++ compiler") == 2
