"""Thousands of workers in one process: the same optimizers, averages and rounds as on real ones."""

from __future__ import annotations

from hf_decentral.simulator import problems
from hf_decentral.simulator.base import Problem
from hf_decentral.simulator.engine import simulate
from hf_decentral.simulator.results import Point, Run

__all__ = ["Point", "Problem", "Run", "problems", "simulate"]
