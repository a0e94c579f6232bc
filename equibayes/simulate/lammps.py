"""A posterior as the potential of LAMMPS, through `fix external`: energy, forces and virial with uncertainties.

    run_script("my.posterior", "in.water", elements=["O", "H"])          an ordinary script, from start to end
    attach(lmp, "my.posterior", elements=["O", "H"])                     a LAMMPS that you control from Python

`equibayes lammps --help` lists what a script can use, in its own units (metal or real): deviations as variables, σ of
each atom, trust levels.  `pe` and `press` include the posterior.

The ranks share the samples of the posterior or the atoms (`lammps_shares.py`); results do not depend on the number of
ranks.  The deviation of an atom whose σ is not finite is infinite, so that it exceeds any trust level.
"""

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from equibayes.device import choose_device
from equibayes.errors import InputError, InputWarning
from equibayes.posterior.file import Posterior, load
from equibayes.simulate.calculator import SKIN
from equibayes.simulate.evaluator import Evaluator
from equibayes.simulate.lammps_atoms import elements_of_types, looks_swapped
from equibayes.simulate.lammps_library import Ranks, open_lammps
from equibayes.simulate.lammps_potential import ENERGY_UNITS, FAILED, FIX, LammpsPotential
from equibayes.simulate.lammps_script import LEVELS, QUANTITIES, Script, read_script
from equibayes.simulate.lammps_shares import (
    Divide,
    SharedAtoms,
    SharedSamples,
    divides_atoms,
    place_of,
    shares,
    waiting,
)
from equibayes.simulate.trust import Trust, check_deviation

NO_LEVELS = Trust()

_COMMANDS = f"""\
fix {FIX} all external pf/callback 1 1
fix_modify {FIX} energy yes virial yes
fix {FIX}_atoms all property/atom d_devi_f d_novelty writedata no
variable {FIX}_failed equal f_{FIX}[{FAILED}]
fix {FIX}_stop all halt 1 v_{FIX}_failed != 0 error hard message no
"""


class LammpsOnOneRank(InputError):
    """An error that LAMMPS raised on one rank, while the others wait for it."""


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
    divide: Divide = "auto",
) -> LammpsPotential:
    """Make a posterior the potential of a LAMMPS with a box; call it on all ranks.

    lmp        a `lammps.lammps`
    elements   symbols of atom types 1, 2, …; default: the type labels, if they are symbols
    deviation  "total" or "epistemic": which σ of the forces to use
    trust      trust levels in eV/Å, which the script may use as `${trust_lo}` and `${trust_hi}`
    divide     what the ranks divide: "samples", "atoms", or what is faster ("auto")
    The rest is as for `equibayes.Calculator`.
    """
    check_deviation(deviation)
    _check(lmp)
    loaded = posterior if isinstance(posterior, Posterior) else load(posterior)
    loaded = loaded if k is None else loaded.subset(k)
    numbers = elements_of_types(lmp, elements, list(loaded.species_of))
    swapped = looks_swapped(lmp, numbers)
    ranks = Ranks(lmp)
    if swapped and ranks.first:
        warnings.warn(swapped, InputWarning, stacklevel=2)
    lmp.commands_string(_COMMANDS)
    lmp.fix_external_set_vector_length(FIX, FAILED)
    for i, name in enumerate(QUANTITIES):
        lmp.command(f"variable {name} equal f_{FIX}[{i + 1}]")
    by_atoms = divides_atoms(divide, ranks.size, lmp.get_natoms(), len(loaded))
    share = _share(loaded, ranks, choose_device(device), dtype, skin, by_atoms, must=divide == "atoms")
    potential = LammpsPotential(lmp, ranks, share, numbers, deviation)
    for name, level in zip(LEVELS, (trust.lower, trust.upper)):
        if level is not None:
            lmp.command(f"variable {name} equal {float(level / potential.unit)!r}")
    lmp.set_fix_external_callback(FIX, potential, None)
    return potential


def _share(
    posterior: Posterior,
    ranks: Ranks,
    device: torch.device,
    dtype: str | None,
    skin: float,
    by_atoms: bool,
    *,
    must: bool,
) -> SharedSamples | SharedAtoms:
    """The share of this rank; must: an error where the atoms cannot be divided."""
    if by_atoms:
        evaluator = Evaluator(posterior, device, dtype, skin)
        divisible = posterior.model.isotropic and not posterior.dropout
        part = evaluator.ready.predictor.part(evaluator.ready.weights) if divisible else None
        if None not in ranks.exchange(None if part is None else True):
            assert part is not None
            return SharedAtoms(evaluator, part, ranks)
        if must:
            reason = "samples with dropout cannot" if posterior.dropout else "only the compiled engine for CPUs can"
            if not posterior.model.isotropic:
                reason = f"samples with likelihood.covariance={posterior.network.covariance} cannot"
            raise InputError(f"--divide atoms: {reason}; use --divide samples")
    places = ranks.exchange(place_of(ranks.rank, device))
    divided = shares(places, len(posterior))
    told = waiting(divided, places, len(posterior))
    if told and ranks.first:
        warnings.warn(told, InputWarning, stacklevel=3)
    own = divided[ranks.rank]
    return SharedSamples(None if own is None else Evaluator(posterior, device, dtype, skin, own))


def _check(lmp: Any) -> None:
    if not lmp.extract_setting("box_exist"):
        raise InputError("there is no box yet where the potential is needed; create or read one before that line")
    units = lmp.extract_global("units")
    if units not in ENERGY_UNITS:
        raise InputError(
            f"units {units}: only {' and '.join(ENERGY_UNITS)} are supported; write the script in one of them"
        )
    if lmp.extract_setting("dimension") != 3:
        raise InputError("dimension 2: the posterior is three-dimensional; use dimension 3 with a high box")


def run_script(
    posterior: str | Path | Posterior,
    script: str | Path,
    *,
    variables: dict[str, str] | None = None,
    log: str = "log.lammps",
    screen: bool = True,
    **options: Any,
) -> LammpsPotential:
    """Run a LAMMPS script with the posterior as its potential (see `lammps_script.py` for where it is inserted).

    variables  for the script, as with `-var` of LAMMPS
    log        LAMMPS' log file; "none" for none
    screen     whether LAMMPS prints
    options    those of `attach`
    """
    parts, trust = read_script(script), options.get("trust", NO_LEVELS)
    for name, level in zip(LEVELS, (trust.lower, trust.upper)):
        if level is None and name not in (variables or {}) and parts.lacks(name):
            raise InputError(f"{script}: uses ${{{name}}}; give this level with --{name.replace('_', '-')}")
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


def _run(lmp: Any, script: Script, posterior: str | Path | Posterior, options: dict[str, Any]) -> LammpsPotential:
    with tempfile.TemporaryDirectory() as folder:  # on each rank, although only the first one reads
        before, after = Path(folder, "before"), Path(folder, "after")
        before.write_text(script.before)
        after.write_text(script.after)
        _file(lmp, before, script, None)
        if not script.says_before("pair_style", "comm_modify"):
            lmp.command("comm_modify cutoff 2.0")  # LAMMPS would warn of a missing cutoff, which is not needed
        try:
            potential = attach(lmp, posterior, **options)
        except InputError as problem:
            raise InputError(f"{script.path}, line {script.first + 1}: {problem}") from problem
        _file(lmp, after, script, potential)
    if potential.failure is not None:  # in the last evaluation, after which no halt follows
        raise potential.failure
    if not potential.calls:
        raise InputError(f"{script.path}: the potential was never evaluated; was it removed, or nothing run?")
    return potential


def _file(lmp: Any, path: Path, script: Script, potential: LammpsPotential | None) -> None:
    try:
        lmp.file(str(path))
    except Exception as problem:
        if potential is not None and potential.failure is not None:
            raise potential.failure from None
        words = " ".join(str(getattr(problem, "message", problem)).split())
        alone = type(problem).__name__ == "MPIAbortException"
        kind = LammpsOnOneRank if alone else InputError
        raise kind(f"{script.path}: LAMMPS stopped: {words}") from problem
