# SPDX-License-Identifier: Apache-2.0
"""A CPU as a device: launches are described and executed by another process, and priced by a nominal GPU."""
