"""`python -m spool_check` is the command `spool-check`."""

from __future__ import annotations

from cli import main

if __name__ == "__main__":
    main()
