"""Chaos: every seed is a backfill's life under strikes of its own, which it must survive. Run it with ``make chaos``."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from lives import LIVES
from neighbours import GROUNDS, beside
from schedules import schedule, survive


def main() -> int:
    """Print what failed and how to repeat it, and how many strikes were survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=240, help="so many, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="this one alone, told in full")
    parser.add_argument("--beside", type=float, help="seconds of everybody at once on each engine, instead of lives")
    arguments = parser.parse_args()
    if arguments.beside is not None:
        return everybody(arguments.beside)
    alone = arguments.seed is not None
    seeds = [arguments.seed] if alone else range(arguments.first, arguments.first + arguments.seeds)
    began = time.monotonic()
    struck: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    with TemporaryDirectory(prefix="chaos-") as folder:
        for seed in seeds:
            life = LIVES[seed % len(LIVES)]
            planned = schedule(seed)
            try:
                told = survive(planned, Path(folder))
            except Exception as error:
                failed[life.rig.name] += len(planned.strikes)
                struck[life.rig.name] += len(planned.strikes)
                print(f"\nFAILED {planned}\n  {type(error).__name__}: {error}\n  repeat it: make chaos SEED={seed}")
                if alone:
                    traceback.print_exc()
            else:
                struck[life.rig.name] += len(told)
                if alone:
                    print(planned, *told, sep="\n  ")
            print(".", end="", flush=True)
    print(f"\n{len(seeds)} lives in {time.monotonic() - began:.0f} s")
    for name in sorted(struck):
        print(f"  {name:<10} faults survived {struck[name] - failed[name]} of {struck[name]}")
    print(f"faults survived {(struck - failed).total()} of {struck.total()}")
    return 1 if failed else 0


def everybody(seconds: float) -> int:
    """Let them all go round, and print what it came to."""
    for rig in GROUNDS:
        with TemporaryDirectory(prefix="chaos-") as folder:
            print(f"{rig.name}, {seconds:.0f} s: {beside(rig, Path(folder), seconds)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
