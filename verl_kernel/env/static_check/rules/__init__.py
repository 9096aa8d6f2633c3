# SPDX-License-Identifier: Apache-2.0
"""The rules of the static gate, by what they look at."""
