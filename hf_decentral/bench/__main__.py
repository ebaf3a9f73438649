"""``python -m hf_decentral.bench``: how the workers of a benchmark are started."""

from hf_decentral.bench.app import program

program()
