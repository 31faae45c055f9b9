"""Unfinished JSON: the value of a text that is still being written, as the AI SDK reads it.

Rules of this file: text that is whole JSON is read as it is; other text is completed (open strings, lists and objects
are closed, half keys, half numbers and half escapes are dropped, begun literals are finished) and read again; what is
no JSON even then has no value. One pass over the text. A value is JSON: a number too large for a double is null.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from runner.core.transcript.chunk import MAX_DEPTH, is_deeper


class Missing:
    """The type of MISSING."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()
"""No value at all, as opposed to null."""

_DOUBLE_DIGITS = 309
_LITERALS = ("true", "false", "null")
_HEX = frozenset("0123456789abcdefABCDEF")
_STRING_STOP = re.compile(r'["\\]')
_SUSPECT = re.compile(r"__proto__|constructor|\\u")

# What the scanner stands in; a stack of them, the innermost last.
_ROOT, _END, _STRING, _ESCAPE, _UNICODE, _LITERAL, _NUMBER = range(7)
_OBJECT, _KEY, _AFTER_KEY, _BEFORE_VALUE, _AFTER_VALUE, _AFTER_COMMA = range(7, 13)
_LIST, _AFTER_ITEM, _BEFORE_ITEM = range(13, 16)

_CLOSED_BY = {
    _STRING: '"',
    **dict.fromkeys((_OBJECT, _KEY, _AFTER_KEY, _BEFORE_VALUE, _AFTER_VALUE, _AFTER_COMMA), "}"),
    **dict.fromkeys((_LIST, _AFTER_ITEM, _BEFORE_ITEM), "]"),
}


def parse_json(text: str) -> Any:
    """The value of strict JSON; a number too large for a double is infinity. ValueError for anything else, for a key
    that JavaScript's objects must not have, and for what is nested deeper than MAX_DEPTH."""
    return _decoded(_AS_WRITTEN, text)


def _decoded(decoder: json.JSONDecoder, text: str) -> Any:
    try:
        value = decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if _SUSPECT.search(text) and has_forbidden_key(value):
        raise ValueError("a key that is not allowed")
    if text.count("[") + text.count("{") > MAX_DEPTH and is_deeper(value, MAX_DEPTH):
        raise ValueError("nested too deeply")
    return value


def parse_partial(text: str) -> Any:
    """The value of JSON text that may be unfinished; MISSING when it can have none. Never raises."""
    for whole in (True, False):
        try:
            return _decoded(_AS_JSON, text if whole else completed(text))
        except ValueError:
            continue
    return MISSING


def completed(text: str) -> str:
    """The text without its unfinished end, and with everything that is open closed. What it gives for text that no
    JSON begins with is unspecified, and is no JSON as a rule."""
    return _Scanner(text).result()


def has_forbidden_key(value: Any) -> bool:
    """Whether an object anywhere in it has `__proto__`, or a `constructor` with a `prototype`: clients refuse those."""
    left = [value]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            if "__proto__" in node:
                return True
            maker = node.get("constructor")
            if isinstance(maker, dict) and "prototype" in maker:
                return True
            node = node.values()
        elif not isinstance(node, list):
            continue
        left.extend(item for item in node if isinstance(item, (dict, list)))
    return False


class _Scanner:
    """Where in the JSON each character stands, and up to where the text can be kept."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._stack = [_ROOT]
        self._keep = 0
        self._literal_at = 0
        self._digits = 0
        at, end = 0, len(text)
        while at < end:
            if self._stack[-1] == _STRING:
                at = self._skip_string(at)
                continue
            char = text[at]
            self._step(char, at)
            if char > "\uffff":
                self._step(char, at)  # two characters to JavaScript
            at += 1

    def result(self) -> str:
        """The completed text."""
        closing = []
        for state in reversed(self._stack):
            if state == _LITERAL:
                begun = self._text[self._literal_at :]
                closing.append(next((word[len(begun) :] for word in _LITERALS if word.startswith(begun)), ""))
            else:
                closing.append(_CLOSED_BY.get(state, ""))
        return self._text[: self._keep] + "".join(closing)

    def _skip_string(self, at: int) -> int:
        stop = _STRING_STOP.search(self._text, at)
        if stop is None:
            self._keep = len(self._text)
            return self._keep
        if stop.start() > at:
            self._keep = stop.start()
        if stop[0] == '"':
            self._stack.pop()
            self._keep = stop.end()
        else:
            self._stack.append(_ESCAPE)
        return stop.end()

    def _step(self, char: str, at: int) -> None:
        match self._stack[-1]:
            case state if state == _ROOT:
                self._value(char, at, _END)
            case state if state == _BEFORE_VALUE:
                self._value(char, at, _AFTER_VALUE)
            case state if state == _BEFORE_ITEM:
                self._value(char, at, _AFTER_ITEM)
            case state if state in (_NUMBER, _LITERAL):
                self._in_scalar(state, char, at)
            case state if state in (_ESCAPE, _UNICODE):
                self._in_escape(state, char, at)
            case state if state in (_LIST, _AFTER_ITEM):
                self._in_list(state, char, at)
            case state:
                self._in_object(state, char, at)

    def _value(self, char: str, at: int, after: int) -> None:
        match char:
            case '"':
                self._enter(_STRING, at, after)
            case "f" | "t" | "n":
                self._literal_at = at
                self._enter(_LITERAL, at, after)
            case "{":
                self._enter(_OBJECT, at, after)
            case "[":
                self._enter(_LIST, at, after)
            case "-":
                self._stack[-1:] = [after, _NUMBER]
            case _ if "0" <= char <= "9":
                self._enter(_NUMBER, at, after)

    def _enter(self, state: int, at: int, after: int) -> None:
        self._keep = at + 1
        self._stack[-1:] = [after, state]

    def _in_object(self, state: int, char: str, at: int) -> None:
        match state, char:
            case (_, '"') if state in (_OBJECT, _AFTER_COMMA):
                self._stack[-1] = _KEY
            case (_, '"') if state == _KEY:
                self._stack[-1] = _AFTER_KEY
            case (_, ":") if state == _AFTER_KEY:
                self._stack[-1] = _BEFORE_VALUE
            case (_, "}") if state == _OBJECT:
                self._leave(at)
            case _ if state == _AFTER_VALUE:
                self._after_value(char, at)

    def _in_list(self, state: int, char: str, at: int) -> None:
        if state == _LIST and char != "]":
            self._value(char, at, _AFTER_ITEM)
        elif char == ",":
            self._stack[-1] = _BEFORE_ITEM
        elif char == "]":
            self._leave(at)
        else:
            self._keep = at + 1

    def _in_scalar(self, state: int, char: str, at: int) -> None:
        if state == _LITERAL:
            begun = self._text[self._literal_at : at + 1]
            if any(word.startswith(begun) for word in _LITERALS):
                self._keep = at + 1
                return
        elif "0" <= char <= "9":
            self._keep = at + 1
            return
        elif char in "eE-.":
            return
        self._stack.pop()
        if state == _LITERAL or char in ",}]":
            self._after_scalar(char, at)

    def _after_scalar(self, char: str, at: int) -> None:
        outer = self._stack[-1]
        if outer == _AFTER_VALUE:
            self._after_value(char, at)
        elif outer == _AFTER_ITEM and char == ",":
            self._stack[-1] = _BEFORE_ITEM
        elif outer == _AFTER_ITEM and char == "]":
            self._leave(at)

    def _after_value(self, char: str, at: int) -> None:
        if char == ",":
            self._stack[-1] = _AFTER_COMMA
        elif char == "}":
            self._leave(at)

    def _in_escape(self, state: int, char: str, at: int) -> None:
        if state == _ESCAPE:
            self._stack.pop()
            if char == "u":
                self._digits = 0
                self._stack.append(_UNICODE)
            else:
                self._keep = at + 1
        elif char in _HEX:
            self._digits += 1
            if self._digits == 4:
                self._leave(at)

    def _leave(self, at: int) -> None:
        self._keep = at + 1
        self._stack.pop()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _whole(text: str) -> float:
    return int(text) if len(text) < _DOUBLE_DIGITS else float(text)


def _whole_json(text: str) -> float | None:
    return int(text) if len(text) < _DOUBLE_DIGITS else _number_json(text)


def _number_json(text: str) -> float | None:
    value = float(text)
    if value == 0:
        return 0  # never -0, which JSON does not tell from 0
    return value if math.isfinite(value) else None


_AS_WRITTEN = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_whole)
_AS_JSON = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_whole_json, parse_float=_number_json)
