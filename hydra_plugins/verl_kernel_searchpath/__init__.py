# SPDX-License-Identifier: Apache-2.0
"""Makes the recipes of `verl_kernel.config` findable by `--config-name` from any directory.

Hydra scans the namespace package `hydra_plugins`, which therefore must have no `__init__.py` of its own.
"""

from __future__ import annotations

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class VerlKernelSearchPath(SearchPathPlugin):
    """Appends `pkg://verl_kernel.config`: verl's own files come first and are never shadowed."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append our config package."""
        search_path.append(provider="verl-kernel", path="pkg://verl_kernel.config")
