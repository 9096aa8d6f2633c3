# SPDX-License-Identifier: Apache-2.0
"""A tokenizer that spells code: no token holds more than one identifier, number, operator or run of white space.

One space belongs to the piece that follows it, which makes code a quarter shorter.
Identifiers may be cut into pieces, so a name that the corpus lacks can be written too. A message is
`<|role|>content<|im_end|>` and a line break; nothing depends on later messages, so the tokens of k messages are a
prefix of the tokens of k + 1. `<|im_end|>` ends every message and is the end-of-sequence token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from verl_kernel.generated_tasks.pre_tokens import PIECE

END, PAD = "<|im_end|>", "<|pad|>"
"""verl continues a Qwen conversation after exactly this token, and adds a line break itself."""
ROLES = {role: f"<|{role}|>" for role in ("system", "user", "assistant")}
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
_LONGEST = 2048
"""Tokens of a conversation, which are also the model's positions."""


def train_tokenizer(texts: Iterable[str], size: int, piece: str = PIECE) -> PreTrainedTokenizerFast:
    """Train a tokenizer; the same texts give the same tokenizer.

    Args:
        texts: the corpus.
        size: how many tokens it has at most.
        piece: regular expression of the pieces of a text; no token is longer than one.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(piece), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[PAD, END, *ROLES.values()],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=list(ROLES.values()),
        clean_up_tokenization_spaces=False,
        model_max_length=_LONGEST,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def encode_conversation(
    tokenizer: PreTrainedTokenizerFast, messages: Sequence[Mapping[str, str]]
) -> tuple[list[int], list[bool]]:
    """Return a conversation's tokens and which of them a model has to predict.

    Returns:
        (T,) token ids as the chat template gives them, and (T,) flags: assistant content and its end token.
    """
    ids: list[int] = []
    targets: list[bool] = []
    line_break = tokenizer("\n", add_special_tokens=False)["input_ids"]
    for message in messages:
        content = tokenizer(f"{message['content']}{END}", add_special_tokens=False)["input_ids"]
        role = tokenizer(f"<|{message['role']}|>", add_special_tokens=False)["input_ids"]
        ids += [*role, *content, *line_break]
        targets += [*[False] * len(role), *[message["role"] == "assistant"] * len(content), *[False] * len(line_break)]
    return ids, targets
