"""Step time of ways to train in parallel, in one run, in alternating blocks.

    python scripts/benchmark.py --hosts 4 --link 200mbit --emulate-ms 600 --variants none,ddp,aer
    torchrun --nproc-per-node 4 scripts/benchmark.py --variants none,ddp,aer,complete

It is `hf-decentral bench` for those who have cloned the repository; docs/benchmark.md tells the columns.
"""

from __future__ import annotations

from hf_decentral.bench.app import program

if __name__ == "__main__":
    program()
