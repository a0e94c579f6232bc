"""The wheel: built from the checkout, installed into an environment of its own, and used outside the checkout.

The environment has the equibayes of the wheel and nothing else of its own; torch and the others are those of the
environment that runs the tests.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from equibayes.version import __version__

ROOT = Path(__file__).parents[1]
INGREDIENTS = ("pyproject.toml", "README.md", "LICENSE")
TINY = ["chains=2", "samples=2", "data.validation=4", "burn_in.steps=40", "cycles.length=8"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that leftovers of earlier builds cannot get into it."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in INGREDIENTS:
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "equibayes", folder / "equibayes", ignore=shutil.ignore_patterns("__pycache__"))
    call(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", ".", cwd=folder)
    (found,) = (folder / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`equibayes` of the wheel, in an environment that sees the packages of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    call(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel, cwd=folder)
    own = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    # a .pth within this folder, as of an editable installation, has no effect there
    (own / "shared.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "equibayes"


def call(*words: object, cwd: Path) -> str:
    """Standard output of a command that succeeds; it sees neither this checkout nor compiled engines."""
    seen = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "EQUIBAYES_ENGINE")}
    seen |= {"XDG_CACHE_HOME": str(cwd), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=seen, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "equibayes"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    files = tracked or [
        str(path.relative_to(ROOT)) for path in (ROOT / "equibayes").rglob("*.*") if path.suffix != ".pyc"
    ]
    assert len(files) > 200
    with ZipFile(wheel) as archive:
        assert set(files) <= set(archive.namelist())


def test_engine_data_and_report_work_outside_the_checkout(program: Path, tmp_path: Path) -> None:
    """Bundled data, the C++ engine compiled from the installed sources, the files of the report."""
    python = program.with_name("python")
    where = call(python, "-c", "import equibayes; print(equibayes.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(program.parents[1])
    found = "from openmmml import MLPotential; print(MLPotential._implFactories['equibayes'])"
    assert "equibayes.adapters.openmm_factory.Factory" in call(python, "-c", found, cwd=tmp_path)
    assert call(program, "--version", cwd=tmp_path) == f"equibayes {__version__}\n"
    words = ["sample", "bundled:ethanol@0:20", "-o", "a.posterior", "--network", "tiny", "--engine", "native", *TINY]
    call(program, *words, cwd=tmp_path)
    assert list(tmp_path.glob("equibayes/**/*.so"))
    call(program, "evaluate", "a.posterior", "bundled:ethanol@20:30", "--report", "report.html", cwd=tmp_path)
    assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")
