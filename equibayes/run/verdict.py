"""Have the chains converged?  Numbers for the posterior file, and warnings for the user."""

from typing import Any

import numpy as np

from equibayes.run.records import rounded, trace
from equibayes.run.settings import SampleConfig
from equibayes.run.state import RunState
from equibayes.run.stationarity import sentence, stationarity
from equibayes.sampling.diagnostics import convergence
from equibayes.units import GPA

R_HAT_LIMIT = 1.1
TEMPERATURE_TOLERANCE = 0.1
RISE_LIMIT = 0.1


def judge(state: RunState, config: SampleConfig) -> dict[str, Any]:
    """R-hat and effective sample size of predicted forces and of ln p, drifts, temperatures, and `warnings`.

    Traces run over the cycles, where the mass is frozen; chains that failed or were lost are left out.
    """
    failed = [chain for chain, out in enumerate(state.failed.tolist()) if out]
    good = [chain for chain in range(len(state.failed)) if chain not in failed and chain not in state.lost]
    late = _late(state.history)
    kinetic = trace([r["kinetic_temperature"] for r in late or state.history[-1:]], good)
    rise = trace([r["temperature_rise_bound"] for r in late], good)
    verdict: dict[str, Any] = {
        **agreement(state.history, good),
        "stationarity": stationarity(state.history, good, config.temperature),
        "kinetic_temperature": rounded(float(kinetic.mean())) if kinetic.size else None,
        "temperature_rise_bound": rounded(float(rise.max(initial=0.0))),
        **_learned(state.history, good),
        "failed_chains": failed,
        "lost_chains": {str(chain): why for chain, why in state.lost.items()},
        "events": state.events,
    }
    verdict["warnings"] = _warnings(verdict, config)
    return verdict


def agreement(history: list[dict[str, Any]], good: list[int]) -> dict[str, Any]:
    """R-hat and effective sample size over the chains `good`, or why they are undefined."""
    late = _late(history)
    probes = trace([r["probes"] for r in late if "probes" in r], good)
    rhat_probes, ess_probes, reason = _worst(probes)
    rhat_posterior, ess_posterior, _ = _worst(trace([r["log_posterior"] for r in late], good))
    if not probes.size and late:
        reason = "no held-back frames were evaluated in the cycles"
    return {
        "r_hat_forces": rhat_probes,
        "ess_forces": ess_probes,
        "draws_per_chain": probes.shape[1],
        "r_hat_log_posterior": rhat_posterior,
        "ess_log_posterior": ess_posterior,
        "convergence_undefined_because": reason,
    }


def _learned(history: list[dict[str, Any]], good: list[int]) -> dict[str, Any]:
    """Latest errors on the held-back frames compared with those of no learning: medians of energies (eV) and stress
    (eV/Å³), and chains that are worse.

    One chain with wrong energies or forces is enough to spoil the mean over chains.
    """
    energy, no_energy = _last_seen(history, good, "energy_mae"), _last_seen(history, good, "energy_unlearned")
    forces, no_forces = _last_seen(history, good, "force_mae"), _last_seen(history, good, "force_unlearned")
    stress, no_stress = _last_seen(history, good, "stress_mae"), _last_seen(history, good, "stress_unlearned")
    return {
        "validation_energy_mae": rounded(float(np.median(energy))) if energy.size else None,
        "validation_energy_unlearned": rounded(float(np.median(no_energy))) if no_energy.size else None,
        "validation_stress_mae": rounded(float(np.median(stress))) if stress.size else None,
        "validation_stress_unlearned": rounded(float(np.median(no_stress))) if no_stress.size else None,
        "chains_without_energies": [chain for chain, bad in zip(good, energy > no_energy) if bad],
        "chains_without_forces": [chain for chain, bad in zip(good, forces > no_forces) if bad],
    }


def _last_seen(history: list[dict[str, Any]], good: list[int], name: str) -> np.ndarray:
    """A quantity of the last validation that has it, one number per chain; NaN becomes infinite.  Empty where there is
    none."""
    seen = [record for record in history if f"validation_{name.split('_')[0]}_unlearned" in record][-1:]
    values = [record[f"validation_{name}"][chain] for record in seen for chain in good]
    return np.nan_to_num(np.array(values, dtype=float), nan=np.inf)


def _late(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of the cycles."""
    return [record for record in history if record["phase"] == "cycle"]


def _worst(draws: np.ndarray) -> tuple[float | None, float | None, str | None]:
    """Largest R-hat and smallest effective sample size over all quantities."""
    found = convergence(draws)
    if np.isnan(found.r_hat).all():
        return None, None, found.reason
    return rounded(float(np.nanmax(found.r_hat))), rounded(float(np.nanmin(found.ess))), found.reason


def _warnings(verdict: dict[str, Any], config: SampleConfig) -> list[str]:
    words = []
    r_hat, target = verdict["r_hat_forces"], config.temperature
    if r_hat is not None and r_hat > R_HAT_LIMIT and config.chains > 1:
        words.append(
            f"R-hat of predicted forces is {r_hat:.2f} (1 means agreement): each chain stays near its own solution, so the "
            "spread over chains is the uncertainty, and one chain alone would be overconfident. Longer cycles bring them together"
        )
    if verdict["stationarity"]["moving"]:
        words.append(f"{sentence(verdict['stationarity'])}; raise burn_in.steps, or take more cycles (--samples)")
    kinetic = verdict["kinetic_temperature"]
    if target > 0 and kinetic is not None and abs(kinetic / target - 1) > TEMPERATURE_TOLERANCE:
        digits = ".2f" if kinetic >= 0.1 else ".2g"
        words.append(
            f"the kinetic temperature is {kinetic:{digits}} instead of {target:g}: "
            "lower cycles.peak or raise cycles.batch_size"
        )
    if verdict["temperature_rise_bound"] > RISE_LIMIT:
        words.append(
            f"minibatch noise may heat the chains by up to {verdict['temperature_rise_bound']:.2f} at the peak of a cycle "
            "(a bound; samples are taken where the learning rate is small): raise cycles.batch_size to be sure"
        )
    if verdict["chains_without_forces"]:
        words.append(
            f"forces of chains {verdict['chains_without_forces']} are not learned: their error on held-back frames is larger than "
            "that of zero forces, and they spoil the mean over chains; lower burn_in.initial, or raise burn_in.steps"
        )
    error, unlearned = verdict["validation_energy_mae"], verdict["validation_energy_unlearned"]
    known = config.network.per_type_energy_shifts_trainable
    remedy = "raise burn_in.steps" + ("" if known else ", or set network.per_type_energy_shifts_trainable=true")
    if error is not None and unlearned is not None and error > unlearned:
        words.append(
            f"energies are not learned: their error on held-back frames is {error:.3g} eV, that of the energy "
            f"reference alone {unlearned:.3g} eV (forces may be right nevertheless): {remedy}"
        )
    elif verdict["chains_without_energies"]:
        words.append(
            f"energies of chains {verdict['chains_without_energies']} are not learned and spoil the mean over chains: on held-back "
            f"frames they are worse than the energy reference alone (forces may be right nevertheless); {remedy}"
        )
    error, unlearned = verdict["validation_stress_mae"], verdict["validation_stress_unlearned"]
    if error is not None and unlearned is not None and error > unlearned:
        words.append(
            f"stress is not learned: its error on held-back frames is {error / GPA:.3g} GPa, that of no stress at all "
            f"{unlearned / GPA:.3g} GPa; raise burn_in.steps"
        )
    if verdict["failed_chains"]:
        words.append(
            f"chains {verdict['failed_chains']} diverged and gave no samples; lower burn_in.initial or cycles.peak"
        )
    reasons = sorted(set(verdict["lost_chains"].values()))
    words += [
        f"chains {[int(chain) for chain, why in verdict['lost_chains'].items() if why == reason]} gave no samples: {reason}"
        for reason in reasons
    ]
    return words
