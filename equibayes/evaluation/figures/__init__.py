"""Figures of an evaluation: drawn with matplotlib, for papers (SVG, PDF) and for the report.

`curves` computes, the other modules draw; `style` decides how all of them look.
"""

from equibayes.evaluation.figures.calibration import reliability_diagram, sigma_against_error
from equibayes.evaluation.figures.densities import density_of_errors, histogram_of_forces
from equibayes.evaluation.figures.drawing import Drawing, slug
from equibayes.evaluation.figures.outliers import error_of_remaining, roc_curves
from equibayes.evaluation.figures.run import learning_history, probe_traces
from equibayes.evaluation.figures.sets import by_sample_count, by_species
from equibayes.evaluation.figures.stress import parity_of_stress

__all__ = [
    "Drawing",
    "by_sample_count",
    "by_species",
    "density_of_errors",
    "error_of_remaining",
    "histogram_of_forces",
    "learning_history",
    "parity_of_stress",
    "probe_traces",
    "reliability_diagram",
    "roc_curves",
    "sigma_against_error",
    "slug",
]
