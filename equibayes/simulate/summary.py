"""What a simulation found: numbers for programs, in summary.json, and lines for the terminal."""

import json
from math import isfinite
from pathlib import Path
from typing import Any

from equibayes.files import write_text
from equibayes.plural import counted
from equibayes.simulate.integrators import Conditions
from equibayes.simulate.md import MdResult
from equibayes.simulate.reporter import folder_of
from equibayes.simulate.trust import STATES, Trust


def summary_of(result: MdResult, conditions: Conditions, labels: dict[str, Any] | None = None) -> dict[str, Any]:
    """The numbers of a simulation.  labels: counts of an oracle (see `LabelCandidates.summary`)."""
    statistics, atoms = result.statistics, len(result.atoms)
    found: dict[str, Any] = {
        "steps": result.step,
        "picoseconds": result.step * conditions.timestep / 1e3,
        "atoms": atoms,
        "temperature_mean": statistics.mean_temperature,
        "temperature_spread": statistics.temperature_spread,
        "drift_meV_per_atom_and_ps": statistics.drift(atoms),
        "largest_sigma_eV_per_A": statistics.largest,
        "largest_sigma_step": statistics.largest_step,
        "largest_sigma_atom": statistics.largest_atom,
        "share_of_frames": {state: statistics.fraction(state) for state in STATES},
        "candidates": result.candidates,
        "engine": result.engine,
        "ended": result.ended,
    }
    if labels is not None:
        share = result.asked / max(1, result.step)
        found["labels"] = {"asked": result.asked, "share_of_steps": share} | {
            name: labels[name] for name in ("refused", "learned", "posterior")
        }
    return found


def summary_lines(result: MdResult, trust: Trust, steps: int, output: str | Path, summary: dict[str, Any]) -> list[str]:
    """The same as text.  steps: as requested."""
    statistics, atoms, drift = result.statistics, len(result.atoms), summary["drift_meV_per_atom_and_ps"]
    pace = result.steps_done / result.seconds if result.seconds > 0 else float("nan")
    lines = [
        f"steps        {result.step} of {steps} ({summary['picoseconds']:g} ps) with {counted(atoms, 'atom')}; "
        f"{pace:.1f} steps per second",
        f"temperature  {statistics.mean_temperature:.1f} ± {statistics.temperature_spread:.1f} K "
        "(mean and standard deviation over all steps)",
    ]
    if statistics.first_energy is not None and isfinite(drift):
        lines.append(f"drift        {drift:+.3g} meV/atom/ps of the conserved energy")
    element = result.atoms.symbols[statistics.largest_atom]
    lines.append(
        f"largest σ    {1e3 * statistics.largest:.1f} meV/Å, in step {statistics.largest_step}, "
        f"atom {statistics.largest_atom} ({element}, counted from 0)"
    )
    if trust != Trust() or statistics.states["unknown"]:
        shares = ", ".join(f"{100 * share:.1f} % {state}" for state, share in summary["share_of_frames"].items())
        lines.append(f"frames       {shares}; {counted(result.candidates, 'candidate')} written")
    if labels := summary.get("labels"):
        share = f"{100 * labels['share_of_steps']:.2f} % of the steps called the labeller"
        lines.append(f"labels       {labels['asked']} asked: {share}; {labels['refused']} refused")
        if labels["posterior"]:
            lines.append(
                f"learned      from {counted(labels['learned'], 'label')}; latest posterior: {labels['posterior']}"
            )
    lines += [f"{name:12} {found['words']}" for name, found in summary.get("observables", {}).items()]
    if result.ended:
        lines.append(f"ended early  {result.ended}")
    return [*lines, f"trajectory in {Path(output).name}; log, plot and state in {folder_of(output).name}"]


def write_summary(output: str | Path, summary: dict[str, Any]) -> None:
    """summary.json in the folder beside the trajectory; numbers that are not finite become null."""
    text = json.dumps(_plain(summary), indent=1, ensure_ascii=False, allow_nan=False)
    write_text(folder_of(output) / "summary.json", text + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value
