"""What a person sees: text as it arrives, wrapped, with the interruptions marked where they happened.

Rule of this file: colour on a terminal only, and never where NO_COLOR is set; without it every word is still there.
"""

from __future__ import annotations

import os
import sys

WIDTH = 96
_BOLD, _RED, _GREEN, _DIM, _OFF = "\033[1m", "\033[1;31m", "\033[32m", "\033[2m", "\033[0m"


class Screen:
    """Standard output, and where on its line it stands."""

    def __init__(self) -> None:
        self._column = 0
        self._colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def line(self, text: str = "") -> None:
        """A line of its own."""
        self._new_line()
        self._put(f"{text}\n")

    def progress(self, text: str) -> None:
        """What is going on."""
        self.line(self._painted(f"demo: {text}", _DIM))

    def heading(self, text: str) -> None:
        """Opens a chapter."""
        self.line()
        self.line(self._painted(f"== {text}", _BOLD))

    def struck(self, text: str) -> None:
        """Marks the place of an interruption."""
        self.line(self._painted(f"   >>> {text}", _RED))

    def goes_on(self, text: str) -> None:
        """Marks the place where the text goes on."""
        self.line(self._painted(f"   <<< {text}", _GREEN))

    def verdict(self, *, kept: bool, promise: str, seen: str) -> None:
        """One row of the table at the end."""
        word = self._painted("kept    ", _GREEN) if kept else self._painted("NOT KEPT", _RED)
        self.line(f"  {word}  {promise:<47}  {seen}")

    def text(self, delta: str) -> None:
        """A piece of the answer, as it arrives."""
        for piece in delta.splitlines(keepends=True):
            shown = piece.rstrip("\n")
            if self._column + len(shown) > WIDTH and shown.startswith(" "):
                self._new_line()
                shown = shown[1:]
            self._put(shown)
            self._column += len(shown)
            if piece.endswith("\n"):
                self._new_line()

    def _new_line(self) -> None:
        if self._column:
            self._put("\n")
        self._column = 0

    def _painted(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_OFF}" if self._colours else text

    @staticmethod
    def _put(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
