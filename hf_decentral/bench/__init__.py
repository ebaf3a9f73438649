"""The step-time benchmark: ways to keep workers together, in one run, in alternating blocks.

``scripts/benchmark.py`` and ``hf-decentral bench`` are two doors to :func:`hf_decentral.bench.app.main`.
"""
