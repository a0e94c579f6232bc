"""The scripts of examples/clusters are sound; the one for Slurm starts a real cluster of two nodes and samples on
it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from equibayes.posterior.file import load
from tests.clusters import STORE

CLUSTERS = Path(__file__).parents[1] / "examples" / "clusters"
TINY = [
    *("--network", "tiny", "--samples", "4", "--threads", "1"),
    *("data.validation=4", "burn_in.steps=40", "burn_in.batch_size=4", "cycles.length=20", "cycles.batch_size=4"),
]


@pytest.mark.parametrize("script", sorted(CLUSTERS.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_parse(script: Path) -> None:
    assert os.access(script, os.X_OK)
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_kubernetes_manifest() -> None:
    """What KubeRay requires, and what equibayes does: results on a volume of the head, which runs no chains; one GPU a
    worker."""
    import ray

    job, claim = yaml.safe_load_all((CLUSTERS / "kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]
    assert "--cluster auto" in spec["entrypoint"]
    assert "--resume" in spec["entrypoint"]
    cluster = spec["rayClusterSpec"]
    assert cluster["rayVersion"] == ray.__version__, "the version that is pinned and tested"
    head = cluster["headGroupSpec"]
    assert head["rayStartParams"] == {"num-gpus": "0", "num-cpus": "0"}
    pod = head["template"]["spec"]
    (volume,) = pod["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert pod["containers"][0]["volumeMounts"] == [{"name": volume["name"], "mountPath": "/results"}]
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    resources = workers["template"]["spec"]["containers"][0]["resources"]
    assert resources["limits"] == resources["requests"]
    assert resources["limits"]["nvidia.com/gpu"] == "1"


def stand_ins(folder: Path) -> dict[str, str]:
    """An environment in which srun runs its command here and scontrol knows two hosts; both hosts are this one."""
    tools = folder / "bin"
    tools.mkdir()
    scripts = {
        "scontrol": 'printf "first\\nsecond\\n"',
        # drops its own options; Ray's memory is kept small
        "srun": (
            "while [[ $1 == -* ]]; do [[ $1 == -w ]] && shift; shift; done\n"
            f'[[ $1 == ray ]] && set -- "$@" --object-store-memory={STORE}\n'
            "[[ $1 == hostname ]] && { echo 127.0.0.1; exit; }\n"
            'exec "$@"'
        ),
        "equibayes": f'exec {sys.executable} -c "import sys; from equibayes.cli.main import main; sys.exit(main())" "$@"',
    }
    for name, text in scripts.items():
        (tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (tools / name).chmod(0o755)
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    slurm = {"SLURM_JOB_NODELIST": "two", "SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_ID": str(os.getpid())}
    # a job has no secret but that which its script makes
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**ours, "PATH": path, **slurm, "DATA": "bundled:ethanol@0:20", "OUTPUT": "a.posterior", "CHAINS": "4"}


@pytest.mark.slow
@pytest.mark.parametrize("script", ["laptop.sh", "many_gpus.sh"])
def test_one_machine(script: str, tmp_path: Path) -> None:
    """Where there are no GPUs, cores stand for them."""
    environment = stand_ins(tmp_path) | {"DEVICE": "cpu"}
    done = subprocess.run(
        [str(CLUSTERS / script), *TINY], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(load(tmp_path / "a.posterior")) == 4


@pytest.mark.slow
def test_slurm(tmp_path: Path) -> None:
    """Two nodes, the chains on both, and no process of Ray left behind."""
    done = subprocess.run(
        [str(CLUSTERS / "slurm.sh"), *TINY],
        cwd=tmp_path,
        env=stand_ins(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 chains in 2 groups of 2" in done.stdout
    assert len(load(tmp_path / "a.posterior")) == 4
    port = str(20000 + os.getpid() % 10000)
    left = subprocess.run(["pgrep", "-fa", f"127.0.0.1:{port}"], capture_output=True, text=True).stdout
    assert "raylet" not in left
