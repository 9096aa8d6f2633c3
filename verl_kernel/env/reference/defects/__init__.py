# SPDX-License-Identifier: Apache-2.0
"""What makes a reference a poor task: answers that need no kernel and pass, and what its outputs do not depend on."""
