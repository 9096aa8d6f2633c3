# SPDX-License-Identifier: Apache-2.0
"""Conversations for a cold start, in the columns of verl's SFT trainer: `messages`, and columns that it ignores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_kernel.data.files import writing
from verl_kernel.data.foreign_rows import as_json
from verl_kernel.data.rows import Message
from verl_kernel.errors import DataError

Talk = dict[str, Any]
SCHEMA = pa.schema(
    {"messages": pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})), "source": pa.string()}
)
"""Columns of `make_talk`. Files of equal columns can be trained on together."""


def make_talk(messages: list[Message], metadata: Mapping[str, Any]) -> Talk:
    """Return one row of a file of conversations; `metadata` holds all other facts about it."""
    return {"messages": messages, "source": as_json(metadata)}


def write_talks(talks: Sequence[Talk], path: Path) -> None:
    """Write conversations; the file appears only when it is complete (raises as `files.writing`)."""
    with writing(path) as part:
        pq.write_table(pa.Table.from_pylist(list(talks), SCHEMA), part)


def talk_of(record: Mapping[str, Any], number: int) -> Talk:
    """Convert a published row, whose messages are in `messages`, `message` or `prompt`, to a conversation.

    Args:
        record: the published row.
        number: its index in the file, kept with the other facts.

    Raises:
        DataError: the conversation cannot be trained on; the part before the colon is the general reason.
    """
    key = next((key for key in ("messages", "message", "prompt") if record.get(key)), "messages")
    metadata = {name: value for name, value in record.items() if name != key}
    return make_talk(checked_talk(record.get(key)), {**metadata, "row": number})


def checked_talk(value: Any) -> list[Message]:
    """Check that user and assistant alternate, after at most one system message, and that the assistant's is last.

    Raises:
        DataError: the messages have another form.
    """
    if not isinstance(value, list) or not value:
        raise DataError("there is no conversation: the row holds no list of messages")
    talk = [_message(message) for message in value]
    spoken = talk[1:] if talk[0]["role"] == "system" else talk
    roles = ["user", "assistant"] * (len(spoken) // 2 + 1)
    if [message["role"] for message in spoken] != roles[: len(spoken)]:
        raise DataError("the roles do not alternate: user and assistant must speak in turn, the user first")
    if len(spoken) % 2 or not spoken:
        raise DataError("the last message is not the assistant's: there is nothing to learn from it")
    if not all(message["content"].strip() for message in spoken):
        raise DataError("a message is empty: user and assistant must both say something each time")
    return talk


def _message(message: Any) -> Message:
    if not isinstance(message, Mapping) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
        raise DataError("a message has no text: every message needs `role` and `content`")
    return {"role": message["role"], "content": message["content"]}
