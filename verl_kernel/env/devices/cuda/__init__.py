# SPDX-License-Identifier: Apache-2.0
"""A GPU as a device: launches, memory, facts from the driver, and its lock."""
