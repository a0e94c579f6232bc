"""H-capped oligomers of 3,4-ethylenedioxythiophene (EDOT), built from SMILES by RDKit."""

from __future__ import annotations

from ase import Atoms

UNIT = "c1c2OCCOc2c(s1)"
"""Thiophene with the ethylenedioxy bridge, from one alpha carbon to the other; the next unit follows directly."""

THIOPHENE_LINK = "[#16;r5]:[#6]-!@[#6]:[#16;r5]"
"""SMARTS of the dihedral S-C-C-S over the bond between two rings."""


def smiles(units: int) -> str:
    """A chain with hydrogen at both ends: 13 atoms per unit and 2 more."""
    return UNIT * units


def build(units: int, seed: int = 0) -> Atoms:
    """Stretched chain (neighbouring sulphurs on opposite sides), relaxed by the MMFF94 force field; positions in Å."""
    from rdkit import Chem
    from rdkit.Chem import AllChem, rdMolTransforms

    molecule = Chem.AddHs(Chem.MolFromSmiles(smiles(units)))
    if AllChem.EmbedMolecule(molecule, randomSeed=seed, useRandomCoords=True) != 0:
        raise RuntimeError(f"RDKit found no geometry for {units} units; try another seed")
    conformer = molecule.GetConformer()
    links = molecule.GetSubstructMatches(Chem.MolFromSmarts(THIOPHENE_LINK))
    if len(links) != units - 1:
        raise RuntimeError(f"{len(links)} links between {units} units; {units - 1} were expected")
    for link in links:
        rdMolTransforms.SetDihedralDeg(conformer, *link, 180.0)
    AllChem.MMFFOptimizeMolecule(molecule, maxIters=5000)
    return Atoms([atom.GetSymbol() for atom in molecule.GetAtoms()], conformer.GetPositions())
