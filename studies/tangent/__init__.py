"""The linearised posterior against its rivals at equal computing time."""
