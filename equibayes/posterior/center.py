"""The network that a prior is centred on, from a posterior file or a NequIP checkpoint."""

import hashlib
from pathlib import Path

from equibayes.network.official import load_official
from equibayes.posterior.file import load
from equibayes.run.prepare import Center


def load_center(path: str | None) -> Center | None:
    """What `prior.center` names; None where it names nothing.

    Of a posterior the last sample is taken: weights have symmetries, so the mean over samples has no meaning.
    """
    if path is None:
        return None
    if path.endswith(".ckpt"):
        official = load_official(path)
        network, weights, baseline = official.config, official.weights[0], None
    else:
        posterior = load(path)
        network, weights, baseline = posterior.network, posterior.samples[-1], posterior.baseline
    return Center(path, network, weights.double(), hashlib.sha256(Path(path).read_bytes()).hexdigest(), baseline)
