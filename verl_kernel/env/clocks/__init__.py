# SPDX-License-Identifier: Apache-2.0
"""What turns a verified evaluation into times and a profile."""
