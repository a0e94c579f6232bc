"""Labels from quantum-chemistry engines: engine processes, their limits, and many of them at once."""
