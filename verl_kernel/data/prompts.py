# SPDX-License-Identifier: Apache-2.0
"""Prompts for tasks whose source has none; and the words that a prompt contains."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Message = dict[str, str]
_TEXT = """\
Rewrite the PyTorch module `{entry}` below as a class `{answer}` that computes the same faster, with Triton kernels of \
your own.

- `{answer}` has the constructor and the `forward` of `{entry}`: the same arguments, the same parameters under the \
same names, the same output.
- The work is done in functions decorated with `@triton.jit`. Torch allocates tensors and nothing more.
- Sizes may differ from those below: take them from the arguments, and mask loads and stores at the edges.

Answer with one ```python block that holds all imports, the kernels and `{answer}`.

```python
{reference}
```"""


def task_prompt(reference: str, entry_point: str = "Model") -> list[Message]:
    """Return the messages that ask for a task's kernel.

    Args:
        reference: source text of the reference program.
        entry_point: class of the reference; the answer defines `<entry_point>New`.
    """
    text = _TEXT.format(entry=entry_point, answer=f"{entry_point}New", reference=reference.strip())
    return [{"role": "user", "content": text}]


def words_of(messages: Sequence[Mapping[str, str]]) -> set[str]:
    """Return the names and other words in a conversation."""
    return set(re.findall(r"\w+", " ".join(message["content"] for message in messages)))
