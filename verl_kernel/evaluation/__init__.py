# SPDX-License-Identifier: Apache-2.0
"""What is measured about a set of evaluated candidates."""
