"""Token ids to vectors by vLLM's engine core, without the layers `LLM.encode` puts around it.

Those render, validate, clone and wrap every prompt, which takes longer than a small model's share of a GPU: one engine
makes 11,000 MiniLM chunks/s this way on an H200 and 6,000 by `LLM.encode`, with the same vectors. Tried with vLLM 0.24
and 0.29. Knows nothing of rows.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import Any

import numpy as np


class CoreEncoder:
    """Asks one `vllm.LLM` made with ``runner="pooling"``; threads take turns."""

    def __init__(self, engine: Any) -> None:
        from vllm import PoolingParams

        self._core = engine.llm_engine.engine_core
        self._params = PoolingParams(task="embed")
        self._params.verify(engine.llm_engine.model_config)  # takes the model's own pooling and normalization
        self._max_tokens = engine.llm_engine.model_config.max_model_len
        self._numbers = itertools.count()
        self._turn = threading.Lock()  # the core hands what it made to whoever asks

    def encode(self, prompts: list[list[int]]) -> np.ndarray:
        """Pooled vectors of token ids, in their order; float32 [prompts, the model's dimension].

        Raises:
            ValueError: A prompt is empty, or longer than the model takes.
            Exception: What the engine raises; it keeps none of the prompts and can be asked again, if it lives.
        """
        for place, ids in enumerate(prompts):
            if not 0 < len(ids) <= self._max_tokens:
                raise ValueError(f"prompt {place} has {len(ids)} tokens, the model takes 1 to {self._max_tokens}")
        with self._turn:
            return self._ask(prompts)

    def _ask(self, prompts: list[list[int]]) -> np.ndarray:
        import torch
        from vllm.v1.engine import EngineCoreRequest

        waiting = {str(next(self._numbers)): place for place in range(len(prompts))}
        made: list[Any] = [None] * len(prompts)
        try:
            for name, place in waiting.items():
                self._core.add_request(
                    EngineCoreRequest(
                        request_id=name,
                        prompt_token_ids=prompts[place],
                        mm_features=None,
                        sampling_params=None,
                        pooling_params=self._params,
                        arrival_time=0.0,
                        lora_request=None,
                        cache_salt=None,
                        data_parallel_rank=None,
                    )
                )
            while waiting:
                for output in self._core.get_output().outputs:
                    if output.request_id not in waiting:
                        continue  # of a call that failed
                    if output.pooling_output is None:
                        raise RuntimeError(f"the engine ended a prompt without a vector ({output.finish_reason})")
                    made[waiting.pop(output.request_id)] = output.pooling_output
        except BaseException:
            with contextlib.suppress(Exception):  # a dead engine's own error says more
                self._core.abort_requests(list(waiting))
            raise
        return torch.stack(made).float().numpy()
