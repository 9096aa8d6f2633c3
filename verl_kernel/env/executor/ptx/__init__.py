# SPDX-License-Identifier: Apache-2.0
"""PTX as data: what a kernel's text says, before anything is made of it."""
