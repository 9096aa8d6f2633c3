# SPDX-License-Identifier: Apache-2.0
"""A Hydra plugin by which `--config-name` finds the recipes of `verl_kernel.config` from any directory.

Hydra scans the namespace package `hydra_plugins`, which therefore must not have an `__init__.py`.
"""

from __future__ import annotations

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class VerlKernelSearchPath(SearchPathPlugin):
    """The plugin that appends `pkg://verl_kernel.config`; verl's own files come first, so none of them is hidden."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append this package's configuration to the search path."""
        search_path.append(provider="verl-kernel", path="pkg://verl_kernel.config")
