# SPDX-License-Identifier: Apache-2.0
"""ReMix: several LoRAs per layer, of which a trained router chooses a fixed number."""
