# SPDX-License-Identifier: Apache-2.0
"""What an estimator was given and what it returned, written down for audits: `<call>.npz` of NumPy arrays.

Arrays: `rewards`, `mask` and `advantages` (B, T) float32, and `uid` (B,) text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch


def log_batch(
    folder: Path, rewards: torch.Tensor, mask: torch.Tensor, index: np.ndarray, advantages: torch.Tensor
) -> None:
    """Write one call's tensors under the next free number, counted from 000001."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{len(list(folder.glob('*.npz'))) + 1:06d}.npz"
    columns = {"rewards": rewards, "mask": mask, "advantages": advantages}
    arrays: dict[str, Any] = {name: tensor.detach().float().cpu().numpy() for name, tensor in columns.items()}
    np.savez_compressed(path, uid=index.astype(str), **arrays)
