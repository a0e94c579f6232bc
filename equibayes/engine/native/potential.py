"""û and its gradient by the C++ functions: what `bayes.potential.Potential` computes."""

import ctypes

import torch

from equibayes.bayes.potential import Evaluation, Potential
from equibayes.engine.native.module import load
from equibayes.engine.native.steps import view_of_data


class NativePotential:
    """A potential without the sampler: whole steps evaluate it inside C++ (steps.py)."""

    def __init__(self, potential: Potential) -> None:
        self.potential = potential
        self.module = load(potential.model)
        self._data, self._kept = view_of_data(potential.data)

    def __call__(
        self,
        position: torch.Tensor,
        indices: torch.Tensor,
        feature_mask: torch.Tensor | None = None,
        balance: float = 0.0,
    ) -> Evaluation:
        """As the reference, for θ [K, P] in float32."""
        potential, module = self.potential, self.module
        chains, batch = len(position), indices.shape[1]
        factors, places = potential.model.layout.scale.like(position), module.places.long()
        weights = position.new_zeros(chains, module.size)
        weights[:, places] = position.detach() * factors
        gradient = torch.zeros_like(weights)
        frames = indices.expand(chains, -1).contiguous()
        mask = None if feature_mask is None else feature_mask.contiguous()
        scale = potential.data_size / batch
        seen = torch.zeros(chains, 5, dtype=torch.float64)
        module.library.potential_run(
            ctypes.byref(self._data), ctypes.c_int64(chains), ctypes.c_int64(batch), int(potential.objective == "squares"),
            _address(frames), _address(weights), _address(mask), ctypes.c_double(scale), ctypes.c_double(balance), _address(gradient),
            _address(seen), ctypes.c_int64(torch.get_num_threads()),
        )  # fmt: skip
        log_p, weighted, wrong, sigma, count = seen.unbind(1)
        return Evaluation(
            gradient=gradient[:, places] * factors + potential.prior.gradient(position),
            potential=potential.prior.neg_log_density(position).double() - scale * weighted,
            log_likelihood=log_p / batch,
            force_mae=(wrong / count).to(position),
            force_sigma=(sigma / count).to(position),
        )


def _address(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())
