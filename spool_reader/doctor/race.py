"""Two processes rename the same files at the same time: each file must have exactly one winner, or two readers judge one call."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .findings import Finding, fail, ok

_FILES = 200
# No module of ours: the process starts at once.
_RACER = """
import os, sys, time
folder, mine, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.mkdir(mine)
while not os.path.exists(os.path.join(folder, "go")):
    time.sleep(0.001)
    os.listdir(folder)
won = 0
for number in range(count):
    try:
        os.rename(os.path.join(folder, str(number)), os.path.join(mine, str(number)))
        won += 1
    except FileNotFoundError:
        pass
print(won)
"""


def claim_race(scratch: Path) -> Iterator[Finding]:
    """The race, from two processes of this host."""
    folder = scratch / "race"
    folder.mkdir()
    for number in range(_FILES):
        (folder / str(number)).touch()
    racers = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", _RACER, str(folder), str(scratch / f"racer{n}"), str(_FILES)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(2)
    ]
    (folder / "go").touch()
    try:
        ends = [racer.communicate(timeout=60) for racer in racers]
    except subprocess.TimeoutExpired:
        for racer in racers:
            racer.kill()
            racer.communicate()
        yield fail(
            "claim race", "two processes did not get through 200 renames in a minute", "use a faster file system"
        )
        return
    if any(racer.returncode for racer in racers):
        yield fail("claim race", ends[0][1] or ends[1][1], "renames fail here, and every claim is one")
        return
    won = [int(stdout) for stdout, _ in ends]
    if sum(won) != _FILES:
        yield fail(
            "claim race",
            f"two processes won {won[0]} + {won[1]} of {_FILES} renames: some files had two winners, or none",
            "use another file system: here two readers would judge one call, or lose it",
        )
    else:
        yield ok("claim race", f"{_FILES} files, {won[0]} and {won[1]} won by two processes, none twice")
