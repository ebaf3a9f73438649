"""How the numbers of a round travel: between processes, or inside one."""

from __future__ import annotations

from hf_decentral.transport.hosts import find_hosts
from hf_decentral.transport.memory import Memory
from hf_decentral.transport.processes import Processes
from hf_decentral.transport.wire import Pending, Send, Transport

__all__ = ["Memory", "Pending", "Processes", "Send", "Transport", "find_hosts"]
