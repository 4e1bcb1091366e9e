"""Under mpirun, rank 0 is the pytest session; every other rank lends its slot to it.

The other ranks leave here, before they parse an option, so that every event, a bad option included,
is reported once. The fixtures that the cases in perf/ use are in the plugin.
"""

from hvdperf.launch.outer import outer_rank
from hvdperf.launch.slots import lend_slot

if outer_rank() > 0:
    lend_slot()

pytest_plugins = ["hvdperf.session.plugin", "hvdperf.report.plugin"]
