"""A plugin of pytest: the persistent map of Python 3.14 and later, `-p support.maps_of_rpds` with an earlier one."""

import sys

from metadata_log.image import map_of_rpds

sys.modules["metadata_log.image.map_of_immutables"] = map_of_rpds
