"""How properties are tested."""

from __future__ import annotations

import os

# Under mpirun there are none, and importing this takes a second of each rank's start.
if "OMPI_COMM_WORLD_SIZE" not in os.environ:
    from hypothesis import HealthCheck, settings

    # How long an example takes says nothing where others use the machine, too.
    settings.register_profile(
        "shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("shared machine")
