"""Memory freed by one step serves the next without the system's help."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
from equibayes.allocator import keep_freed_memory
torch.set_num_threads(1)
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def step():
    parts = [torch.ones(5_000_000) for _ in range(5)]  # 20 MB each, freed at the end
    large = [torch.ones(12_000_000) for _ in range(2)]  # 48 MB: more than glibc keeps by itself
for _ in range(6):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(word: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, word], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="about glibc")
def test_no_page_faults_after_the_first_steps():
    assert page_faults("leave") > 10 * max(page_faults("keep"), 10)
