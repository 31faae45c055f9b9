"""x: y."""

import argparse

SMOKE: list[str] = []


def add_options(parser: argparse.ArgumentParser) -> None: ...
def run(options: argparse.Namespace) -> dict[str, int | float]:
    return {}
