"""``hf-decentral calibrate``: what a cluster and a training script cost, measured where they run."""
