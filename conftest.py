"""Under mpirun, rank 0 is the pytest session; every other rank lends its slot to it.

The others leave here, before they have parsed an option: so that there is one report of whatever
happens, a bad option included. The fixtures that the cases in perf/ ask for are in the plugin.
"""

from hvdperf.launch.slots import lend_slot, outer_rank

if outer_rank() > 0:
    lend_slot()

pytest_plugins = ["hvdperf.session.plugin", "hvdperf.report.plugin"]
