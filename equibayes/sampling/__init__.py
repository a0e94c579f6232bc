"""From a log density to samples.

``sghmc`` (init, step), ``mass``, ``schedule``, ``noise``, ``minibatch``, ``diagnostics`` and ``stability`` need torch
and numpy alone and know nothing of atoms: ``from equibayes.sampling import sghmc`` samples any density whose gradient
you have.
"""
