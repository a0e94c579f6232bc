"""Properties of crystals with error bars: every sample of a posterior relaxes the crystal and gives its own value."""
