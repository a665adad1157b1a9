"""How large a model is and how much of a card a run used: bytes, parameters, floating-point operations.

Read from the headers of its safetensors files; a folder without weights (`load_format: dummy`) is estimated from
its config. Knows nothing of engines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rag_pipeline.embedding.model import Model

_LOOKED_UP = ("embed", "wte", "wpe", "lm_head", "pooler")  # tables of vectors, and heads an embedding never passes

# Dense bfloat16 peak of one card in TFLOP/s, as its maker states it; a T4's is float16.
_PEAK_TFLOPS = {
    "B200": 2250,
    "H200": 989,
    "H100": 989,
    "H20": 148,
    "L40S": 362,
    "A100": 312,
    "A100-80G": 312,
    "A10G": 70,
    "L4": 121,
    "T4": 65,
}


@dataclass(frozen=True, slots=True)
class Size:
    """A model's size.

    Attributes:
        weight_bytes: All weights, as stored.
        matrix_parameters: Those that every token is multiplied with.
        layers: Transformer layers.
        width: Length of a hidden state.
    """

    weight_bytes: int
    matrix_parameters: int
    layers: int
    width: int

    def flops(self, tokens: int, chunks: int) -> float:
        """Floating-point operations to embed so many tokens in so many chunks of about equal length."""
        attention = 4 * self.layers * self.width * tokens / max(1, chunks)
        return tokens * (2 * self.matrix_parameters + attention)


def model_size(model: Model) -> Size:
    """Measures a model's files."""
    folder = Path(model.path)
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    layers, width = int(settings.get("num_hidden_layers") or 0), int(settings.get("hidden_size") or 0)
    shapes: dict[str, list[int]] = {}
    weight_bytes = 0
    for file in folder.glob("*.safetensors"):
        weight_bytes += file.stat().st_size
        with file.open("rb") as handle:
            header = json.loads(handle.read(int.from_bytes(handle.read(8), "little")))
        shapes |= {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    matrices = sum(math.prod(shape) for name, shape in shapes.items() if not any(part in name for part in _LOOKED_UP))
    if not shapes:
        matrices = layers * width * (4 * width + 2 * int(settings.get("intermediate_size") or 4 * width))
        weight_bytes = weight_bytes or 2 * (matrices + width * int(settings.get("vocab_size") or 0))
    return Size(weight_bytes, matrices, layers, width)


def computed(size: Size, tokens: int, chunks: int, seconds: float, accelerators: Mapping[str, int]) -> dict[str, float]:
    """What the engines computed while at work.

    Args:
        size: Of their model.
        tokens: Embedded in all.
        chunks: Embedded in all.
        seconds: At work, wall time.
        accelerators: Cards by Ray's name for their type, and how many.

    Returns:
        ``model_tflops`` (TFLOP/s), and ``peak_share`` of the cards' bfloat16 peak where that is known.
    """
    tflops = size.flops(tokens, chunks) / seconds / 1e12
    peak = sum(count * _PEAK_TFLOPS.get(name, math.inf) for name, count in accelerators.items())
    share = {"peak_share": round(tflops / peak, 4)} if peak and peak != math.inf else {}
    return {"model_tflops": round(tflops, 3), **share}
