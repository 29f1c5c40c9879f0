# SPDX-License-Identifier: Apache-2.0
"""A small GPT, and batches of bytes from a text file."""

import os

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """One layer: attention to what came before, then a perceptron."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.before_perceptron = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.attention(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.perceptron(self.before_perceptron(x))


class GPT(nn.Module):
    """Predicts the next byte of a text."""

    def __init__(self, layers, width, heads, length):
        super().__init__()
        self.token = nn.Embedding(256, width)
        self.position = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256, bias=False)

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        logits = self.head(self.norm(self.blocks(x)))
        return functional.cross_entropy(logits.view(-1, 256), targets.reshape(-1))


def load_text(device):
    """The bytes of the file beside this program."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "text")
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).to(device).long()


def batch_of(text, size, length):
    """Random windows of the text, and the same windows one byte later."""
    starts = torch.randint(len(text) - length - 1, (size, 1), device=text.device)
    windows = text[starts + torch.arange(length + 1, device=text.device)]
    return windows[:, :-1], windows[:, 1:]
