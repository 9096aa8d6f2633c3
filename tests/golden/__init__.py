# SPDX-License-Identifier: Apache-2.0
"""What must stay bit for bit what it is while code moves: tasks and talks of both worlds, prices, names in recipes.

`python -m tests.golden.record` writes `recorded.json` anew. It is run for a change that is meant, which the changelog
then tells: committed runs and simulated speedups are of the values before.
"""
