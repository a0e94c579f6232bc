"""Which tests are asked about which source file: the ones most likely to notice first, so that most changes cost
seconds.  A change that they miss is given to the tests of `THEN` too."""

FOLDERS = ("sampling", "bayes", "posterior", "evaluation")

FIRST = {
    "sampling/chain.py": "sampling/test_chain.py run/test_loop.py",
    "sampling/diagnostics.py": "sampling/test_diagnostics.py run/test_verdict.py",
    "sampling/dropout.py": "baselines/test_train.py",
    "sampling/mass.py": "sampling/test_sghmc_step.py",
    "sampling/minibatch.py": "sampling/test_minibatch.py",
    "sampling/noise.py": "sampling/test_noise.py",
    "sampling/schedule.py": "sampling/test_schedule.py run/test_settings.py",
    "sampling/sghmc.py": "sampling/test_sghmc_step.py sampling/test_affine_map.py",
    "sampling/stability.py": "sampling/test_stability.py",
    "bayes/heads.py": "bayes/test_heads.py",
    "bayes/likelihood.py": "bayes/test_likelihood.py baselines/test_train.py",
    "bayes/model.py": "bayes/test_model.py bayes/test_heads.py bayes/test_likelihood.py",
    "bayes/potential.py": "bayes/test_potential.py run/test_loop.py",
    "bayes/prior.py": "bayes/test_prior.py",
    "posterior/calibrate.py": "posterior/test_calibrate.py",
    "posterior/calibration.py": "posterior/test_calibration.py posterior/test_calibrate.py",
    "posterior/center.py": "run/test_loop.py",
    "posterior/choose.py": "posterior/test_calibrate.py",
    "posterior/conformal.py": "posterior/test_conformal.py posterior/test_calibrate.py",
    "posterior/extxyz.py": "posterior/test_predict.py cli/test_predict.py",
    "posterior/file.py": "posterior/test_file.py",
    "posterior/predict.py": "posterior/test_predict.py posterior/test_calibration.py",
    "posterior/rescale.py": "posterior/test_calibrate.py",
    "posterior/sample.py": "posterior/test_sample.py posterior/test_file.py",
    "posterior/sigma.py": "posterior/test_calibration.py",
    "posterior/summary.py": "cli/test_info_posterior.py",
    "posterior/upgrade.py": "posterior/test_upgrade.py",
    "evaluation/calibration_metrics.py": "evaluation/test_calibration_metrics.py evaluation/test_tables.py",
    "evaluation/columns.py": "evaluation/test_columns.py evaluation/test_report.py",
    "evaluation/comparison.py": "evaluation/test_columns.py cli/test_compare.py",
    "evaluation/density.py": "evaluation/test_calibration_metrics.py",
    "evaluation/evaluated.py": "evaluation/test_evaluated.py evaluation/test_tables.py",
    "evaluation/metrics.py": "evaluation/test_metrics.py",
    "evaluation/normal.py": "evaluation/test_metrics.py",
    "evaluation/print_tables.py": "evaluation/test_columns.py cli/test_evaluate.py",
    "evaluation/tables.py": "evaluation/test_tables.py",
    "run/settings.py": "run/test_settings.py",
    "run/chains.py": "run/test_chains.py",
    "run/verdict.py": "run/test_verdict.py",
    "baselines/train.py": "baselines/test_train.py",
    "network/weights.py": "network/test_weights.py",
}
"""Source file below equibayes/ -> test files below tests/."""

THEN = {
    "sampling": "sampling/test_sghmc_step.py sampling/test_affine_map.py sampling/test_stability.py "
    "sampling/test_chain.py sampling/test_minibatch.py sampling/test_sghmc_law.py run/test_settings.py run/test_loop.py",
    "bayes": "bayes network/test_weights.py run/test_loop.py",
    "posterior": "posterior run/test_loop.py cli/test_calibrate.py cli/test_predict.py cli/test_info_posterior.py",
    "evaluation": "evaluation/test_metrics.py evaluation/test_calibration_metrics.py evaluation/test_tables.py "
    "evaluation/test_evaluated.py evaluation/test_columns.py evaluation/test_figures.py evaluation/test_report.py "
    "cli/test_evaluate.py cli/test_compare.py",
}
"""Folder below equibayes/ -> files or folders below tests/."""


def first(path: str) -> list[str]:
    """Of a source file `equibayes/…`; all of its package where nothing is known of the file."""
    name = path.removeprefix("equibayes/")
    return _paths(FIRST.get(name, name.split("/")[0]))


def then(path: str) -> list[str]:
    """Those that `first` did not name; nothing for the packages that are not listed."""
    folder = path.split("/")[1]
    return [each for each in _paths(THEN.get(folder, "")) if each not in first(path)]


def _paths(words: str) -> list[str]:
    return [f"tests/{word}" for word in words.split()]
