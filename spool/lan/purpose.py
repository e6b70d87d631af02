"""A client certificate issued for servers must be let in: openssl's own table of purposes is asked to overlook it.

The ecosystem's recipe gives server and client the same extensions, extendedKeyUsage serverAuth among them. A TLS server checks
its clients by the parameters named `ssl_client`, and the ssl module has no switch for their purpose; openssl itself lets a
program put its own parameters under that name. They hold for the whole process, for connections that it accepts.
"""

from __future__ import annotations

import _ssl
import ctypes
import functools
import logging

log = logging.getLogger("spool_check.lan")

_PURPOSE_ANY = 7
# As openssl's own entry of this name has it.
_TRUST_SSL_CLIENT = 2


@functools.cache
def allow_any_purpose() -> bool:
    """Let certificates of any purpose be clients, once a process; False where this Python hides openssl's functions."""
    try:
        # The library that the ssl module itself is bound to: its symbols are found through it.
        crypto = ctypes.CDLL(_ssl.__file__)
        new, name, purpose = (
            crypto.X509_VERIFY_PARAM_new,
            crypto.X509_VERIFY_PARAM_set1_name,
            crypto.X509_VERIFY_PARAM_set_purpose,
        )
        trust, add = crypto.X509_VERIFY_PARAM_set_trust, crypto.X509_VERIFY_PARAM_add0_table
    except (AttributeError, OSError):
        log.warning("client certificates need the usage clientAuth or none here: this Python hides openssl's functions")
        return False
    new.restype, new.argtypes = ctypes.c_void_p, ()
    name.restype, name.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p)
    purpose.restype, purpose.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)
    trust.restype, trust.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)
    add.restype, add.argtypes = ctypes.c_int, (ctypes.c_void_p,)
    made = new()
    return bool(
        made
        and name(made, b"ssl_client")
        and purpose(made, _PURPOSE_ANY)
        and trust(made, _TRUST_SSL_CLIENT)
        and add(made)
    )
