# SPDX-License-Identifier: Apache-2.0
"""What a start reads, as small as it can be: tasks, conversations and a model's folder."""

from pathlib import Path

from tests.env.programs import reference
from verl_kernel.data.conversations import make_talk, write_talks
from verl_kernel.data.rows import make_row, write_rows

REFERENCE = reference("torch.relu(x)", "torch.randn(4)")
BATCH = 16
"""The most tasks that a step of these recipes takes."""


def row(**changes: object) -> dict:
    messages = [{"role": "user", "content": "Write a kernel."}]
    return make_row(messages, REFERENCE, data_source="own", task_id="relu", split="train", index=0) | changes


def write_folder(folder: Path) -> Path:
    """Files as `verl-kernel data quickstart` names them."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    for split in ("train", "val"):
        write_rows([row()] * BATCH, folder / f"{split}.parquet")
    write_talks([make_talk([{"role": "assistant", "content": "a"}], {})], folder / "corpus.parquet")
    return folder
