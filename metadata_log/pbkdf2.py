"""The function PBKDF2 of passwords (RFC 8018): by OpenSSL, or in Python where `hashlib` is built without it.

The one in Python is for browsers (Pyodide). 4,096 iterations take some 10 ms there.
"""

import sys

if sys.platform == "emscripten":
    from metadata_log.pbkdf2_in_python import pbkdf2_hmac
else:
    from hashlib import pbkdf2_hmac

__all__ = ["pbkdf2_hmac"]
