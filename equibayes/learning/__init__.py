"""Learning from new labels: which structures are worth one, and the engines that compute them."""
