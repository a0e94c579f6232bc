"""The SevenNet package as it evaluates its own models (test-only dependency)."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from equibayes.data import Structure
from equibayes.data.elements import atomic_number
from equibayes.data.graph import graph_of
from equibayes.network.nequip import NequIP
from equibayes.network.pretrained import Pretrained


def calculator(path: str, fidelity: str | None = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sevenn.calculator import SevenNetCalculator

        return SevenNetCalculator(path, modal=fidelity, device="cpu")


def in_single_precision(theirs: Any, structure: Structure) -> dict[str, Any]:
    """energy (eV), forces, stress (None for molecules), as the calculator computes them."""
    atoms = structure.to_atoms()
    atoms.calc = theirs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stress = atoms.get_stress(voigt=False) if structure.pbc.all() else None
        return {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces(), "stress": stress}


def make_double(theirs: Any) -> None:
    """The model of the calculator in double precision: exact coupling tensors, and no inputs in single precision."""
    from e3nn.o3 import wigner_3j
    from sevenn.nn.node_embedding import OnehotEmbedding

    theirs.model.double()
    for name, tensor in theirs.model.named_buffers():
        if "_w3j_" in name:
            tensor.copy_(wigner_3j(*map(int, name.rsplit("_", 3)[1:]), dtype=torch.float64))

    def doubled(module: Any, _: Any, data: Any) -> Any:
        for key in (module.key_output, module.key_additional_output):
            if key is not None:
                data[key] = data[key].double()
        return data

    for module in theirs.model.modules():
        if isinstance(module, OnehotEmbedding):
            module.register_forward_hook(doubled)


def in_double_precision(theirs: Any, structure: Structure) -> dict[str, Any]:
    """The same after `make_double`: its graph is in single precision, so vectors are put in again."""
    import sevenn._keys as KEY
    from sevenn.atom_graph_data import AtomGraphData
    from sevenn.train.dataload import unlabeled_atoms_to_graph

    graph = unlabeled_atoms_to_graph(structure.to_atoms(), theirs.cutoff, with_shift=False)
    data = AtomGraphData.from_numpy_dict(dict(graph))
    data[KEY.EDGE_VEC] = torch.from_numpy(np.asarray(graph[KEY.EDGE_VEC], dtype=np.float64))
    data[KEY.CELL_VOLUME] = torch.tensor(float(graph[KEY.CELL_VOLUME]), dtype=torch.float64)
    if theirs.modal:
        data[KEY.DATA_MODALITY] = theirs.modal
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        output = theirs.model(data)
    finally:
        torch.set_default_dtype(before)
    xx, yy, zz, xy, yz, xz = (-output[KEY.PRED_STRESS]).detach().tolist()
    stress = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) if structure.pbc.all() else None
    return {
        "energy": output[KEY.PRED_TOTAL_ENERGY].item(),
        "forces": output[KEY.PRED_FORCE].detach().numpy()[: len(structure)],
        "stress": stress,
    }


def evaluate_ours(model: Pretrained, structure: Structure, dtype: torch.dtype) -> dict[str, Any]:
    """The same numbers from the converted model."""
    network = NequIP(model.config)
    species_of = {atomic_number(name): i for i, name in enumerate(model.config.type_names)}
    graph = graph_of(structure, r_max=model.config.r_max, species_of=species_of).to(dtype=dtype)
    output = network(network.layout.forward_weights(model.weights.to(dtype)), graph)
    stress = (output.virial[0, 0].double() / graph.volume[0, 0].double()).numpy() if structure.pbc.all() else None
    energy = output.energy.item() + total_shift(model, structure.to_atoms().get_chemical_symbols())
    return {"energy": energy, "forces": output.forces[0].double().numpy(), "stress": stress}


def total_shift(model: Pretrained, symbols: Sequence[str]) -> float:
    """eV; what all atoms have at rest."""
    return sum(model.shifts[symbol] for symbol in symbols)
