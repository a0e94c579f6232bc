"""One trajectory that is finished with few labels: where the model does not know, it asks, learns at once and goes on from there.

    result = on_the_fly(posterior, data, atoms, Conditions("bussi", temperature=300), 2000, labeller, Trust(0.1, 1.0), config, "fly")

In every step the largest deviation of the frame is held against the trust levels.  A candidate is labelled, the label joins the data,
the chains go on from their samples (`resample.py`), and the same positions and momenta move on under the new posterior.  Beyond the
upper level, or where σ is no number, the trajectory ends: that frame is never sent.

| file in the folder          |                                                                  |
|-----------------------------|------------------------------------------------------------------|
| trajectory.xyz              | every n-th frame with forces, energy and their σ                 |
| label-0000/data.xyz …       | all that was learned from after the first label                  |
| label-0000/fly.posterior …  | and the posterior that it gave                                   |
| asked.json                  | steps, σ and the true force error of every frame that was asked  |
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from ase import Atoms

from equibayes.data.dataset import Dataset
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.files import lock, make_folder, remove_leftovers, write_text
from equibayes.learning.exact_xyz import write_exact
from equibayes.learning.labellers import Refusal
from equibayes.learning.pool_labels import Labels
from equibayes.learning.resample import ResampleSettings, resample
from equibayes.learning.screen import too_close
from equibayes.posterior.file import Posterior
from equibayes.sampling.settings import SampleConfig
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.frames import trajectory_frame
from equibayes.simulate.growing import GrowingFile
from equibayes.simulate.integrators import Conditions, Integrator
from equibayes.simulate.trust import Deviation, Trust


@dataclass(frozen=True)
class Asked:
    """A frame that was sent to the labeller.

    sigma   eV/Å, the largest deviation of the frame before it was learned
    error   eV/Å, RMS of force components, model minus engine; None where the engine gave no label (`refused` says why)
    """

    step: int
    sigma: float
    error: float | None
    refused: str = ""


@dataclass(eq=False)
class FlyResult:
    """ended: None where all steps were done, else why not;  posterior, data: as they are after the last label."""

    atoms: Atoms
    posterior: Posterior
    data: Dataset
    step: int = 0
    asked: list[Asked] = field(default_factory=list)
    ended: str | None = None

    @property
    def fraction(self) -> float:
        """Share of steps that called the labeller."""
        return len(self.asked) / max(1, self.step)


def on_the_fly(
    posterior: Posterior,
    data: Dataset,
    start: Atoms,
    conditions: Conditions,
    steps: int,
    labeller: Labels,
    trust: Trust,
    config: SampleConfig,
    folder: str | Path,
    *,
    resampling: ResampleSettings | None = None,
    gap: int = 10,
    every: int = 10,
    deviation: str = "total",
    device: str = "cpu",
    say: Callable[[str], None] = print,
) -> FlyResult:
    """Simulate `steps` steps, asking the labeller where σ is between the trust levels.

    data    what `posterior` was conditioned on; all of it is learned from again
    config  settings of the sampler; chains and network must be those of `posterior`
    gap     steps between two labels, at least: neighbours in time are nearly the same
    every   steps between frames of the trajectory
    """
    if trust.lower is None:
        raise InputError("on-the-fly dynamics needs a lower trust level: it says when to ask")
    if min(steps, gap, every) < 1:
        raise InputError(f"steps {steps}, gap {gap}, every {every}: each must be at least 1")
    key = {"total": "forces_uncertainty", "epistemic": "forces_epistemic"}[deviation]
    atoms = Atoms(start.numbers, start.positions, cell=start.cell, pbc=start.pbc)
    atoms.calc = Calculator(posterior, device=device)
    integrator = Integrator(atoms, conditions)
    result, last = FlyResult(atoms, posterior, data), -gap
    folder = make_folder(folder)
    with lock(folder):
        remove_leftovers(folder)
        trajectory = GrowingFile(folder / "trajectory.xyz", 0)
        try:
            while result.ended is None:
                found = _look(atoms, key)
                result.ended = _verdict(found, trust, result.step, atoms)
                wanted = trust.state(found.largest) == "candidate" and result.step - last >= gap
                if result.ended is None and wanted:
                    last = result.step
                    _ask(result, found, labeller, config, resampling, folder, device, say)
                if result.ended is None and result.step % every == 0:
                    atoms.get_forces()  # of the new posterior, where there is one
                    time_fs = result.step * conditions.timestep
                    trajectory.append(trajectory_frame(atoms, atoms.calc.results, result.step, time_fs))
                if result.ended is not None or result.step == steps:
                    break
                integrator.step()
                result.step += 1
        finally:
            trajectory.close()
    return result


def _look(atoms: Atoms, key: str) -> Deviation:
    atoms.get_forces()
    return Deviation.of(atoms.calc.results[key])


def _verdict(found: Deviation, trust: Trust, step: int, atoms: Atoms) -> str | None:
    """Why the trajectory must end; None if it need not."""
    state = trust.state(found.largest)
    if state in ("exploded", "unknown"):
        return f"at step {step} σ of atom {found.atom} is {found.largest:.3g} eV/Å: {state}"
    return f"at step {step} two atoms are too close" if too_close(Structure.from_atoms(atoms)) else None


def _ask(
    result: FlyResult,
    found: Deviation,
    labeller: Labels,
    config: SampleConfig,
    resampling: ResampleSettings | None,
    folder: Path,
    device: str,
    say: Callable[[str], None],
) -> None:
    """Label the frame, learn from it, and give the atoms the new posterior."""
    # a copy: a structure shares the array of positions, which the integrator moves on
    frame = Structure.from_atoms(result.atoms.copy(), f"on the fly, step {result.step}")
    predicted = result.atoms.get_forces()
    answer = labeller.label(frame)
    if isinstance(answer, Refusal):
        result.asked.append(Asked(result.step, found.largest, None, answer.reason))
        say(f"step {result.step}: no label ({answer.reason}); going on without")
    else:
        error = float(np.sqrt(np.square(predicted - answer.forces).mean()))
        result.asked.append(Asked(result.step, found.largest, error))
        more = Dataset([*result.data, answer.attach(frame)], result.data.name, result.data.isolated_atoms)
        place = make_folder(folder / f"label-{len(result.asked) - 1:04d}")
        write_exact(place / "data.xyz", more)
        told = f"σ {1e3 * found.largest:.1f} meV/Å, error {1e3 * error:.1f} meV/Å (RMS)"
        say(f"step {result.step}: {told}; learning from {len(more)} labels")
        result.posterior = resample(
            result.posterior,
            more,
            more[:0],
            config,
            resampling,
            seen=result.data,
            output=place / "fly.posterior",
            overwrite=True,
            device=device,
        )
        result.data = more
        result.atoms.calc = Calculator(result.posterior, device=device)
    listed = json.dumps([asdict(each) for each in result.asked], indent=1, ensure_ascii=False)
    write_text(folder / "asked.json", listed + "\n")
