# SPDX-License-Identifier: Apache-2.0
"""Values that moving code must not change: tasks and talks of both worlds, prices, figures of kept runs,
and names in configurations.

`python -m tests.golden.record` writes `recorded.json` again. Run it only when such a value is changed on purpose, and
say so in the changelog: committed runs and their simulated speedups were made with the old values.
"""
