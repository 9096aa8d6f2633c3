# SPDX-License-Identifier: Apache-2.0
"""A profile of one forward: what bounds each launch, and which single change of its counts would save most time."""
