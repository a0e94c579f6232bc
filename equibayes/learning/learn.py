"""Active learning: propose → select → label → extend the data → resample → measure, until a stopping rule applies.

    learner = Learner(config, Inputs(pool, start, test), labeller, "study")
    reason = learner.run()

Every decision is written before it is used (see `rounds.py`), and all random numbers follow from the seed and the
number of the round: a killed run is continued by the same command and ends in the same files.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.data.dataset import Dataset
from equibayes.data.extxyz import write_exact
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.files import lock, make_folder, remove_leftovers
from equibayes.labelling.labellers import LabelSource
from equibayes.learning.curve import write_curve
from equibayes.learning.diversity import descriptors
from equibayes.learning.environments import Spread, environments_of
from equibayes.learning.measure import error_words, errors_on, survey_words
from equibayes.learning.propose import MdProposer, PoolProposer, Proposer
from equibayes.learning.resample import resample
from equibayes.learning.rounds import Round
from equibayes.learning.screen import STATES, screen, sound
from equibayes.learning.select import Choice, deviations, select_structures
from equibayes.learning.settings import LearnConfig
from equibayes.learning.study import Inputs, check_same_study, with_species
from equibayes.plural import counted
from equibayes.posterior.center import load_center
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.marks import frame_mark
from equibayes.posterior.predict import predict
from equibayes.posterior.sample import sample_prepared
from equibayes.posterior.seen import unseen
from equibayes.posterior.tangent import refine
from equibayes.posterior.tangent_choice import warnings_of
from equibayes.run import Run
from equibayes.run.prepare import hold_back, lay_out
from equibayes.simulate.trust import Trust


class Learner:
    """One study in one folder."""

    def __init__(
        self,
        config: LearnConfig,
        inputs: Inputs,
        labeller: LabelSource,
        folder: str | Path,
        *,
        run: Run | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        """run: where the chains are computed and shown; its output is that of each round."""
        if not len(inputs.pool):
            raise InputError("the pool contains no structures; name other files")
        if inputs.start and inputs.test:
            unseen({frame_mark(structure) for structure in inputs.start}, inputs.test)  # refuses where none is left
        self.inputs, self.labeller, self.folder = inputs, labeller, Path(folder)
        self.where, self.say = run or Run(), say
        self.device = str(self.where.on)
        self.config = replace(config, sample=with_species(config, inputs))
        self.proposer: Proposer
        if config.propose == "md":
            self.proposer = MdProposer(inputs.pool, config.md, self.device, say)
        else:
            self.proposer = PoolProposer(inputs.pool)
        self.isolated = {**inputs.pool.isolated_atoms, **(inputs.start.isolated_atoms if inputs.start else {})}

    def run(self) -> str:
        """Continue the study in the folder, or begin it; returns why it ended."""
        with lock(make_folder(self.folder)):
            remove_leftovers(self.folder)
            check_same_study(self.folder, self.inputs, self.config)
            current, before = Round(self.folder, 0), None
            if current.note("choice") is None:
                self._first_choice(current)
            while True:
                remove_leftovers(make_folder(current.path))
                new = current.note("measured") is None
                posterior = self._work(current, before)
                reason = self._choose_next(current, posterior)
                if new or reason is not None:
                    write_curve(self.folder, name=self.config.select.kind)
                if reason is not None:
                    return reason
                before, current = posterior, current.next()

    def _work(self, current: Round, before: Posterior | None) -> Posterior:
        """Labels, data, posterior and errors of a round whose choice is made."""
        if not current.data.exists():
            self._label(current)
        if not current.posterior.exists():
            self._sample(current, before)
        posterior = load(current.posterior)  # also if new: samples stored in half precision differ from those in memory
        if current.note("measured") is None:
            measured = self._measure(current, posterior)
            current.write_note("measured", measured)
            self.say(f"round {current.number}: {error_words(measured)}")
        return posterior

    def _first_choice(self, first: Round) -> None:
        """The labelled structures of the user, or random proposals."""
        config, start = self.config, self.inputs.start
        if start is not None:
            first.write_choice([], {"round": 0, "kind": "start", "from": start.name, "chosen": []})
            return
        rng = np.random.default_rng([config.sample.seed, 0])
        proposals = self.proposer.first(config.start_labels, rng)
        states = screen(proposals, np.zeros(len(proposals)), self._digests(None), None, config.select.closest)
        good = [i for i, state in enumerate(states) if state == "candidate"]
        count = min(config.start_labels, config.budget or config.start_labels)
        chosen = select_structures("random", good, count, seed=[config.sample.seed, 0])
        if not chosen:
            raise InputError(
                "no structure of the pool can be labelled: all are test frames, or have atoms that are too close"
            )
        self._write_choice(first, proposals, chosen, {"kind": "random", "reason": "initial"})

    def _label(self, current: Round) -> None:
        wanted = current.asked()
        if wanted:
            self.say(
                f"round {current.number}: {counted(len(wanted), 'structure')} to label with {self.config.labeller}"
            )
        for number, why in current.label(self.labeller):
            if why:
                self.say(f"structure {number} ({wanted[number].source or 'proposed'}) has no label: {why}")
        new, failures = current.labelled(), current.failures()
        if wanted and not new:
            current.forget_failures()
            raise InputError(
                f"round {current.number}: none of {counted(len(wanted), 'structure')} could be labelled ({failures[0]}); "
                "fix the labeller and run the same command again"
            )
        slow = len(wanted) - len(new) - len(failures)
        if slow:
            self.say(f"round {current.number}: {slow} slow label(s) left for a later round")
        earlier: list[Structure] = list(self.inputs.start or []) if current.number == 0 else []
        if current.number:
            earlier = list(Round(self.folder, current.number - 1).training_data(self.isolated))
        write_exact(current.data, [*earlier, *self._late(current, earlier), *new])

    def _late(self, current: Round, earlier: list[Structure]) -> list[Structure]:
        """Labels of earlier rounds that arrived after their round; missing ones are requested again."""
        known = {structure.geometry_digest() for structure in earlier}
        found = []
        for number in range(current.number):
            before = Round(self.folder, number)
            for _ in before.label(self.labeller, wait=False):
                pass
            found += [structure for structure in before.labelled() if structure.geometry_digest() not in known]
        return found

    def _parts(self, current: Round) -> tuple[Dataset, Dataset]:
        """Training frames, and held-back ones: these are of the first round, since chains remember what they saw."""
        config, data = self.config.sample, current.training_data(self.isolated)
        first = Round(self.folder, 0).training_data(self.isolated)
        train, validation = hold_back(first, config.data.validation, config.seed)
        return Dataset([*train, *data[len(first) :]], data.name, self.isolated), validation

    def _sample(self, current: Round, before: Posterior | None) -> None:
        train, validation = self._parts(current)
        sampled = self._sampled(current)
        if sampled.number < current.number:
            self.say(f"round {current.number}: exact inference with {counted(len(train), 'label')}")
            refined = refine(load(sampled.posterior), train, validation, seed=current.number)
            for warning in warnings_of(refined.verdict["tangent"]):
                self.say(f"round {current.number}: {warning}")
            refined.save(current.posterior)
            return
        before = before and load(self._sampled(current.previous()).posterior)
        run = self.where.to(current.posterior, resume_if_begun=True)
        warm = before is not None and self.config.resample.warm
        self.say(
            f"round {current.number}: sampling with {counted(len(train), 'label')}"
            + (
                ", from the samples of the previous round"
                if warm
                else f", from {self.config.sample.prior.center or 'random weights'}"
            )
        )
        if before is None or not warm:
            center = load_center(self.config.sample.prior.center)
            prepared = lay_out(train, validation, self.config.sample, center=center)
            sample_prepared(prepared, Dataset.concatenate([train, validation]), run)
            return
        seen, _ = self._parts(self._sampled(current.previous()))
        resample(before, train, validation, self.config.sample, self.config.resample, seen=seen, run=run)

    def _sampled(self, current: Round) -> Round:
        """The last round up to this one with a posterior from chains."""
        return Round(self.folder, current.number - current.number % self.config.resample.every)

    def _measure(self, current: Round, posterior: Posterior) -> dict[str, Any]:
        train, validation = self._parts(current)
        measured: dict[str, Any] = {
            "round": current.number,
            "labels": len(train) + len(validation),
            "asked": len(self._asked(current)),
            "failed": len(current.failures()),
        }
        if self.inputs.test is not None:
            measured |= errors_on(posterior, self.inputs.test, self.device)
        return measured

    def _choose_next(self, current: Round, posterior: Posterior) -> str | None:
        """Make the choice of the next round, unless there is one; returns the reason to stop, if any."""
        config, following = self.config, current.next()
        if following.note("choice") is not None:
            return None
        asked = self._asked(current)
        if current.number >= config.rounds:
            return f"{counted(config.rounds, 'round')} {'is' if config.rounds == 1 else 'are'} done"
        left = config.per_round if config.budget is None else min(config.per_round, config.budget - len(asked))
        if left < 1:
            return f"the budget of {counted(config.budget or 0, 'label')} is spent"
        levels = config.select.novelty_lo, config.select.novelty_hi
        trust = Trust.of(config.select.trust_lo, config.select.trust_hi, posterior, levels)
        seed = int(np.random.SeedSequence([config.sample.seed, following.number]).generate_state(1)[0])
        proposals = self.proposer(posterior, trust, following.path / "md", seed)
        survey, candidates, predictions = self._survey(posterior, proposals, current, trust)
        current.write_note("survey", survey)
        self.say(f"round {current.number}: {survey_words(survey)}")
        if not candidates:
            return "nothing is left to label: no proposal is a candidate"
        if config.target_sigma is not None and survey["sigma_rms"] <= config.target_sigma:
            return f"σ is below the target of {1e3 * config.target_sigma:g} meV/Å"
        chosen = select_structures(
            config.select.kind,
            candidates,
            left,
            predictions=predictions,
            mode=config.select.mode,
            seed=[config.sample.seed, following.number],
            **self._points(current, posterior, [proposals[i] for i in candidates]),
        )
        why = {"kind": config.select.kind, "mode": config.select.mode, "trust": asdict(trust), **survey}
        self._write_choice(following, proposals, chosen, why)
        return None

    def _points(self, current: Round, posterior: Posterior, candidates: list[Structure]) -> dict[str, Any]:
        """What the selection needs to know of how far structures are from each other."""
        select, found = self.config.select, dict[str, Any]()
        if select.kind == "diversity":
            train, _ = self._parts(current)
            found["points"] = descriptors(posterior, candidates, self.device)
            found["known_points"] = descriptors(posterior, list(train), self.device)
        if select.kind != "random" and select.mode == "batch":
            environments = environments_of(posterior, candidates, self.device)
            found["spread"] = None if environments is None else Spread(environments, select.apart)
        return found

    def _survey(
        self, posterior: Posterior, proposals: list[Structure], current: Round, trust: Trust
    ) -> tuple[dict[str, Any], list[int], list[Any]]:
        """σ of the proposals; indices of the candidates; predictions (None where there is none)."""
        closest = self.config.select.closest
        # structures with colliding atoms are not evaluated: they may have thousands of neighbours
        fine = [i for i, structure in enumerate(proposals) if sound(structure, closest)]
        found = dict(zip(fine, predict(posterior, [proposals[i] for i in fine], members=True, device=self.device)))
        sigma, novelty = np.full(len(proposals), np.inf), np.full(len(proposals), np.nan)
        each = deviations(list(found.values()), self.config.select.deviation)
        sigma[fine], novelty[fine] = [d.largest for d in each], [d.novelty for d in each]
        states = screen(proposals, sigma, self._digests(current), trust, closest, novelty)
        candidates = [i for i, state in enumerate(states) if state == "candidate"]
        left = [i for i in fine if states[i] in ("candidate", "known")]
        squares = [float(np.square(found[i].forces_std).mean()) for i in left]
        survey = {
            "proposals": len(proposals),
            "states": {name: states.count(name) for name in STATES},
            "sigma_rms": float(np.sqrt(np.mean(squares))) if left else None,
            "sigma_largest": float(max(sigma[left])) if left else None,
            "novelty_largest": float(max(novelty[left])) if left and posterior.novelty else None,
        }
        return survey, candidates, [found.get(i) for i in range(len(proposals))]

    def _asked(self, current: Round) -> list[Structure]:
        """All structures sent to the labeller so far, including this round."""
        return [s for number in range(current.number + 1) for s in Round(self.folder, number).asked()]

    def _digests(self, current: Round | None) -> set[bytes]:
        """Digests of structures not to be sent: those sent before, the initial data and the test set."""
        known = [*(self.inputs.start or []), *(self.inputs.test or [])]
        known += [] if current is None else self._asked(current)
        return {structure.geometry_digest() for structure in known}

    def _write_choice(
        self, target: Round, proposals: list[Structure], chosen: list[Choice], why: dict[str, Any]
    ) -> None:
        structures = [proposals[choice.index] for choice in chosen]
        listed = [
            {
                "index": choice.index,
                "source": structure.source,
                "digest": structure.geometry_digest().hex(),
                "score": choice.score if np.isfinite(choice.score) else None,
                "reason": choice.reason,
            }
            for choice, structure in zip(chosen, structures)
        ]
        target.write_choice(structures, {"round": target.number, **why, "chosen": listed})
