"""Simulations that watch their own uncertainty: the ASE calculator, molecular dynamics, observables."""
