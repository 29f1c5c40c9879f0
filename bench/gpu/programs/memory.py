# SPDX-License-Identifier: Apache-2.0
"""Allocates more memory than the GPU has."""

import torch

held = [torch.empty(16 << 30, dtype=torch.uint8, device="cuda") for _ in range(64)]
