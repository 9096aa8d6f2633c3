# SPDX-License-Identifier: Apache-2.0
"""The bench: a model on a suite of tasks, over samples and turns, judged by the gym and kept on disk."""
