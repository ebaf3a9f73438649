"""Time: how long workers compute and their links carry, and what that makes of a run. It knows no models."""
