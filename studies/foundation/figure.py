"""Force errors over those of the network as it is, and ln p, of every system with 20 frames."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from studies.foundation.tables import NAMES, groups_of
from studies.shared.results import save_figure

FRAMES = 20
SHOWN = ("tune", "ensemble", "scratch")


def draw(folder: Path, path: Path) -> None:
    """Means over seeds; a bar for each method that was run.  No figure where no network as it is was measured."""
    groups = groups_of(folder)
    zero = {system: mean(found, "mae") for (system, _, method, _), found in groups.items() if method == "zero"}
    systems = [name for name in zero if (name, FRAMES, "tune", "") in groups]
    if not systems:
        return
    figure, panels = plt.subplots(1, 2, figsize=(9, 0.45 * len(systems) + 1.6), sharey=True)
    rows = np.arange(len(systems))
    for number, method in enumerate(SHOWN):
        found = [groups.get((system, FRAMES, method, "")) for system in systems]
        place = rows + 0.26 * (number - 1)
        ratios = [mean(each, "mae") / zero[system] if each else np.nan for each, system in zip(found, systems)]
        values = [mean(each, "mll") if each else np.nan for each in found]
        if np.isfinite(ratios).any():
            panels[0].barh(place, ratios, 0.24, label=NAMES[method], color=f"C{number}")
            panels[1].barh(place, values, 0.24, color=f"C{number}")
    panels[0].axvline(1 / 3, color="gray", lw=0.8, ls=":")
    panels[0].set(xlabel="force MAE over that of SevenNet-0", yticks=rows, yticklabels=systems)
    panels[0].invert_yaxis()
    panels[1].axvline(0, color="gray", lw=0.8)
    panels[1].set(xlabel="ln p of a force component (eV/Å)")
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.3 / figure.get_size_inches()[1]))
    figure.legend(loc="upper center", ncols=3, frameon=False)
    save_figure(figure, path)
    plt.close(figure)


def mean(found: list[dict[str, Any]], key: str) -> float:
    return float(np.mean([each["result"][key] for each in found]))
