# SPDX-License-Identifier: Apache-2.0
"""What the CPU recipe trains on, generated from one seed: tasks, conversations, tokenizer, warm-started model."""
