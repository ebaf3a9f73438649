"""Every error that a user can meet, and the functions that word them: given, expected, what to do."""

from __future__ import annotations

from hf_decentral.errors.base import (
    CheckpointError,
    DataError,
    DecentralizedError,
    LaunchError,
    MismatchError,
    ParameterError,
    PeerLost,
    SettingsError,
    TopologyError,
    sentence,
)
from hf_decentral.errors.names import out_of_range, unknown_name

__all__ = [
    "CheckpointError",
    "DataError",
    "DecentralizedError",
    "LaunchError",
    "MismatchError",
    "ParameterError",
    "PeerLost",
    "SettingsError",
    "TopologyError",
    "out_of_range",
    "sentence",
    "unknown_name",
]
