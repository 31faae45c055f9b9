"""Server-sent events: the chunks in the body of a streaming answer, as a stock client reads them.

Rules of this file: lines end in LF, CR or CRLF, and blocks of bytes may end anywhere; bytes that are no UTF-8 are
replaced; an event is what stands before an empty line, so an unfinished last one is lost; comments, ids and names are
passed over, and so is the event `[DONE]`, behind which a client reads on.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

from runner.core.transcript.chunk import Chunk
from runner.core.transcript.wire import Refusal, parse_chunk

_DONE = "[DONE]"
_LINE_END = re.compile("\r\n|\n|\r")


def chunks_in(blocks: Iterable[bytes]) -> Iterator[Chunk | Refusal]:
    """The chunks of an event stream in order; what a client would die on is a refusal in its place."""
    return (parse_chunk(data) for data in events_in(blocks) if data != _DONE)


def events_in(blocks: Iterable[bytes]) -> Iterator[str]:
    """The data of each event, its lines joined by LF."""
    data: list[str] = []
    for line in _lines(blocks):
        if not line:
            if data:
                yield "\n".join(data)
            data = []
            continue
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))


def _lines(blocks: Iterable[bytes]) -> Iterator[str]:
    """The finished lines. A CR at the end of a block waits for what follows: it may be half of a line end."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    unfinished: list[str] = []
    for block in blocks:
        text = decoder.decode(block)
        if unfinished and unfinished[-1].endswith("\r"):
            text = unfinished.pop() + text
        held = "\r" if text.endswith("\r") else ""
        *lines, rest = _LINE_END.split(text.removesuffix(held))
        for line in lines:
            yield "".join(unfinished) + line
            unfinished = []
        if rest or held:
            unfinished.append(rest + held)
    if unfinished and unfinished[-1].endswith("\r"):
        yield "".join(unfinished)[:-1]
