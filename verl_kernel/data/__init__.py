# SPDX-License-Identifier: Apache-2.0
"""Datasets: rows verl reads, and the generated quickstart (tasks, corpus, tokenizer, warm-started model)."""
