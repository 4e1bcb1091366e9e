"""How properties are tested."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes says nothing where others use the machine, too.
settings.register_profile(
    "shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared machine")
