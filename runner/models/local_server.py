"""The program of the local model server: loads the model, says where it listens, serves until its parent is gone.

Rules of this file: run by path in a process of its own (`local.LocalModelServer` does), with nothing of the runner
imported. The one line on standard output is the readiness check; everything else goes to standard error. It
outlives its parent by no means: standard input closes with it, and on Linux the kernel is asked as well.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1


def main(model: str, name: str, slots: int, context: int, parent: int) -> None:
    """`context` is in tokens and for each of the `slots` requests served at once."""
    _die_with(parent)
    server = _server(model, name, slots, context)
    sys.stdout.write(json.dumps({"url": server.listening_address}) + "\n")
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdin.read()
    os._exit(0)


def _die_with(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _server(model: str, name: str, slots: int, context: int) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = model, {name}
    params.hostnames, params.port, params.ui = ["127.0.0.1"], 0, False
    params.n_parallel, params.n_ctx = slots, slots * context
    params.prefill_assistant = True
    params.cache_ram_mib = 0
    # One thread: more of them spin against each other as soon as another process wants a core.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
