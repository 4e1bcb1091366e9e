"""The networks are in hvdperf/models/, so that an installed hvdperf brings them along.

In a checkout, files of one's own networks may import models.registry, too.
"""
