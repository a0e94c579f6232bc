"""Active learning: select structures, label them, and update the posterior."""
