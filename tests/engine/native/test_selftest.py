"""`python -m equibayes.selftest --engine native`, with the vectors of this CPU and with those of AVX2."""

import pytest

from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.native.target import VARIABLE, best
from equibayes.engine.selftest import Check, native_checks, report

if why_no_compiler():
    pytest.skip(str(why_no_compiler()), allow_module_level=True)

WIDTHS = [cpu for cpu in ("avx512", "avx2") if cpu == best() or best() == "avx512"] or [best()]


def passed(checks) -> None:
    found = list(checks)
    assert found
    assert not [check for check in found if not check.passed]


@pytest.mark.parametrize("cpu", WIDTHS)
def test_networks_that_compile_quickly(cpu, monkeypatch):
    monkeypatch.setenv(VARIABLE, cpu)
    passed(native_checks(small=True))


@pytest.mark.slow
@pytest.mark.parametrize("cpu", WIDTHS)
def test_all_networks(cpu, monkeypatch):
    monkeypatch.setenv(VARIABLE, cpu)
    passed(native_checks(small=False))


def test_a_failed_check_is_a_failed_command(capsys):
    assert report(iter([Check("good", 1e-7, 1e-5)])) == 0
    assert report(iter([Check("good", 1e-7, 1e-5), Check("bad", float("nan"), 1e-5)])) == 1
    assert "1 checks failed" in capsys.readouterr().out
    assert report(iter([]), "there is no C++ compiler") == 2
