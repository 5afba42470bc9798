"""Named sizes. What a preset does not name keeps the component's own default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: `gpt`: two sizes for a CPU, then the four of GPT-2 (Radford et al., 2019).
GPT: Mapping[str, Mapping[str, Any]] = {
    "nano": {"layers": 4, "heads": 4, "width": 128},
    "small": {"layers": 6, "heads": 6, "width": 384},
    "gpt2": {"layers": 12, "heads": 12, "width": 768, "bias": True},
    "gpt2-medium": {"layers": 24, "heads": 16, "width": 1024, "bias": True},
    "gpt2-large": {"layers": 36, "heads": 20, "width": 1280, "bias": True},
    "gpt2-xl": {"layers": 48, "heads": 25, "width": 1600, "bias": True},
}

#: `llama`: two sizes for a CPU, then the shapes of Llama 3.2 1B and Llama 3 8B (Grattafiori et al., 2024).
LLAMA: Mapping[str, Mapping[str, Any]] = {
    "nano": {"layers": 4, "heads": 4, "kv_heads": 2, "width": 128},
    "small": {"layers": 6, "heads": 6, "kv_heads": 2, "width": 384},
    "1b": {
        "layers": 16,
        "heads": 32,
        "kv_heads": 8,
        "width": 2048,
        "hidden": 8192,
        "rope_base": 500_000.0,
        "tie": True,
    },
    "8b": {
        "layers": 32,
        "heads": 32,
        "kv_heads": 8,
        "width": 4096,
        "hidden": 14336,
        "rope_base": 500_000.0,
    },
}

#: `encoder`: the shapes of the small models of Turc et al. (2019), and of BERT-base (Devlin et al., 2019).
ENCODER: Mapping[str, Mapping[str, Any]] = {
    "nano": {"layers": 2, "heads": 2, "width": 128},
    "mini": {"layers": 4, "heads": 4, "width": 256},
    "small": {"layers": 4, "heads": 8, "width": 512},
    "base": {"layers": 12, "heads": 12, "width": 768},
}

#: `image-text`: two sizes for a CPU, and the towers of ViT-B/16 (Dosovitskiy et al., 2021) with CLIP's projection.
IMAGE_TEXT: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"layers": 2, "heads": 2, "width": 64},
    "nano": {"layers": 4, "heads": 4, "width": 128},
    "base": {"layers": 12, "heads": 12, "width": 768, "patch": 16, "projection": 512},
}

#: `encoder-decoder`: two sizes for a CPU, then those of Vaswani et al. (2017).
ENCODER_DECODER: Mapping[str, Mapping[str, Any]] = {
    "nano": {"layers": 2, "heads": 4, "width": 128, "dropout": 0.1},
    "mini": {"layers": 3, "heads": 4, "width": 256, "dropout": 0.1},
    "base": {"layers": 6, "heads": 8, "width": 512, "dropout": 0.1},
    "big": {"layers": 6, "heads": 16, "width": 1024, "dropout": 0.3},
}
