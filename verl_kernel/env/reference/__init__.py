# SPDX-License-Identifier: Apache-2.0
"""A task's reference program: how it is prepared, stored, and asked for trials."""
