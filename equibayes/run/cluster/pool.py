"""Groups of chains that run separately, combined into one run: records, samples, and whether the chains agree."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from equibayes.run.state import RunState
from equibayes.run.verdict import agreement

# a property of the chains of one group, which cannot be combined from several
NOT_POOLED = "validation_force_mae_of_mean"


@dataclass
class Group:
    """Chains that run together, and what they have reported.

    identities  their numbers
    records     history by step; a worker that starts again from a checkpoint reports some again, the same
    samples     by number: weights [K, P] and which of them count [K]
    engine      what made their steps
    lost        why they are left out, None where they are not
    """

    identities: list[int]
    step: int = 0
    records: dict[int, dict[str, Any]] = field(default_factory=dict)
    samples: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    engine: str = ""
    lost: str | None = None

    @property
    def name(self) -> str:
        first, last = self.identities[0], self.identities[-1]
        return f"chain {first}" if first == last else f"chains {first}–{last}"

    def remember(self, state: RunState) -> None:
        """Take over the content of a checkpoint."""
        self.step = max(self.step, state.step)
        self.records |= {record["step"]: record for record in state.history}
        self.samples |= dict(enumerate(zip(state.samples, state.kept)))
        self.events = list(state.events)
        self.engine = state.engine


class Pool:
    """All groups of a run, in the order of their chains."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = list(groups)

    @property
    def chains(self) -> int:
        return sum(len(group.identities) for group in self.groups)

    @property
    def going(self) -> list[Group]:
        """Groups with records that are not left out."""
        return [group for group in self.groups if group.lost is None and group.records]

    def mean_step(self) -> int:
        """Mean step of all chains that are not left out."""
        kept = [group for group in self.groups if group.lost is None]
        total = sum(len(group.identities) for group in kept)
        return sum(len(group.identities) * group.step for group in kept) // max(1, total)

    def latest(self) -> dict[str, Any] | None:
        """The newest record that all running groups have written, pooled."""
        if not self.going:
            return None
        common = set.intersection(*(set(group.records) for group in self.going))
        return self.record(max(common)) if common else None

    def record(self, step: int) -> dict[str, Any]:
        """The records of one step for all chains."""
        return pooled_record([group.records.get(step) for group in self.groups], self.groups)

    def history(self, until: int | None = None) -> list[dict[str, Any]]:
        """All steps that every group which is not left out has a record of."""
        kept = [group for group in self.groups if group.lost is None]
        common = set.intersection(*(set(group.records) for group in kept)) if kept else set()
        return [self.record(step) for step in sorted(common) if until is None or step <= until]

    def agreement(self) -> dict[str, Any]:
        """R-hat over all running chains, from the records that they have in common."""
        going = self.going
        if not going:
            return {}
        small = Pool(going)
        history = small.history()
        if not history or "failed" not in history[-1]:
            return {}
        good = [chain for chain, failed in enumerate(history[-1]["failed"]) if not failed]
        return agreement(history, good)

    def state(self) -> RunState:
        """What one run of all chains would remember, as far as a posterior is made of it."""
        kept = [group for group in self.groups if group.lost is None]
        count = min((len(group.samples) for group in kept), default=0)
        shape = next(iter(kept[0].samples.values()))[0].shape[1:] if count else torch.Size([0])
        samples, marks = [], []
        for number in range(count):
            parts = [_sample_of(group, number, shape) for group in self.groups]
            samples.append(torch.cat([part[0] for part in parts]))
            marks.append(torch.cat([part[1] for part in parts]))
        state = RunState.start(samples[-1] if samples else torch.zeros(self.chains, 0))
        state.samples, state.kept, state.history = samples, marks, self.history()
        state.lost = {chain: group.lost for group in self.groups if group.lost for chain in group.identities}
        if state.history:
            diverged = state.history[-1]["failed"]
            state.failed = torch.tensor([bad and chain not in state.lost for chain, bad in enumerate(diverged)])
        state.engine = ", ".join(sorted({group.engine for group in kept if group.engine}))
        state.events = [event for group in self.groups for event in group.events]
        state.events += [f"{group.name} left out: {group.lost}" for group in self.groups if group.lost]
        return state


def _sample_of(group: Group, number: int, shape: torch.Size) -> tuple[torch.Tensor, torch.Tensor]:
    if group.lost is None:
        return group.samples[number]
    chains = len(group.identities)
    return torch.zeros(chains, *shape), torch.zeros(chains, dtype=torch.bool)


def pooled_record(records: Sequence[dict[str, Any] | None], groups: Sequence[Group]) -> dict[str, Any]:
    """One record with an entry for every chain; None where a group has no record of this step."""
    pattern = next(record for record in records if record is not None)
    return {
        name: (
            [
                flag
                for record, group in zip(records, groups)
                for flag in (
                    record["failed"] if record is not None else [group.lost is not None] * len(group.identities)
                )
            ]
            if name == "failed"
            else _side_by_side([None if record is None else record.get(name) for record in records], groups, value)
        )
        for name, value in pattern.items()
        if name != NOT_POOLED
    }


def _side_by_side(values: Sequence[Any], groups: Sequence[Group], pattern: Any) -> Any:
    """Lists have one entry a chain and are joined; dictionaries entry by entry; anything else is the same in all
    groups."""
    if isinstance(pattern, dict):
        return {
            name: _side_by_side([None if value is None else value[name] for value in values], groups, inner)
            for name, inner in pattern.items()
        }
    if not isinstance(pattern, list):
        return pattern
    missing = [None] * len(pattern[0]) if isinstance(pattern[0], list) else None
    joined: list[Any] = []
    for value, group in zip(values, groups):
        joined += [missing] * len(group.identities) if value is None else value
    return joined
