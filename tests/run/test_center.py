"""A prior around a network that was trained elsewhere: its architecture, the width by the rule, heads and reference."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from equibayes.bayes.heads import FORCE_HEAD
from equibayes.bayes.prior import CentredNormal
from equibayes.data import Dataset, Structure
from equibayes.data.graph import Graph, graph_of
from equibayes.engine.selftest_cases import FOUNDATION
from equibayes.errors import InputError
from equibayes.network.config import NetworkConfig, preset
from equibayes.network.nequip import NequIP
from equibayes.posterior.center import load_center, spread_in_chains
from equibayes.posterior.conclude import FEWEST_LABELS, affordable
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import sample, sample_prepared
from equibayes.posterior.tangent import refine
from equibayes.posterior.tangent_plan import LABELS
from equibayes.run import Run
from equibayes.run.center import Center
from equibayes.run.prepare import Prepared, make_prior, prepare
from equibayes.run.settings import SampleConfig, sample_config
from equibayes.units import KCAL_PER_MOL
from tests.models import graph
from tests.runs import ethanol_frames, small_config
from tests.samples import SPECIES, ethanol, salt, silicon

SHIFTS = {name: -5.0 - i for i, name in enumerate(SPECIES)}


def pretrained(scale: float = 1.0) -> Center:
    """A small network like SevenNet that knows six species; arrays of weights of very different sizes."""
    config = preset("tiny", l_max=2, num_features=[4, 3, 2], **FOUNDATION, type_names=list(SPECIES))
    config = replace(config, avg_num_neighbors=9.0, per_type_energy_scales=1.5, per_type_energy_shifts=SHIFTS)
    layout = NequIP(replace(config, per_type_energy_shifts_trainable=False)).layout
    weights = layout.start(1, 3, torch.float64) * scale
    views = layout.views(weights)
    views["readout"] = 30 * views["readout"]
    return Center("pretrained.pth", replace(config, per_type_energy_shifts_trainable=False), layout.flatten(views), "0")


def labelled(center: Center, structures: list[Structure], error: float = 0.3, shift: float = 0.0) -> Dataset:
    """Labels of the network itself, with random errors of the forces, eV/Å, and a shift per atom, eV."""
    network = NequIP(replace(center.network, model_dtype="float64"))
    found, rng = [], np.random.default_rng(0)
    for structure in structures:
        output = network(network.layout.forward_weights(center.weights), graph(structure))
        energy = output.energy.item() + sum(SHIFTS[symbol] + shift for symbol in structure.to_atoms().symbols)
        forces = output.forces[0].numpy() + error * rng.normal(size=(len(structure), 3))
        found.append(replace(structure, energy=energy, forces=forces))
    return Dataset(found, "labelled")


def config_around(**prior: object) -> SampleConfig:
    own = {"prior": {"center": "pretrained.pth", **prior}, "data": {"validation": 0}, "chains": 2, "samples": 2}
    return sample_config("tune", None, own)


def around(center: Center, data: Dataset, **prior: object) -> Prepared:
    return prepare(data, config_around(**prior), center=center)


MOLECULES = [ethanol(seed) for seed in range(4)]


def test_network_and_species_are_those_of_the_centre_and_of_the_data():
    center = pretrained()
    prepared = around(center, labelled(center, MOLECULES))
    assert prepared.network.type_names == ["H", "C", "O"]
    assert prepared.network.rotations_only
    assert prepared.network.num_layers == center.network.num_layers
    whole, part = NequIP(center.network), prepared.model.network
    assert prepared.center is not None
    position = prepared.center.positions(prepared.model)
    found = part(prepared.model.layout.forward_weights(position), graph_of_three(MOLECULES[0]))
    expected = whole(whole.layout.forward_weights(center.weights), graph(MOLECULES[0]))
    torch.testing.assert_close(found.forces, expected.forces, rtol=1e-10, atol=1e-12)
    chosen = replace(config_around(), network=NetworkConfig(type_names=["H", "C", "O", "Si"]))
    assert prepare(labelled(center, MOLECULES), chosen, center=center).network.type_names == ["H", "C", "O", "Si"]


def graph_of_three(structure: Structure) -> Graph:
    return graph_of(structure, r_max=4.0, species_of={1: 0, 6: 1, 8: 2})


def test_width_by_the_rule():
    """Forces of networks from the prior vary as much as the centre is wrong, whatever the sizes of the weights."""
    for error in (0.05, 0.5):
        center = pretrained()
        prepared = around(center, labelled(center, MOLECULES, error))
        assert prepared.zero_shot["force_rms"] == pytest.approx(error, rel=0.2)
        prior = make_prior(prepared, "cpu")
        assert isinstance(prior, CentredNormal)
        draws = prior.center + prior.width * torch.randn(
            64, len(prior.width), generator=torch.Generator().manual_seed(7)
        )
        forces = prepared.model(draws, graph_of_three(MOLECULES[1]).to(dtype=torch.float32)).forces
        at_centre = prepared.model(prior.center[None], graph_of_three(MOLECULES[1]).to(dtype=torch.float32)).forces
        assert 0.6 < float((forces - at_centre).square().mean().sqrt()) / error < 1.6
    views = prepared.model.layout.views(prior.width[None])
    assert float(views["readout"][0, 0]) > 10 * float(views["layer0.linear_1.0e"][0, 0, 0]), "relative to each array"
    assert bool((prior.width[prepared.model.layout.groups[FORCE_HEAD]] == 1.0).all())


def test_heads_begin_at_the_zero_shot_errors_and_the_reference_at_what_energies_leave():
    center = pretrained()
    data = labelled(center, [*MOLECULES, salt(), silicon()], 0.2, shift=1.0)
    prepared = around(center, data)
    bias = prepared.model.layout.views(prepared.model.layout.start(1, 0))[f"{FORCE_HEAD}.bias2"]
    assert float(bias.exp()) * KCAL_PER_MOL == pytest.approx(prepared.zero_shot["force_rms"], rel=1e-5)
    for structure in data:
        at_rest = sum(SHIFTS[symbol] + 1.0 for symbol in structure.to_atoms().symbols)
        assert prepared.reference.total(structure.numbers) == pytest.approx(at_rest, abs=1e-3)
    assert prepared.zero_shot["energy_rms_per_atom"] < 1e-4
    assert prepared.reference.knows(ethanol().numbers)
    assert not around(center, labelled(center, MOLECULES)).reference.knows([1]), "one formula tells one sum"
    assert prepared.notes[1].startswith("zero-shot error on 6 training frames: forces ")


def test_an_explicit_width_and_groups():
    center = pretrained()
    data = labelled(center, MOLECULES)
    prepared = around(center, data, width=0.2, group_widths={"readout": 0.5})
    prior = make_prior(prepared, "cpu")
    views = prepared.model.layout.views(prior.width[None])
    assert prepared.center is not None
    weights = NequIP(prepared.network).layout.views(prepared.center.weights)
    for name, width in (("readout", 0.5), ("layer0.linear_2.1e", 0.2)):
        rms = float(weights[name].square().mean().sqrt())
        torch.testing.assert_close(views[name], torch.full_like(views[name], width * rms))
    with pytest.raises(InputError, match="width=none: is chosen by the errors of a centre"):
        make_prior(prepare(ethanol_frames(12), small_config({"prior": {"width": None}})), "cpu")


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> tuple[str, Posterior]:
    file = str(tmp_path_factory.mktemp("center") / "first.posterior")
    config = small_config({"chains": 2, "samples": 6, "burn_in": {"steps": 20}, "cycles": {"length": 6}})
    return file, sample(ethanol_frames(12), config, run=Run(file, device="cpu"))


def test_the_whole_of_a_posterior(first):
    """Each chain has a sample of its own, the latest ones first; the spread within chains makes the widths."""
    file, posterior = first
    center = load_center(file)
    assert center is not None
    assert len(center.weights) == 6
    assert torch.equal(
        center.weights[:2], torch.stack([posterior.samples[posterior.chain == c][-1] for c in (0, 1)]).double()
    )
    spread = spread_in_chains(posterior)
    own = [posterior.samples[posterior.chain == c].double() for c in (0, 1)]
    rows = posterior.model.layout.groups["readout"]
    expected = torch.cat([(each - each.mean(0))[:, rows] for each in own]).square().sum() / (
        4 * (rows.stop - rows.start)
    )
    assert spread is not None
    torch.testing.assert_close(spread[rows.start], expected.sqrt())
    settings = {"prior": {"center": file, "width": 1.0, "relative": True}, "chains": 4, "samples": 4}
    prepared = prepare(ethanol_frames(12), small_config(settings), center=center)
    prior = make_prior(prepared, "cpu")
    assert isinstance(prior, CentredNormal)
    heads = prepared.model.layout.groups[FORCE_HEAD].start
    assert torch.equal(prior.center[:, :heads].double(), center.weights[:4, :heads])
    frames = prepared.resident(prepared.train, "cpu")
    graph, _ = frames.batch(torch.arange(len(frames))[None])
    sigma = prepared.model(prepared.center.positions(prepared.model).float(), graph).sigma_forces[:, graph.real[0]]
    assert float(sigma.square().mean().sqrt()) == pytest.approx(prepared.zero_shot["force_rms"], rel=1e-3)
    torch.testing.assert_close(prior.width[rows], spread[rows].float())
    assert spread_in_chains(posterior.take([0, 1])) is None, "one sample of each chain"


def test_the_whole_of_a_refined_posterior(first, tmp_path):
    """Its samples have the weights of the chains, and differ in how far these move."""
    _, posterior = first
    refined = refine(posterior, ethanol_frames(12), draws=2)
    refined.save(tmp_path / "refined.posterior")
    center = load_center(str(tmp_path / "refined.posterior"))
    assert center is not None
    rows = posterior.model.layout.groups["readout"]
    half = (refined.tangent[:2] - refined.tangent[2:])[:, rows].double()
    assert center.spread is not None
    torch.testing.assert_close(center.spread[rows.start], half.square().mean().div(2).sqrt())


def test_unknown_species():
    center = pretrained()
    data = labelled(center, MOLECULES)
    strange = Dataset([replace(data[0], numbers=np.where(data[0].numbers == 8, 16, data[0].numbers))], "strange")
    with pytest.raises(InputError, match="S is not among the species of the pretrained network"):
        prepare(strange, config_around(), center=center)


def test_species_that_no_frame_has_keep_the_doubt_of_the_prior():
    """Rows of silicon are draws from the prior; those of the data are not."""
    center = pretrained()
    data = labelled(center, MOLECULES)
    config = replace(config_around(), network=NetworkConfig(type_names=["H", "C", "O", "Si"]))
    config = replace(config, burn_in=replace(config.burn_in, steps=2), cycles=replace(config.cycles, length=2))
    prepared = prepare(data, config, center=center)
    posterior = sample_prepared(prepared, data, Run(device="cpu"))
    prior = make_prior(prepared, "cpu")
    rows = prepared.model.layout.views(prior.standardised(posterior.samples))["embedding"]
    assert float(rows[:, 3].square().mean().sqrt()) == pytest.approx(1.0, abs=0.5)
    assert float(rows[:, :3].square().mean().sqrt()) < 0.3, "began a tenth of the width away"


def test_a_run_ends_with_inference_in_units_of_the_prior():
    """With the preset, few steps are enough; arrays of weights move in proportion to their size."""
    center = pretrained()
    data = labelled(center, MOLECULES, 0.05)
    config = config_around()
    assert config.tangent == "on"
    few = replace(config, burn_in=replace(config.burn_in, steps=4), cycles=replace(config.cycles, length=2))
    few = replace(few, prior=replace(few.prior, group_widths={"embedding": 1e-6}))
    posterior = sample_prepared(prepare(data, few, center=center), data, Run(device="cpu"))
    assert posterior.tangent is not None
    moved, size = (posterior.model.layout.views(each.double()) for each in (posterior.tangent, posterior.samples))
    share = {
        name: float(moved[name].square().mean() / size[name].square().mean()) ** 0.5
        for name in ("readout", "layer0.linear_1.0e", "layer1.linear_2.0e")
    }
    assert float(moved["embedding"].abs().max()) < 1e-4 * float(moved["readout"].abs().max()), "as good as fixed"
    assert max(share.values()) < 5 * min(share.values()), share
    assert float(size["readout"].abs().mean()) > 20 * float(size["layer0.linear_1.0e"].abs().mean())


def test_fewer_labels_where_there_are_many_neighbours():
    config, data = config_around(), labelled(pretrained(), MOLECULES)
    few = replace(config, tangent="off", burn_in=replace(config.burn_in, steps=2))
    posterior = sample_prepared(prepare(data, few, center=pretrained()), data, Run(device="cpu"))
    assert affordable(posterior, config, data) == LABELS
    crystals = labelled(pretrained(), [silicon()])
    dense = replace(posterior, network=replace(posterior.network, r_max=20.0))
    assert affordable(dense, config, crystals) == FEWEST_LABELS
    assert affordable(posterior, small_config({}), data) is None
