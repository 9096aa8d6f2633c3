# SPDX-License-Identifier: Apache-2.0
"""The training data of the CPU recipe, generated from one seed: tasks, conversations, tokenizer, warm-started model."""
