# SPDX-License-Identifier: Apache-2.0
"""ReMix: several LoRAs per layer, among which a trained router chooses a fixed number (arXiv 2603.10160)."""
