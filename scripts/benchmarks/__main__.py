"""The command line of the benchmarks: picks one, runs it, prints its JSON line last.

Rules of this file: a benchmark is a module with `add_options`, `run` and `SMOKE` (tiny sizes); its name is the module's
name with dashes, its metrics are what `run` returns.
"""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Protocol

from benchmarks import append, density, first_chunk, fold, recover, sweep, tail, turns, zombie
from benchmarks.measure import Metrics, say
from runner.telemetry import set_up_logging


class Benchmark(Protocol):
    """What each module offers."""

    @property
    def SMOKE(self) -> Sequence[str]:  # noqa: N802 - a constant of the module
        """Options of tiny sizes."""
        ...

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Names its sizes."""
        ...

    def run(self, options: argparse.Namespace) -> Metrics:
        """Measures; returns the metrics by name."""
        ...


BENCHMARKS: dict[str, Benchmark] = {
    "append": append,
    "tail": tail,
    "first-chunk": first_chunk,
    "turns": turns,
    "density": density,
    "recover": recover,
    "sweep": sweep,
    "zombie": zombie,
    "fold": fold,
}


def main() -> int:
    """Runs what the command line asks for; returns the exit code."""
    set_up_logging("CRITICAL")
    options = _parser().parse_args(sys.argv[1:] or ["--help"])
    if options.bench == "all":
        return _all(smoke=options.smoke)
    benchmark = BENCHMARKS[options.bench]
    if options.smoke:
        options = _parser().parse_args([options.bench, *benchmark.SMOKE])
    print(json.dumps({"bench": options.bench, "metrics": benchmark.run(options)}))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures the runner on this machine.")
    commands = parser.add_subparsers(dest="bench", required=True, metavar="BENCHMARK")
    for name, benchmark in BENCHMARKS.items():
        about = inspect.getdoc(benchmark) or ""
        command = commands.add_parser(
            name,
            help=about.partition("\n")[0].partition(": ")[2],
            description=about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument("--smoke", action="store_true", help="tiny sizes: shows that it works, measures nothing")
        benchmark.add_options(command)
    everything = commands.add_parser("all", help="every benchmark in turn, then a table")
    everything.add_argument("--smoke", action="store_true", help="tiny sizes")
    return parser


def _all(*, smoke: bool) -> int:
    """Each in a process of its own, so that none inherits another's memory."""
    lines: list[str] = []
    failed: list[str] = []
    for name in BENCHMARKS:
        say(f"== {name}")
        command = [sys.executable, "-m", "benchmarks", name, *(["--smoke"] if smoke else [])]
        finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if finished.returncode:
            failed.append(name)
        else:
            lines.append(finished.stdout.strip().splitlines()[-1])
    for line in lines:
        result = json.loads(line)
        for metric, value in result["metrics"].items():
            print(f"{result['bench']:12} {metric:28} {value:>14,}")
    print(*lines, sep="\n")
    for name in failed:
        say(f"FAILED: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
