"""Posteriors in the classes and files of other programs: torch-sim, metatomic, i-PI, OpenMM-ML and chemiscope."""
