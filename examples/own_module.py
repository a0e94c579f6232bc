"""Sample the weights of your own torch module.

The sampler is independent of atoms: it needs the gradient of a potential u(θ) = −ln prior − Σ ln likelihood at flat
weights θ [K, P], K chains at once.  Here the module is a small regression network with two outputs, mean and ln σ.
Steps:

1. flatten the module's parameters, and evaluate it with `torch.func.functional_call`, mapped over chains by `vmap`;
2. write the potential of a minibatch (the likelihood scaled by N/|batch|, the prior once);
3. follow a schedule: burn-in with adapting mass, freeze, cycles with one sample each;
4. predict with all samples: their spread is the epistemic, the mean σ² the aleatoric variance.

Run it:  python examples/own_module.py
"""

import math

import torch
from torch.func import functional_call, grad, vmap

from equibayes.bayes.prior import StandardNormal
from equibayes.sampling import diagnostics, sghmc
from equibayes.sampling.minibatch import batch_indices, steps_per_epoch
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import BurnIn, Cycles, Schedule

CHAINS, N, BATCH, SEED = 8, 60, 20, 0


def make_data() -> tuple[torch.Tensor, torch.Tensor]:
    """y = sin 2x with noise that grows to the right; x in [−2, 2], with a gap at 0 < x < 1."""
    generator = torch.Generator().manual_seed(SEED)
    x = torch.cat([torch.linspace(-2, 0, N // 2), torch.linspace(1, 2, N // 2)])[:, None]
    noise = torch.where(x > 0, 0.3, 0.1)
    return x, torch.sin(2 * x) + noise * torch.randn(N, 1, generator=generator)


class Regression(torch.nn.Module):
    """Any module can be used; its outputs enter the likelihood below."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(1, width), torch.nn.Tanh(), torch.nn.Linear(width, 2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_sigma = self.layers(x).split(1, dim=-1)
        return mean, log_sigma - 1.0


class Flat:
    """A module as a function of one flat vector of weights."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.shapes = {name: p.shape for name, p in module.named_parameters()}
        self.size = sum(shape.numel() for shape in self.shapes.values())

    def __call__(self, theta: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """θ [P], x [n, 1] → the module's outputs."""
        parts = theta.split([shape.numel() for shape in self.shapes.values()])
        weights = {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts)}
        return functional_call(self.module, weights, (x,))


def main() -> dict[str, float]:
    torch.manual_seed(SEED)
    x, y = make_data()
    model = Flat(Regression())
    prior = StandardNormal()

    def neg_log_likelihood(theta: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """−(N/|batch|) Σ ln p(y|x,θ) of one chain."""
        mean, log_sigma = model(theta, x)
        terms = 0.5 * ((y - mean) / log_sigma.exp()).square() + log_sigma + 0.5 * math.log(2 * math.pi)
        return N / len(x) * terms.sum()

    likelihood_gradient = vmap(grad(neg_log_likelihood))  # over chains: θ [K, P], x and y [K, batch, 1]

    epoch = steps_per_epoch(N, BATCH)
    plan = Schedule(
        BurnIn(steps=1500, initial=5e-2, final=2e-3, freeze_mass_at=900, noise_free_fraction=0.1),
        Cycles("rise_and_fall", count=8, length=100, peak=1e-2),
        steps_per_epoch=(epoch, epoch),
    )
    key, config = NoiseKey(SEED, range(CHAINS)), sghmc.SGHMCConfig()
    state = sghmc.init(0.5 * torch.randn(CHAINS, model.size), key)
    samples: list[torch.Tensor] = []
    kinetic: list[torch.Tensor] = []
    for step in range(plan.total_steps):
        now = plan.at(step)
        batch = batch_indices(key, step, N, BATCH)
        gradient = likelihood_gradient(state.position, x[batch], y[batch]) + prior.gradient(state.position)
        sghmc.step(
            state,
            gradient,
            key,
            learning_rate=now.learning_rate,
            temperature=now.temperature,
            adapt_mass=not now.mass_frozen,
            data_size=N,
            config=config,
            inplace=True,
        )
        if now.phase == "cycle":
            kinetic.append(diagnostics.kinetic_temperature(state.momentum, config))
        if now.collect:
            samples.append(state.position.clone())

    weights = torch.stack(samples)  # [samples, chains, P]
    grid = torch.linspace(-2.5, 2.5, 11)[:, None]
    mean, log_sigma = vmap(vmap(model, (0, None)), (0, None))(weights, grid)  # [samples, chains, 11, 1]
    epistemic = mean.var((0, 1)).sqrt().flatten()
    aleatoric = (2 * log_sigma).exp().mean((0, 1)).sqrt().flatten()
    print("     x   truth    mean  epistemic  aleatoric")
    for row in zip(grid.flatten(), torch.sin(2 * grid).flatten(), mean.mean((0, 1)).flatten(), epistemic, aleatoric):
        print("{:6.2f} {:7.2f} {:7.2f} {:10.3f} {:10.3f}".format(*map(float, row)))

    agreement = diagnostics.convergence(mean[..., 0].transpose(0, 1).numpy())  # of predictions, not of weights
    at_data = vmap(vmap(model, (0, None)), (0, None))(weights, x)[0].mean((0, 1))
    result = {
        "rmse": float((at_data - torch.sin(2 * x)).square().mean().sqrt()),
        "epistemic_at_data": float(epistemic[3]),  # x = −1
        "epistemic_in_gap": float(epistemic[6]),  # x = 0.5
        "epistemic_outside": float(epistemic[0]),  # x = −2.5
        "aleatoric_left": float(aleatoric[3]),
        "aleatoric_right": float(aleatoric[8]),  # x = 1.5
        "kinetic_temperature": float(torch.stack(kinetic).mean()),
        "r_hat": float(agreement.r_hat.max()),
    }
    print(", ".join(f"{name} {value:.3f}" for name, value in result.items()))
    if result["r_hat"] > 1.1:
        print("R-hat above 1.1: samples of one chain are correlated, so the spread comes from the independent chains.")
    return result


if __name__ == "__main__":
    main()
