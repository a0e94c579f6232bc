"""The documentation builds, and nothing in it is missing."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", str(DOCS), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "report.png" in (tmp_path / "index.html").read_text()
    assert "burn_in" in (tmp_path / "settings.html").read_text()
    assert "equibayes calibrate" in (tmp_path / "commands.html").read_text()
