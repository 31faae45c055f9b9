"""Any provider that pydantic-ai speaks, as a model of the runner.

Rules of this file: pydantic-ai is an optional extra and takes a second to import, so it is loaded at the first call, in
a thread, never by importing this module. The runner owns retries: the clients' own ones are off, and every wait has a
limit.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from runner.core.turn.round import Chunk, RoundEnd, RoundRequest
from runner.errors import MissingExtra, ModelRejected

if TYPE_CHECKING:
    from pydantic_ai.models import Model as ProviderModel
    from pydantic_ai.settings import ModelSettings

_PIP_PYDANTIC_AI = "pip install 'turnrunner[pydantic-ai]'"


class PydanticAIModel:
    """`model` is a name such as "openai:gpt-5", a pydantic-ai Model, or a function that makes one when first needed.

    `settings` are pydantic-ai model settings for every call; those of a request win over them. The call is given up as
    retryable after `first_event_timeout_s` without a first event, or `idle_timeout_s` between two (None or infinity is
    off). `require_raw_finish` treats an answer without the provider's own finish reason as interrupted; turn it off for
    providers whose adapter does not keep it. `continues_partial` says whether the provider goes on from a trailing
    partial answer; set it to False for one that begins anew, and the runner asks for the step again instead.

    `stream` raises MissingExtra, ModelRejected, ModelRetryable and ModelInterrupted.
    """

    def __init__(
        self,
        model: str | ProviderModel | Callable[[], ProviderModel],
        *,
        settings: Mapping[str, Any] | None = None,
        require_raw_finish: bool = True,
        idle_timeout_s: float | None = 60.0,
        first_event_timeout_s: float | None = 120.0,
        continues_partial: bool = True,
    ) -> None:
        self._model, self._settings = model, dict(settings or {})
        self._require_raw_finish = require_raw_finish
        self._idle_s, self._first_event_s = _off_if_endless(idle_timeout_s), _off_if_endless(first_event_timeout_s)
        self.continues_partial = continues_partial
        # One client per event loop: its pooled connections cannot be used from another one.
        self._ready: WeakKeyDictionary[asyncio.AbstractEventLoop, ProviderModel] = WeakKeyDictionary()

    async def stream(self, request: RoundRequest) -> AsyncGenerator[Chunk | RoundEnd, None]:
        """Chunks of the parts of one answer, then one `RoundEnd`. Closing the generator cancels the provider call."""
        model = await self._provider_model()
        from runner.models.answer import CallLimits, answer  # loaded by now

        limits = CallLimits(self._first_event_s, self._idle_s, self._require_raw_finish)
        async with aclosing(answer(model, request, self._call_settings(request), limits)) as items:
            async for item in items:
                yield item

    async def _provider_model(self) -> ProviderModel:
        loop = asyncio.get_running_loop()
        if loop not in self._ready:
            model = await asyncio.to_thread(self._load)
            self._ready.setdefault(loop, model)
        return self._ready[loop]

    def _load(self) -> ProviderModel:
        _import_adapter()
        if isinstance(self._model, str):
            return _named_model(self._model)
        return self._model() if callable(self._model) else self._model

    def _call_settings(self, request: RoundRequest) -> ModelSettings:
        own: dict[str, Any] = {"max_retries": 0}
        if self._idle_s is not None and self._first_event_s is not None:
            # A backstop for reads only; the limits themselves are kept on events.
            own["timeout"] = max(self._idle_s, self._first_event_s)
        return cast("ModelSettings", own | self._settings | dict(request.settings))


def _off_if_endless(seconds: float | None) -> float | None:
    return None if seconds is None or math.isinf(seconds) else seconds


def _import_adapter() -> None:
    try:
        import pydantic_ai.direct  # noqa: F401  (optional extra, slow to import)
    except ImportError as error:
        raise MissingExtra("pydantic-ai", _PIP_PYDANTIC_AI) from error
    import runner.models.answer  # noqa: F401  (loads the rest here, in the thread)


def _named_model(name: str) -> ProviderModel:
    """The model of that name. MissingExtra without its provider's client, ModelRejected for a name or key that is not
    known."""
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import infer_model

    try:
        return infer_model(name)
    except ImportError as error:
        provider = name.partition(":")[0].partition("-")[0]
        install = _PIP_PYDANTIC_AI if provider == "openai" else f"pip install 'pydantic-ai-slim[{provider}]'"
        raise MissingExtra(f"the client for {name!r}", install) from error
    except (UserError, ValueError) as error:
        raise ModelRejected(f"model {name!r} cannot be used: {error}") from error
