"""What the Bayesian posterior is measured against: the same backbone, data, step budget and code path, without the
Bayes."""
