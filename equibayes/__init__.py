"""Interatomic forces that know how far to be trusted."""
