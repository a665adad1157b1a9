"""Token ids to vectors by vLLM's engine core, without the layers `vllm.LLM` puts around it.

Those render, validate, clone and wrap every prompt, which takes longer than a small model's share of a GPU: one engine
makes 11,000 MiniLM chunks/s this way on an H200 and 6,000 by `LLM.encode`, with the same vectors. Tried with vLLM 0.24
and 0.29. Knows nothing of rows.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np


class CoreEncoder:
    """One engine, the only one of its process, started as `vllm.LLM` starts it with ``runner="pooling"``.

    Threads take turns.

    Args:
        model: The model's folder.
        arguments: vLLM's engine arguments.

    Raises:
        Exception: What vLLM raises when it cannot start; its failures have no common type.
    """

    def __init__(self, model: str, arguments: dict[str, Any]) -> None:
        with _uncollected():
            from vllm import PoolingParams, envs
            from vllm.engine.arg_utils import EngineArgs
            from vllm.usage.usage_lib import UsageContext
            from vllm.v1.engine.core_client import EngineCoreClient
            from vllm.v1.executor import Executor
        with _uncollected():
            config = EngineArgs(model=model, runner="pooling", **arguments).create_engine_config(UsageContext.LLM_CLASS)
            self._core = EngineCoreClient.make_client(
                multiprocess_mode=envs.VLLM_ENABLE_V1_MULTIPROCESSING,
                asyncio_mode=False,
                vllm_config=config,
                executor_class=Executor.get_class(config),
                log_stats=False,
            )
        if config.parallel_config.world_size == 1 and config.device_config.device_type == "cpu":
            _leave_process_groups()
        self._params = PoolingParams(task="embed")
        self._params.verify(config.model_config)  # takes the model's own pooling and normalization
        self._max_tokens = config.model_config.max_model_len
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


def _leave_process_groups() -> None:
    """Ends the groups of one process that vLLM makes: each has threads that look for messages 100 times a second.

    An engine's own threads wait for each other, so that every interruption of one costs all: a tenth of the time on
    two cores. Sizes and ranks, which are all that such an engine asks its groups for, stay. No other engine can start
    in this process afterwards.
    """
    import torch
    from vllm.distributed import parallel_state

    for group in [reference() for reference in parallel_state._groups.values()]:
        if group is not None:
            group.destroy()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Leaves what is made meanwhile to no garbage collection, now or later: hardly any of it is garbage.

    Looking through it again and again is 2 s of the 9 that a start takes, and 0.6 s of a later call now and then.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
