# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers with the chat templates of model families, each trained in a moment."""

from transformers import PreTrainedTokenizerFast

from verl_kernel.generated_tasks.tokenizer import CHAT_TEMPLATE, train_tokenizer

BASE_END = "<|endoftext|>"
GLM_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""A message ends where the next one begins."""
PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


def tokenizer(
    texts: list[str], template: str | None = CHAT_TEMPLATE, end: str = "<|im_end|>"
) -> PreTrainedTokenizerFast:
    trained = train_tokenizer([*texts, *("Write a kernel.", "Verdict: ok", "user assistant: \n") * 4], 400)
    trained.add_special_tokens({"additional_special_tokens": ["<|observation|>"]}, replace_extra_special_tokens=False)
    trained.add_special_tokens({"eos_token": end})
    trained.add_tokens(["<think>", "</think>"])
    trained.chat_template = template
    return trained
