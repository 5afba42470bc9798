"""Which samples each step sees: samplers, each a pure function of (seed, step)."""
