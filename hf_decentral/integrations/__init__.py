"""Where names become objects: the Accelerate plugin, its settings and checkpoints, the optimizers by name."""
