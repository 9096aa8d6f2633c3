# SPDX-License-Identifier: Apache-2.0
"""A task's reference program: its preparation, its storage on disk, and its trials."""
