"""A summary of a posterior file, as text and as a dictionary: the output of `equibayes info FILE.posterior`."""

from pathlib import Path
from typing import Any

from equibayes.config import build
from equibayes.errors import InputError
from equibayes.plural import counted
from equibayes.posterior.calibration import Calibration
from equibayes.posterior.file import UNITS, VERSION, Posterior, load, read
from equibayes.posterior.novelty import NO_NOVELTY
from equibayes.run.settings import SampleConfig
from equibayes.run.stationarity import EARLIER, samples_are, sentence, undefined
from equibayes.run.verdict import R_HAT_LIMIT
from equibayes.units import GPA

Line = tuple[str, str]


class PosteriorSummary:
    """`lines()` pairs headings with text; `to_dict()` holds the header of the file and numbers derived from it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.posterior = load(self.path, check_calibration=False)
        self.header, tensors = read(self.path)
        self.stored = str(tensors["samples"].dtype).removeprefix("torch.")
        self.size = self.path.stat().st_size

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, in eV and Å; what is not known is None."""
        posterior = self.posterior
        derived = {
            "file": str(self.path),
            "size_bytes": self.size,
            "stored_as": self.stored,
            "samples": len(posterior),
            "parameters": posterior.samples.shape[1],
            "chain_of_sample": posterior.chain.tolist(),
            "step_of_sample": posterior.step.tolist(),
            "species": list(posterior.network.type_names),
            "last_validation": last_validation(posterior),
        }
        return {**self.header, **derived}

    def lines(self) -> list[Line]:
        """Heading and text of every line; a heading is empty where a line continues the one before."""
        written = f"format {VERSION}, written by equibayes {self.posterior.version}"
        file = f"{self.path.name}, {_bytes(self.size)}, {written}"
        return [("posterior", file), *lines_of(self.posterior, self.stored)]

    def __str__(self) -> str:
        lines = self.lines()
        width = max(len(heading) for heading, _ in lines)
        return "\n".join(f"{heading:<{width}}  {text}" for heading, text in lines)


def lines_of(posterior: Posterior, stored: str = "") -> list[Line]:
    """All but the first line of the summary.  stored: precision of the samples in a file, if there is one"""
    warnings = posterior.verdict.get("warnings", [])
    return [
        *_data_lines(posterior),
        ("network", _network(posterior)),
        *_run_lines(posterior),
        ("samples", _samples(posterior, stored)),
        *_refined_lines(posterior),
        *_accuracy_lines(posterior),
        *_convergence_lines(posterior),
        *_reference_lines(posterior),
        ("units", ", ".join(f"{name} {unit}" for name, unit in UNITS.items())),
        ("calibration", _calibration(posterior)),
        ("novelty", _novelty(posterior)),
        *((("note" if number == 0 else ""), text) for number, text in enumerate(warnings)),
    ]


def last_validation(posterior: Posterior) -> dict[str, Any] | None:
    """The last record with held-back frames: its step, and errors and deviations in eV/Å, one number per chain."""
    for record in reversed(posterior.history):
        if record.get("validation_force_mae") is not None:
            return {name: value for name, value in record.items() if name == "step" or name.startswith("validation_")}
    return None


def _data_lines(posterior: Posterior) -> list[Line]:
    data = posterior.data
    if not data:
        return [("data", "unknown")]
    name, validation = data.get("name", "unknown"), data.get("validation_name")
    # earlier files have held-back frames alone
    apart = "held back" if validation in (None, name) else f"of {validation} to validate"
    frames = f"{counted(data.get('frames', '?'), 'frame')} with {counted(data.get('atoms', '?'), 'atom')}"
    learned = f"{frames} to learn from, {data.get('validation_frames', '?')} {apart}"
    fingerprint = data.get("fingerprint", "unknown")
    return [
        ("data", f"{data.get('name', 'unknown')}: {learned}"),
        ("", f"fingerprint {fingerprint[:16]}…; species {', '.join(posterior.network.type_names)}"),
    ]


def _network(posterior: Posterior) -> str:
    network = posterior.network
    features = ", ".join(map(str, network.channels)) if isinstance(network.num_features, list) else network.num_features
    parity = "both parities" if network.parity else "one parity"
    return (
        f"NequIP with {counted(network.num_layers, 'layer')}, l ≤ {network.l_max}, {parity}, {features} features, cutoff "
        f"{network.r_max:g} Å: {counted(posterior.samples.shape[1], 'weight')} ({network.model_dtype})"
        + ("; learned stress" if network.stress_head else "")
        + {
            "isotropic": "",
            "atom": "; a covariance of forces per atom",
            "pair": "; covariances of forces between atoms",
        }[network.covariance]
    )


def _run_lines(posterior: Posterior) -> list[Line]:
    """What was done, from the settings in the file; nothing where another version had other settings."""
    try:
        config = build(SampleConfig, posterior.config)
        schedule = config.schedule(posterior.data["frames"])
    except (InputError, KeyError):
        return []
    burn_in, cycles, prior = config.burn_in, config.cycles, config.prior
    steps = f"{counted(schedule.total_steps, 'step')}: burn-in {schedule.burn_in_steps}"
    steps += f" (batch {burn_in.batch_size}, mass frozen at {schedule.freeze_mass_at})"
    if schedule.cycles.count:
        shape = f"{cycles.kind}, peak {cycles.peak:g}, batch {cycles.batch_size}"
        steps += f", then {schedule.cycles.count} × {schedule.cycle_steps} ({shape})"
    widths = "".join(f", {group} {width:g}" for group, width in prior.group_widths.items())
    sampler = f"SGHMC ({config.sampler.integrator}, {config.sampler.mass} mass) at temperature {config.temperature:g}"
    sampler += "" if config.labels.noise == 1 else f" (label noise {config.labels.noise:g} σ²)"
    width = f"{prior.width or 0:g}" + (" of each array" if prior.relative else "")
    normal = f"prior normal around {prior.center or 0}, width {width}{widths}"
    engine = f"; engine {posterior.engine}" if posterior.engine else ""
    return [("chains", f"{config.chains}, seed {config.seed}; {steps}"), ("sampler", f"{sampler}; {normal}{engine}")]


def _samples(posterior: Posterior, stored: str) -> str:
    chains, steps = posterior.chain.tolist(), posterior.step.tolist()
    count = len(set(chains))
    source = counted(count, "chain") + ("" if count > 1 else ": its uncertainty is that of one solution")
    first, last = min(steps) + 1, max(steps) + 1
    taken = f"after step {first}" if first == last else f"between steps {first} and {last}"
    return f"{len(posterior)} from {source}, taken {taken}{f', stored as {stored}' if stored else ''}"


def _refined_lines(posterior: Posterior) -> list[Line]:
    """Of a linearised posterior; its accuracy is not that of the chains, which the other lines are about."""
    if posterior.tangent is None:
        return []
    frames = posterior.verdict.get("tangent", {}).get("frames", "an unknown number of")
    text = f"each network linearised and moved by exact inference from {frames} frames; errors below are those before"
    return [("refined", text)]


def _accuracy_lines(posterior: Posterior) -> list[Line]:
    last = last_validation(posterior)
    if last is None:
        return [("force error", "not known: no frames were held back")]
    single, sigma = last["validation_force_mae"], last.get("validation_force_sigma") or []
    together = _range([last.get("validation_force_mae_of_mean")])
    lines = [
        ("force error", f"{together} on held-back frames (MAE of the mean over chains at the end)"),
        ("", f"single chains {_range(single)}; their own σ {_range(sigma)}"),
    ]
    if last.get("validation_energy_mae"):
        lines.append(("", f"energies of single chains: error {_range(last['validation_energy_mae'], 'meV')}"))
    if last.get("validation_stress_mae"):
        lines.append(("", f"stress of single chains: error {_range(last['validation_stress_mae'], 'GPa', GPA, 2)}"))
    return lines


def _convergence_lines(posterior: Posterior) -> list[Line]:
    verdict = posterior.verdict
    if not verdict:
        return []
    r_hat, ess = verdict.get("r_hat_forces"), verdict.get("ess_forces")
    if r_hat is None:
        agreement = f"R-hat undefined ({verdict.get('convergence_undefined_because') or 'not recorded'})"
    else:
        word = "1 is agreement; here the chains " + ("agree" if r_hat <= R_HAT_LIMIT else "stay apart")
        agreement = f"R-hat of predicted forces {r_hat:.2f} ({word}), effective sample size {ess:.0f}"
    settings = posterior.config
    noise = settings.get("labels", {}).get("noise", 1.0)
    target = settings.get("sampler", {}).get("temperature", 1.0) * noise
    heat = verdict.get("temperature_rise_bound")
    bound = "" if heat is None else f"; minibatches add at most {heat:.2g}"
    kinetic = verdict.get("kinetic_temperature")
    motion = verdict.get("stationarity") or undefined(EARLIER)
    lines = [("convergence", agreement), ("", sentence(motion)), ("", samples_are(motion))]
    if kinetic is not None:
        lines.append(("temperature", f"{kinetic:.2f} of the momenta ({target:g} is right){bound}"))
    events = verdict.get("events", [])
    if events:
        lines.append(("guard", f"acted {counted(len(events), 'time')}, first: {events[0]}"))
    return lines


def _reference_lines(posterior: Posterior) -> list[Line]:
    reference = posterior.reference.to_dict()
    shifts = ", ".join(f"{name} {energy:.4f}" for name, energy in reference["shifts"].items())
    offsets = f"; offsets of {counted(len(reference['offsets']), 'formula')}" if reference["offsets"] else ""
    lines = [("energy", f"reference {reference['kind']}: {shifts} eV{offsets}")]
    if posterior.reference.undetermined:  # one molecule alone: the single numbers mean nothing, only their sum does
        alike = "the data do not tell these elements apart"
        lines.append(("", f"{alike}: energies of other compositions are defined only up to a constant"))
    if posterior.baseline is not None:
        lines.append(("baseline", f"{posterior.baseline}: the networks correct it, predictions are the sum"))
    return lines


def _calibration(posterior: Posterior) -> str:
    if posterior.calibration is None:
        return "none: σ as predicted by the model"
    try:
        found = Calibration.from_dict(posterior.calibration)
    except InputError as cause:  # the rest of the file can still be explained
        return str(cause)
    parts = (
        f"{word} {part.method}" + ("" if part.method == "none" else f" (σ × {part.choice.get('factor', 1.0):.2f})")
        for word, part in found.parts().items()
    )
    frames = counted(found.data.get("frames", "?"), "frame")
    return f"{', '.join(parts)}; on {found.data.get('name', 'unknown data')}, {frames}"


def _novelty(posterior: Posterior) -> str:
    known = posterior.novelty
    if known is None:
        return NO_NOVELTY
    apart = counted(known.about["held_back"], "held-back frame")
    return f"1 is the edge of {counted(known.about['frames'], 'training frame')}, found with the help of {apart}"


def _range(values: list[float | None], unit: str = "meV/Å", per: float = 1e-3, digits: int = 1) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "not finite"
    low, high = (f"{value / per:.{digits}f}" for value in (min(known), max(known)))
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def _bytes(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
