# SPDX-License-Identifier: Apache-2.0
"""What the untrusted process watches in itself, and what of its trace cannot be true."""
