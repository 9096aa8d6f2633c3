# SPDX-License-Identifier: Apache-2.0
"""A folder of files that are no tasks, no runs and no plans, beside a few that are."""

import json
from pathlib import Path

from tests.data import published_files as files
from verl_kernel.data.rows import make_row, write_rows

REFERENCE = files.programs()[0].reference
_PLAN = {"recipe": "r", "steps": 1, "seeds": [0], "minutes": 1, "arms": {"one": {"title": "1"}}}
_MESSAGE = [{"role": "user", "content": "Write ModelNew."}]
_TEXTS = {
    "file": "text\n", "ref.py": REFERENCE, "k.py": "x = 1\n", "broken.py": "class Model(", "empty.parquet": "",
    "text.parquet": "no parquet", "cut.jsonl": '{"a": 1}\n{"a": ', "bad.yaml": "a: 1\nb: [1, 2\n",
    "list.yaml": "[1]", "keys.yaml": "steps: 3\n", "garbage/metrics.jsonl": "[1,2]\nfoo\n",
    "model/config.json": "{}", "cutbench/run.json": '{"format": 1, "suite',
    "cutlog/kernels.jsonl": '{"task_id": "a", "co',
    "cutrun/metrics.jsonl": '{"step": 1, "data": {"training/gl', "oddbench/run.json": '{"format": 99}',
    "plan.yaml": json.dumps(_PLAN), "empty.py": "", "large.py": "#" * (5 << 20),
}  # fmt: skip
_FOLDERS = ("empty", "garbage", "cutrun", "cutbench", "cutlog", "oddbench", "model")


def bad_files(root: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in _FOLDERS:
        (root / name).mkdir()
    for name, text in _TEXTS.items():
        (root / name).write_text(text)
    (root / "latin.jsonl").write_bytes(b'{"a": "\xff"}\n')
    (root / "latin.py").write_bytes("é".encode("latin-1"))
    (root / "binary.py").write_bytes(b"\x7fELF\x00\x00\x00")
    (root / "again.py").symlink_to("k.py")
    (root / "loop.py").symlink_to("loop.py")
    rows = (
        make_row(_MESSAGE, program.reference, data_source="own", task_id=str(index), split="train", index=index)
        for index, program in enumerate(files.programs(8))
    )
    write_rows([*rows], root / "tasks.parquet")
    whole = (root / "tasks.parquet").read_bytes()
    (root / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    pq.write_table(pa.table({"messages": [_MESSAGE]}), root / "talks.parquet")
    return root
