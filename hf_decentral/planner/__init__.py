"""Whether it will pay: configurations predicted on a cluster, and the one to take."""

from __future__ import annotations

from hf_decentral.planner.advise import Choice, Recommendation
from hf_decentral.planner.planning import Plan, choose, plan
from hf_decentral.planner.predict import Row

__all__ = ["Choice", "Plan", "Recommendation", "Row", "choose", "plan"]
