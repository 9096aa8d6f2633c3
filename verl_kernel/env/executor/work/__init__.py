# SPDX-License-Identifier: Apache-2.0
"""What a launch that has run costs on a GPU, in the words of the machine model."""
