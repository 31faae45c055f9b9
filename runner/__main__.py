"""`python -m runner`: the command line, for where the `runner` script is not on PATH."""

from __future__ import annotations

import sys

from runner.process.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
