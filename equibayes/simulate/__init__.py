"""Simulations with uncertainties: the ASE calculator, molecular dynamics, observables, LAMMPS and i-PI."""
