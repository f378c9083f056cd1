"""The checksum CRC-32C of batches and of producer snapshots: by `google_crc32c`, or in Python where it has no wheel.

The one in Python takes a thousand times as long. It is for browsers (Pyodide), which have short logs.
"""

import sys

if sys.platform == "emscripten":
    from metadata_log.crc32c_in_python import extend, value
else:
    from google_crc32c import extend, value

__all__ = ["extend", "value"]
