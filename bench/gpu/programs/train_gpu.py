# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT on one GPU, and prints when the first step ended and how fast the others were."""

import json
import time

import torch

from model import GPT, batch_of, load_text

LAYERS, WIDTH, HEADS, LENGTH, BATCH = 12, 768, 12, 512, 32
WARM_UP, BLOCK, BLOCKS = 20, 30, 5


def main():
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    text = load_text("cuda")
    model = GPT(LAYERS, WIDTH, HEADS, LENGTH).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(*batch_of(text, BATCH, LENGTH))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    first_loss = step().item()
    first_step_at = time.time()
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    rates = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(BLOCK):
            loss = step()
        torch.cuda.synchronize()
        rates.append(BLOCK / (time.perf_counter() - begin))
    print("RESULT " + json.dumps({
        "gpus": torch.cuda.device_count(), "gpu": torch.cuda.get_device_name(0), "torch": torch.__version__,
        "parameters": sum(p.numel() for p in model.parameters()), "tokensPerStep": BATCH * LENGTH,
        "firstStepAt": first_step_at, "stepsPerSecond": sorted(rates)[len(rates) // 2], "rates": rates,
        "firstLoss": first_loss, "lastLoss": loss.item(), "finishedAt": time.time(),
    }), flush=True)


main()
