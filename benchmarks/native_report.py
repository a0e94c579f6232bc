"""Table and figure of native.py."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from command import number_table
from rich.console import Console

from equibayes.evaluation.figures.style import figure, series, styled

CONTESTANTS = ("torch", "official, eager", "official, compiled", "MACE")


def show(parts: dict[str, Any], console: Console) -> None:
    """All that was measured."""
    table = number_table("Processor time, best of all rounds", ("", "", "ms", "over native"))
    for title, name, row in rows_of(parts):
        table.add_row(title, name, f"{1e3 * row['best']:.3g}", f"{row['over_native']:.1f} ×")
    console.print(table)
    for part in parts.get("peak", {}).get("rows", []):
        console.print(
            f"{part['what']}, {part['preset']}, K = {part['chains']}: {part['gflops']:.0f} of {part['peak_gflops']:.0f} "
            f"GFLOP/s, {100 * part['share']:.0f} %"
        )
    for part in parts.get("threads", {}).get("rows", []):
        console.print(f"two threads, {part['what']}: {part['speed_up']:.2f} times as fast as one")


def rows_of(parts: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, float]]]:
    """What was done, by whom, and how fast."""
    for name in ("small", "paper"):
        for part in parts.get(name, {}).get("rows", []):
            for who, row in part["per_weight_set"].items():
                yield f"training step per weight set, {part['preset']}", who, row
    for part in parts.get("sampler", {}).get("rows", []):
        for who, row in part["rows"].items():
            yield f"{part['steps']} whole steps, {part['preset']}, K = {part['chains']}", who, row
    for part in parts.get("calculator", {}).get("rows", []):
        for who, row in part["rows"].items():
            yield f"calculator, {part['what']}, {part['preset']}", who.replace("reference", "torch"), row


def draw(parts: dict[str, Any], path: Path) -> None:
    """How many times the processor time of the compiled engine the others need."""
    bars = [(title, who, row["over_native"]) for title, who, row in rows_of(parts) if "native" not in who]
    with styled():
        picture, grid = figure(6.5, 0.22 * len(bars) + 0.8)
        axes = grid[0, 0]
        for place, (_, who, ratio) in enumerate(reversed(bars)):
            kind = next(i for i, name in enumerate(CONTESTANTS) if who.startswith(name))
            axes.barh(place, ratio, color=series(kind)["color"])
            axes.text(ratio + 0.3, place, f"{ratio:.0f}" if ratio > 10 else f"{ratio:.1f}", va="center")
        axes.set_yticks(range(len(bars)), [f"{title}: {who}" for title, who, _ in reversed(bars)])
        axes.set_xlabel("processor time over that of the compiled engine")
        picture.savefig(path)
