"""Typed views of chunks and parts: what both unions share.

Rules of this file: a model is for whoever writes against a stream or a message; the fold itself works on plain JSON
objects. A model keeps what it was made of: keys it does not know, the order of all keys, and halves of characters. So
`as_json` gives back the very object, and `chunk.encode` of it the very bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, PrivateAttr, WrapValidator, model_validator
from pydantic.alias_generators import to_camel

ProviderMetadata = dict[str, dict[str, Any]]


def _any_text(value: Any, _: Any) -> str:
    """Text as it is: pydantic's own check refuses half a surrogate pair, with which a delta may end."""
    if isinstance(value, str):
        return value
    raise ValueError("it is no text")


Text = Annotated[str, WrapValidator(_any_text)]
"""Text of any characters, halves of a surrogate pair included."""


class WireModel(BaseModel):
    """A JSON object of the protocol, with Python names for its fields. Unset fields are not on the wire."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="allow", frozen=True, alias_generator=to_camel, populate_by_name=True, strict=True
    )

    _order: tuple[str, ...] = PrivateAttr(default=())

    @model_validator(mode="wrap")
    @classmethod
    def _keep_order(cls, value: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        made = validate(value)
        if isinstance(value, dict):
            made._order = tuple(value)
        return made

    def as_json(self) -> dict[str, Any]:
        """The object on the wire."""
        names = {field.alias or name: name for name, field in type(self).model_fields.items()}
        extra = self.model_extra or {}
        is_set = {*self._order, *(key for key, name in names.items() if name in self.model_fields_set - extra.keys())}
        given = {key: getattr(self, name) for key, name in names.items() if key in is_set or key == "type"} | extra
        ordered = {key: given.pop(key) for key in self._order if key in given}
        return {key: _plain(value) for key, value in {**ordered, **given}.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, WireModel):
        return value.as_json()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
