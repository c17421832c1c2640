"""Prices and bills, from provider notes A.5, B.7, C.8 and E, and from the contract, section 1.

All money is integers: micro-cents per million tokens, and micro-cents.
"""

import re

MARGIN_PPM = 100_000  # of the app that the corpus is played by
FEE_PPM = 50_000  # of the service
MILLION = 1_000_000


def micro_cents(dollars):
    """Dollars per million tokens, a decimal of at most three places, as micro-cents."""
    whole, _, part = dollars.partition(".")
    return int(whole) * 100_000_000 + int(part.ljust(8, "0"))


def read_prices(path):
    """The steps of each model: its price list, read without a library for YAML."""
    models, steps = {}, None
    for line in open(path, encoding="utf-8"):
        if m := re.match(r"  - id: (\S+)", line):
            steps = models[m[1]] = []
        elif m := re.match(r"      - \{(.*)\}", line):
            row = {k.strip(): v.strip().strip('"') for k, v in (p.split(":") for p in m[1].split(","))}
            step = {k: micro_cents(v) for k, v in row.items() if k != "above"}
            step.setdefault("cached", step["input"])
            step.setdefault("cache_write", step["input"])
            steps.append((int(row.get("above", -1)), step))
    return models


def bill(steps, usage):
    """What a call costs: the cost and the fee are rounded up, the margin half up."""
    prompt = usage["input"] + usage["cached"] + usage["cache_write"]
    price = [step for above, step in steps if prompt > above][-1]
    cost = -(-sum(usage[c] * price[c] for c in ("input", "cached", "cache_write", "output")) // MILLION)
    margin = (cost * MARGIN_PPM + MILLION // 2) // MILLION
    fee = -(-cost * FEE_PPM // MILLION)
    return {"cost": cost, "margin": margin, "fee": fee, "charge": cost + margin + fee}


def waive(bill):
    """An empty answer is free: the fee bears its cost (decision 112)."""
    return {"cost": bill["cost"], "margin": 0, "fee": -bill["cost"], "charge": 0}
