"""What a step is: AMSGrad without noise, pure, the same bits however chains are batched, stored or resumed."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from equibayes.errors import InputError
from equibayes.sampling import mass as mass_rule
from equibayes.sampling import sghmc
from equibayes.sampling.chain import STREAM_BURN_IN, STREAM_CYCLES, STREAM_EARLY
from equibayes.sampling.noise import STREAM_INITIAL_MOMENTUM, STREAM_STEP, NoiseKey, standard_normal


def rosenbrock_gradient(x: torch.Tensor) -> torch.Tensor:
    """An anharmonic potential on [K, P]; each chain alone."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        u = 5 * (x[:, 1:] - x[:, :-1] ** 2).square().sum() + 0.5 * (1 - x).square().sum()
        return torch.autograd.grad(u, x)[0]


def trajectory(gradient, start, steps, *, gamma, n, config, **options):
    state, positions = sghmc.init(start), []
    for _ in range(steps):
        state = sghmc.step(
            state,
            gradient(state.position),
            torch.zeros_like(start),
            learning_rate=gamma,
            data_size=n,
            config=config,
            **options,
        )
        positions.append(state.position)
    return torch.stack(positions)


@pytest.mark.parametrize("integrator", ["paper", "baoa"])
def test_temperature_zero_is_amsgrad_by_hand(integrator):
    """The printed update with v, while the mass adapts: v ← (1−α)v − (α/N)∇u, θ ← θ + γ' v/M; γ' = (1−α/2)γ for
    baoa."""
    N, gamma, alpha, beta, epsilon = 30.0, 1e-2, 0.1, 0.999, 1e-3
    start = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(2, 6)
    config = sghmc.SGHMCConfig(integrator=integrator, temperature=0.0)
    ours = trajectory(rosenbrock_gradient, start, 300, gamma=gamma, n=N, config=config)
    theta, v, a, D = start.clone(), *(torch.zeros_like(start) for _ in range(3))
    rate = gamma * (1 - alpha / 2) if integrator == "baoa" else gamma
    for t in range(1, 301):
        g = rosenbrock_gradient(theta) / N
        a = (1 - beta) * g**2 + beta * a
        D = torch.maximum(D, a)
        M = (D / (1 - beta**t)).sqrt() + epsilon
        v = (1 - alpha) * v - alpha * g
        theta = theta + rate * v / M
        torch.testing.assert_close(ours[t - 1], theta, rtol=1e-10, atol=1e-12)
    assert float((theta - start).abs().min()) > 0.01  # it did go somewhere


def test_temperature_zero_is_torch_amsgrad():
    """torch.optim.Adam(amsgrad=True) on û/N, with its bias correction of the first moment undone by lr =
    γ(1−(1−α)^t)."""
    N, gamma = 30.0, 1e-2
    start = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(2, 6)
    config = sghmc.SGHMCConfig(integrator="paper", temperature=0.0)
    ours = trajectory(rosenbrock_gradient, start, 300, gamma=gamma, n=N, config=config)
    theta = start.clone().requires_grad_()
    adam = torch.optim.Adam([theta], betas=(0.9, 0.999), eps=1e-3, amsgrad=True)
    for t in range(1, 301):
        adam.param_groups[0]["lr"] = gamma * (1 - 0.9**t)
        theta.grad = rosenbrock_gradient(theta) / N
        adam.step()
        torch.testing.assert_close(ours[t - 1], theta.detach(), rtol=1e-9, atol=1e-11)


def test_mass_is_amsgrad_and_stays_put_after_the_freeze():
    gradients = torch.randn(40, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    state = mass_rule.init(gradients[0])
    assert bool((state.mass == 1).all())
    for t, g in enumerate(gradients, start=1):
        before = state
        state = mass_rule.update(state, g, 0.99, 1e-3)
        assert int(before.updates) == t - 1  # pure
        torch.testing.assert_close(state.average, 0.99 * before.average + 0.01 * g**2)
        assert bool((state.maximum >= before.maximum).all())
        torch.testing.assert_close(state.mass, (state.maximum / (1 - 0.99**t)).sqrt() + 1e-3)
    chain = sghmc.init(gradients[0])._replace(mass=state)
    for g in gradients:
        chain = sghmc.step(
            chain,
            g,
            torch.zeros_like(g),
            learning_rate=1e-3,
            data_size=1,
            config=sghmc.SGHMCConfig(),
            adapt_mass=False,
        )
    assert all(torch.equal(a, b) for a, b in zip(chain.mass, state))


def noisy_run(state, key, steps, *, gamma=3e-3, gradient=rosenbrock_gradient, adapt_until=20, integrator="baoa"):
    config = sghmc.SGHMCConfig(integrator=integrator)
    for _ in range(steps):
        adapt = int(state.step) < adapt_until
        g = gradient(state.position)
        state = sghmc.step(state, g, key, learning_rate=gamma, data_size=20, config=config, adapt_mass=adapt)
    return state


def assert_same_bits(a: sghmc.State, b: sghmc.State) -> None:
    for name, tensor in sghmc.to_tensors(a).items():
        assert torch.equal(tensor, sghmc.to_tensors(b)[name]), name


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    chains=st.integers(1, 5),
    size=st.integers(2, 41),
    single=st.booleans(),
    integrator=st.sampled_from(["baoa", "paper"]),
)
def test_chains_in_one_pass_are_chains_one_after_the_other(chains, size, single, integrator):
    """Bit for bit, also in single precision and for sizes that do not fill a vector register."""
    dtype = torch.float32 if single else torch.float64
    start = torch.linspace(-1, 1, chains * size, dtype=dtype).reshape(chains, size)
    gamma = torch.linspace(1e-3, 3e-3, chains, dtype=torch.float64)
    gradient = torch.sin  # elementwise, so that the gradient is not what differs
    key = NoiseKey(9, range(chains))
    together = noisy_run(sghmc.init(start, key), key, 30, gamma=gamma, gradient=gradient, integrator=integrator)
    for k in reversed(range(chains)):
        own = NoiseKey(9, [k])
        alone = sghmc.init(start[k : k + 1], own)
        alone = noisy_run(alone, own, 30, gamma=gamma[k : k + 1], gradient=gradient, integrator=integrator)
        assert torch.equal(alone.position[0], together.position[k])
        assert torch.equal(alone.momentum[0], together.momentum[k])
        assert torch.equal(alone.mass.mass[0], together.mass.mass[k])


@pytest.mark.parametrize("interrupted_at", [1, 19, 20, 33])
def test_a_restored_state_continues_bit_for_bit(interrupted_at, tmp_path):
    key = NoiseKey(4, [0, 1, 7])
    start = torch.linspace(-1, 1, 18).reshape(3, 6)
    whole = noisy_run(sghmc.init(start, key), key, 50)
    half = noisy_run(sghmc.init(start, key), key, interrupted_at)
    torch.save(sghmc.to_tensors(half), tmp_path / "state.pt")
    restored = sghmc.from_tensors(torch.load(tmp_path / "state.pt", weights_only=True))
    assert_same_bits(noisy_run(restored, key, 50 - interrupted_at), whole)


def test_step_is_pure_and_equals_the_step_in_place():
    key = NoiseKey(1, [0, 1])
    state = noisy_run(sghmc.init(torch.linspace(-1, 1, 8).reshape(2, 4), key), key, 5)
    before = sghmc.clone(state)
    gradient = rosenbrock_gradient(state.position)
    options = {"learning_rate": 1e-3, "data_size": 20, "config": sghmc.SGHMCConfig()}
    new = sghmc.step(state, gradient, key, **options)
    assert_same_bits(state, before)
    sghmc.step(state, gradient, key, **options, inplace=True)
    assert_same_bits(state, new)


@pytest.mark.parametrize("temperature", [4.0, torch.tensor([0.25, 9.0])])
def test_initial_momentum_has_a_stream_of_its_own_and_variance_T(temperature):
    """r = √T ξ with ξ of the stream that no step draws from."""
    key, start = NoiseKey(3, [0, 5]), torch.zeros(2, 6, dtype=torch.float64)
    ξ = standard_normal(key, 0, 6, stream=STREAM_INITIAL_MOMENTUM, dtype=torch.float64)
    found = sghmc.init(start, key, temperature=temperature).momentum
    root = torch.as_tensor(temperature, dtype=torch.float64).reshape(-1, 1) ** 0.5
    torch.testing.assert_close(found, root * ξ, rtol=1e-15, atol=0)
    assert torch.equal(sghmc.init(start, key).momentum, ξ)
    assert len({STREAM_STEP, STREAM_INITIAL_MOMENTUM, STREAM_EARLY, STREAM_BURN_IN, STREAM_CYCLES}) == 5


def test_noise_may_be_given_or_drawn():
    key = NoiseKey(1, [0, 3])
    state = noisy_run(sghmc.init(torch.linspace(-1, 1, 8, dtype=torch.float32).reshape(2, 4), key), key, 5)
    gradient = rosenbrock_gradient(state.position)
    options = {"learning_rate": 1e-3, "data_size": 20, "config": sghmc.SGHMCConfig()}
    given = sghmc.step(state, gradient, standard_normal(key, 5, 4), **options)
    assert_same_bits(given, sghmc.step(state, gradient, key, **options))


def test_learning_rate_and_temperature_of_each_chain():
    """A tensor [K] acts row by row; a 0-d tensor and a number are the same; γ = 0 holds a chain in place."""
    key, config = NoiseKey(1, [0, 1]), sghmc.SGHMCConfig()
    state = sghmc.init(torch.linspace(-1, 1, 8).reshape(2, 4), key)
    g = rosenbrock_gradient(state.position)
    rates, temperatures = torch.tensor([0.0, 1e-3]), torch.tensor([1.0, 0.0])
    mixed = sghmc.step(state, g, key, learning_rate=rates, temperature=temperatures, data_size=2, config=config)
    assert torch.equal(mixed.position[0], state.position[0])
    cold = sghmc.step(state, g, key, learning_rate=torch.tensor(1e-3), temperature=0.0, data_size=2, config=config)
    assert torch.equal(mixed.position[1], cold.position[1])
    assert torch.equal(mixed.momentum[1], cold.momentum[1])


def test_a_broken_chain_does_not_touch_the_others():
    key, config = NoiseKey(1, [0, 1]), sghmc.SGHMCConfig()
    state = sghmc.init(torch.ones(2, 4), key)
    bad = torch.ones(2, 4)
    bad[0] = torch.nan
    new = sghmc.step(state, bad, key, learning_rate=1e-3, data_size=2, config=config)
    good = sghmc.step(state, torch.ones(2, 4), key, learning_rate=1e-3, data_size=2, config=config)
    assert torch.equal(new.position[1], good.position[1])
    assert bool(new.position[0].isnan().all())


@pytest.mark.parametrize(
    "wrong",
    [
        {"integrator": "euler"},
        {"friction": 0.0},
        {"friction": 1.5},
        {"temperature": -1.0},
        {"beta": 1.0},
        {"epsilon": 0.0},
    ],
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        sghmc.SGHMCConfig(**wrong)


def test_wrong_shapes_are_refused():
    with pytest.raises(InputError, match="chains, parameters"):
        sghmc.init(torch.zeros(3))
    with pytest.raises(InputError, match="1 chain identity for 2 chains"):
        sghmc.init(torch.zeros(2, 3), NoiseKey(0, [0]))


def test_the_sampler_imports_without_the_rest():
    """A user who samples a density of his own loads torch and numpy, but neither ASE nor the network."""
    code = (
        "import sys; from equibayes.sampling import sghmc, schedule, minibatch, diagnostics, stability;"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('ase', 'vesin', 'scipy', 'safetensors', 'nequip')"
        " or m.startswith(('equibayes.data', 'equibayes.network', 'equibayes.bayes', 'equibayes.cli'))];"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
