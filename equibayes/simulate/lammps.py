"""A posterior as the potential of LAMMPS, through `fix external`: energy, forces and virial, and how sure they are.

    run_script("my.posterior", "in.water", elements=["O", "H"])          an ordinary script, from the first line to the last
    attach(lmp, "my.posterior", elements=["O", "H"])                     a LAMMPS that you drive from Python yourself

What a script can then use, in its own units (metal or real):

| name                                       |                                                                               |
|--------------------------------------------|-------------------------------------------------------------------------------|
| `pe`, `press`, …                           | contain the posterior's: thermostats, barostats, `minimize` work as ever      |
| `v_max_devi_f, v_avg_devi_f, v_min_devi_f` | largest, mean, smallest deviation of an atom's force, as in `equibayes md`    |
| `v_energy_std`                             | σ of the energy                                                               |
| `f_equibayes`, `f_equibayes[1]` to `[4]`   | energy; the four above                                                        |
| `d_devi_f`                                 | every atom's deviation, for `dump custom`, `compute reduce` …                 |
| `${trust_lo}, ${trust_hi}`                 | trust levels, if given: `fix stop all halt 1 v_max_devi_f > ${trust_hi}`      |

Every rank sends its atoms to the first one, which evaluates the posterior and sends the forces back; results do not depend on the
number of ranks.  The deviation of an atom whose σ is not a number is infinite, so that no level lets it pass.
"""

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.errors import InputError, InputWarning
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.predict import Prediction
from equibayes.simulate.calculator import SKIN, default_device
from equibayes.simulate.evaluator import Evaluator
from equibayes.simulate.lammps_atoms import LocalAtoms, StructureBuilder, elements_of_types, looks_swapped
from equibayes.simulate.lammps_library import Ranks, open_lammps
from equibayes.simulate.lammps_script import LEVELS, QUANTITIES, Script, read_script
from equibayes.simulate.trust import DEVIATIONS, Deviation, Trust, atom_sigma
from equibayes.units import KCAL_PER_MOL

FIX = "equibayes"
ENERGY_UNITS = {"metal": 1.0, "real": KCAL_PER_MOL}
"""eV in LAMMPS' unit of energy; both have Å, so that forces convert alike."""

NO_LEVELS = Trust()

_FAILED = len(QUANTITIES) + 1
_COMMANDS = f"""\
fix {FIX} all external pf/callback 1 1
fix_modify {FIX} energy yes virial yes
fix {FIX}_atoms all property/atom d_devi_f writedata no
variable {FIX}_failed equal f_{FIX}[{_FAILED}]
fix {FIX}_stop all halt 1 v_{FIX}_failed != 0 error hard message no
"""


class LammpsOnOneRank(InputError):
    """A mistake that LAMMPS found on one rank, while the others go on and wait for it."""


class Potential:
    """What `fix external` calls in every step, on all ranks."""

    def __init__(
        self, lmp: Any, ranks: Ranks, evaluator: Evaluator, numbers_of_types: np.ndarray, deviation: str
    ) -> None:
        self.lmp, self.ranks, self.evaluator = lmp, ranks, evaluator
        self.sigma_name = DEVIATIONS[deviation]
        self.unit = ENERGY_UNITS[lmp.extract_global("units")]
        self.atoms = LocalAtoms(lmp)
        reach = evaluator.posterior.network.r_max + evaluator.skin
        self.builder = StructureBuilder(numbers_of_types, reach)
        self.calls = 0
        self.failure: BaseException | None = None

    def __call__(self, _: Any, step: int, count: int, tag: Any, x: Any, f: Any) -> None:
        """Fill the forces f [count, 3] of this rank's atoms, and all the rest.

        LAMMPS cannot take an exception here: it is kept, and a `fix halt` ends the run with this step.
        """
        self.calls += 1
        f[:count] = 0.0
        if self.failure is None:
            found = self._evaluate(count, tag, x)
            try:
                if isinstance(found, BaseException):
                    raise found
                self._hand_over(found, count, tag, f)
            except (Exception, KeyboardInterrupt) as problem:
                self.failure = problem
        self.lmp.fix_external_set_vector(FIX, _FAILED, float(self.failure is not None))

    def _evaluate(self, count: int, tag: Any, x: Any) -> "dict[str, Any] | BaseException":
        """What the posterior says, on all ranks; or what went wrong, on all ranks too, for one that left would be waited for."""
        mine: Any
        try:
            mine = self.atoms.rows(count, tag, x)
        except Exception as problem:
            mine = RuntimeError(repr(problem))
        parts = self.ranks.gather(mine)
        found: dict[str, Any] | BaseException | None = None
        if parts is not None:
            try:
                found = self._predict(parts)
            except InputError as problem:
                found = problem
            except (Exception, KeyboardInterrupt) as problem:  # with several ranks: something that surely can be sent
                found = problem if self.ranks.size == 1 else RuntimeError(repr(problem))
        shared: dict[str, Any] | BaseException = self.ranks.share(found)
        return shared

    def _predict(self, parts: list[Any]) -> dict[str, Any]:
        """From the atoms of all ranks."""
        for part in parts:
            if isinstance(part, Exception):
                raise part
        rows = np.concatenate(parts)
        if not len(rows):
            raise InputError("no atoms to calculate: the box is empty")
        ids, structure = self.builder.build(rows, *self.atoms.box())
        (prediction,) = self.evaluator([structure])
        return self._in_lammps_units(prediction, abs(np.linalg.det(structure.cell))) | {"ids": ids}

    def _in_lammps_units(self, prediction: Prediction, volume: float) -> dict[str, Any]:
        sigma = getattr(prediction, self.sigma_name)
        deviation = Deviation.of(sigma)
        quantities = (deviation.largest, deviation.mean, deviation.smallest, prediction.energy_std)
        assert prediction.stress is not None  # the builder gives a cell, always
        virial = -volume * prediction.stress
        return {
            "energy": prediction.energy / self.unit,
            "forces": prediction.forces / self.unit,
            "virial": [float(virial[i, j] / self.unit) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))],
            "quantities": [value / self.unit for value in quantities],
            "sigma": atom_sigma(sigma) / self.unit,
        }

    def _hand_over(self, found: dict[str, Any], count: int, tag: Any, f: Any) -> None:
        self.lmp.fix_external_set_energy_global(FIX, found["energy"])
        self.lmp.fix_external_set_virial_global(FIX, found["virial"])
        for i, value in enumerate(found["quantities"]):
            self.lmp.fix_external_set_vector(FIX, i + 1, value)
        if count:
            mine = np.searchsorted(found["ids"], tag[:count])
            f[:count] = found["forces"][mine]
            self.lmp.numpy.extract_atom("d_devi_f")[:count] = found["sigma"][mine]


def attach(
    lmp: Any,
    posterior: str | Path | Posterior,
    *,
    elements: Sequence[str] | None = None,
    deviation: str = "total",
    trust: Trust = NO_LEVELS,
    device: str | None = None,
    dtype: str | None = None,
    k: int | None = None,
    skin: float = SKIN,
) -> Potential:
    """Make a posterior the potential of a LAMMPS that has a box; on all ranks.

    lmp        a `lammps.lammps`
    elements   symbols of atom types 1, 2, …; default: the labels of the types, if they are symbols
    deviation  "total" or "epistemic": which σ of the forces to give
    trust      levels in eV/Å that the script may use as `${trust_lo}` and `${trust_hi}`
    The rest is as for `equibayes.Calculator`.
    """
    if deviation not in DEVIATIONS:
        raise InputError(f"deviation={deviation}: must be {' or '.join(DEVIATIONS)}")
    _check(lmp)
    loaded = posterior if isinstance(posterior, Posterior) else load(posterior)
    loaded = loaded if k is None else loaded.subset(k)
    numbers = elements_of_types(lmp, elements, list(loaded.species_of))
    swapped = looks_swapped(lmp, numbers)
    ranks = Ranks(lmp)
    if swapped and ranks.first:
        warnings.warn(swapped, InputWarning, stacklevel=2)
    lmp.commands_string(_COMMANDS)
    lmp.fix_external_set_vector_length(FIX, _FAILED)
    for i, name in enumerate(QUANTITIES):
        lmp.command(f"variable {name} equal f_{FIX}[{i + 1}]")
    potential = Potential(lmp, ranks, Evaluator(loaded, device or default_device(), dtype, skin), numbers, deviation)
    for name, level in zip(LEVELS, (trust.lower, trust.upper)):
        if level is not None:
            lmp.command(f"variable {name} equal {float(level / potential.unit)!r}")
    lmp.set_fix_external_callback(FIX, potential, None)
    return potential


def _check(lmp: Any) -> None:
    if not lmp.extract_setting("box_exist"):
        raise InputError("there is no box yet where the potential is needed; create or read one before that line")
    units = lmp.extract_global("units")
    if units not in ENERGY_UNITS:
        raise InputError(
            f"units {units}: only {' and '.join(ENERGY_UNITS)} are known here; write the script in one of them"
        )
    if lmp.extract_setting("dimension") != 3:
        raise InputError(
            "dimension 2: the posterior is for atoms in space; use dimension 3 with a box that is high enough"
        )


def run_script(
    posterior: str | Path | Posterior,
    script: str | Path,
    *,
    variables: dict[str, str] | None = None,
    log: str = "log.lammps",
    screen: bool = True,
    **options: Any,
) -> Potential:
    """Run a LAMMPS script with the posterior as its potential (lammps_script.py says where it goes in).

    variables  for the script, as `-var` of LAMMPS gives them
    log        LAMMPS' log file; "none" for none
    screen     whether LAMMPS prints
    options    those of `attach`
    """
    parts, trust = read_script(script), options.get("trust", NO_LEVELS)
    for name, level in zip(LEVELS, (trust.lower, trust.upper)):
        if level is None and name not in (variables or {}) and parts.lacks(name):
            raise InputError(f"{script}: uses ${{{name}}}; give that level with --{name.replace('_', '-')}")
    given = [word for name, value in (variables or {}).items() for word in ("-var", name, *str(value).split())]
    lmp = open_lammps(["-log", log, *([] if screen else ["-screen", "none"]), *given])
    try:
        return _run(lmp, parts, posterior, options)
    except LammpsOnOneRank as problem:
        Ranks(lmp).abort(2, str(problem))
        raise
    except (InputError, KeyboardInterrupt):
        raise
    except BaseException as problem:
        Ranks(lmp).abort(1, repr(problem))
        raise
    finally:
        lmp.close()


def _run(lmp: Any, script: Script, posterior: str | Path | Posterior, options: dict[str, Any]) -> Potential:
    with tempfile.TemporaryDirectory() as folder:  # one on each rank, though only the first one reads
        before, after = Path(folder, "before"), Path(folder, "after")
        before.write_text(script.before)
        after.write_text(script.after)
        _file(lmp, before, script, None)
        if not script.says_before("pair_style", "comm_modify"):
            lmp.command("comm_modify cutoff 2.0")  # LAMMPS warns of none, though nothing here needs any
        try:
            potential = attach(lmp, posterior, **options)
        except InputError as problem:
            raise InputError(f"{script.path}, line {script.first + 1}: {problem}") from problem
        _file(lmp, after, script, potential)
    if potential.failure is not None:  # in the very last evaluation, after which no halt can come
        raise potential.failure
    if not potential.calls:
        raise InputError(f"{script.path}: the potential was never asked; was it removed, or nothing run?")
    return potential


def _file(lmp: Any, path: Path, script: Script, potential: Potential | None) -> None:
    try:
        lmp.file(str(path))
    except Exception as problem:
        if potential is not None and potential.failure is not None:
            raise potential.failure from None
        words = " ".join(str(getattr(problem, "message", problem)).split())
        alone = type(problem).__name__ == "MPIAbortException"
        kind = LammpsOnOneRank if alone else InputError
        raise kind(f"{script.path}: LAMMPS stopped: {words}") from problem
