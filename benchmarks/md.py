"""Steps of molecular dynamics on a CPU: our calculator with k = 8 samples beside a committee of eight and the
official NequIP.

    python benchmarks/md.py            a minute or two; writes results/speed/md-cpu.json
    python benchmarks/md.py --quick    a few seconds: shows that it runs, not how fast

All drive the same ethanol molecule with ASE's velocity Verlet, 0.5 fs; neighbour lists are part of a step
everywhere.  The official package evaluates one network (eager) and knows no uncertainty; the committee is eight
calculators of one sample each.  Times are processor time, which other work on the machine disturbs little.
"""

from collections.abc import Callable
from typing import Any

import torch
from ase.calculators.calculator import Calculator as AseCalculator
from ase.md.verlet import VelocityVerlet
from ase.units import fs
from command import number_table, parse, save
from contestants import Official, ethanol_config
from measure import processor_time
from predict import SAMPLES, posterior_of
from rich.console import Console

from equibayes.allocator import keep_freed_memory
from equibayes.bayes.model import StochasticModel
from equibayes.data import bundled_ethanol
from equibayes.plural import counted
from equibayes.posterior.file import Posterior
from equibayes.simulate.calculator import Calculator

STEPS = 5  # in one measurement


class OfficialCalculator(AseCalculator):
    """One official network with the package's own neighbour list and species mapping."""

    implemented_properties = ["energy", "forces"]  # noqa: RUF012

    def __init__(self, name: str) -> None:
        super().__init__()
        from nequip.data.transforms import ChemicalSpeciesToAtomTypeMapper, NeighborListTransform

        config = ethanol_config(name)
        self.model = Official(name).model
        self.transforms = ChemicalSpeciesToAtomTypeMapper(config.type_names), NeighborListTransform(config.r_max)

    def calculate(self, atoms: Any = None, properties: Any = (), system_changes: Any = ()) -> None:
        from nequip.data import AtomicDataDict, from_ase

        super().calculate(atoms, properties, system_changes)
        data = from_ase(self.atoms)
        for transform in self.transforms:
            data = transform(data)
        output = self.model(AtomicDataDict.batched_from_list([data]))
        self.results = {
            "energy": float(output["total_energy"].detach()),
            "forces": output["forces"].detach().numpy().astype(float),
        }


class Committee(AseCalculator):
    """Eight calculators, one after the other; the mean of their forces drives."""

    implemented_properties = ["energy", "forces"]  # noqa: RUF012

    def __init__(self, posterior: Posterior) -> None:
        super().__init__()
        one = torch.zeros(1, dtype=torch.int64)
        self.members = [
            Calculator(
                Posterior(posterior.samples[i : i + 1], one, one, posterior.network, posterior.reference), device="cpu"
            )
            for i in range(len(posterior))
        ]

    def calculate(self, atoms: Any = None, properties: Any = (), system_changes: Any = ()) -> None:
        super().calculate(atoms, properties, system_changes)
        forces, energies = [], []
        for member in self.members:
            copy = self.atoms.copy()
            copy.calc = member
            forces.append(copy.get_forces())
            energies.append(copy.get_potential_energy())
        self.results = {"energy": sum(energies) / len(energies), "forces": sum(forces) / len(forces)}


def dynamics(calculator: AseCalculator) -> Callable[[], Any]:
    """A call that does `STEPS` steps, from rest."""
    atoms = bundled_ethanol("test")[0].to_atoms()
    atoms.calc = calculator
    integrator = VelocityVerlet(atoms, 0.5 * fs)
    return lambda: integrator.run(STEPS)


def main() -> None:
    options = parse(__doc__, rounds=9, quick="tiny network, few repeats", default_threads=1)
    keep_freed_memory()  # for all contestants
    torch.set_num_threads(options.threads)
    name = "tiny" if options.quick else "paper"
    model = StochasticModel(ethanol_config(name))
    posterior = posterior_of(model, model.layout.start(SAMPLES, 0))
    calculator = Calculator(posterior, device="cpu")
    calls = {
        "ours, k = 8": dynamics(calculator),
        "ours, k = 1": dynamics(Calculator(posterior, device="cpu", k=1)),
        "committee of eight": dynamics(Committee(posterior)),
        "official, one network": dynamics(OfficialCalculator(name)),
    }
    timings = processor_time(calls, 2 if options.quick else options.rounds)
    ours = timings["ours, k = 8"]["seconds"]
    rows = {
        contestant: {**row, "steps_per_second": STEPS / row["seconds"], "over_k8": row["seconds"] / ours}
        for contestant, row in timings.items()
    }
    table = number_table(
        f"Molecular dynamics of ethanol, {name} network, {counted(options.threads, 'thread')}",
        ("", "steps per second of processor time", "time over that of k = 8"),
    )
    for contestant, row in rows.items():
        table.add_row(
            contestant, f"{row['steps_per_second']:.1f} ± {row['spread'] * 50:.0f} %", f"{row['over_k8']:.2f} ×"
        )
    Console().print(table)
    result = {
        "benchmark": "molecular dynamics on a CPU",
        "quick": options.quick,
        "preset": name,
        "engine": calculator.engine,
        "seed": 0,
        "rows": rows,
    }
    save(result, options, "md-cpu.json", ("torch", "numpy", "nequip", "e3nn", "vesin", "ase"))


if __name__ == "__main__":
    main()
