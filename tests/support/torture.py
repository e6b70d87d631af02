"""Torture of a spool: writers and readers as processes that are killed, paused and starved of disk; nothing lost, nothing twice.

    python tests/support/torture.py --bundles 2000 --writers 2 --readers 2 --seed 7 [--dir DIR]

Everything that is chance comes from the seed, which is printed: the same seed plays the same blows again (how they meet the
processes is the scheduler's choice). With `--small-disk` the disk fills up now and then.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from processes import ROOT, environment, key_of, rows_of

from spool import purge

STALE_S = 2.0
POISON = 3


@dataclass
class Torture:
    """One run: what it was given, what was done to the processes, and what it found."""

    folder: Path
    bundles: int
    writers: int
    readers: int
    seed: int
    small_disk: Path | None = None
    blows: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        # The disk that fills up is the spool's; logs and results lie beside it.
        self.spool = (self.small_disk or self.folder) / "spool"
        self.out = self.folder / "out"
        self.logs = self.folder / "logs"
        for path in (self.spool, self.out, self.logs):
            path.mkdir()
        self._next = [0] * self.writers
        self._share = self.bundles // self.writers
        self._writing: dict[int, subprocess.Popen[bytes]] = {}
        self._reading: dict[int, subprocess.Popen[bytes]] = {}
        self._ballast = self.spool / ".ballast"

    def run(self, seconds: float) -> list[str]:
        """Play, for at least so long as there is something to publish; what is wrong at the end."""
        self._plant()
        deadline = time.monotonic() + seconds
        try:
            while not self._published():
                if time.monotonic() > deadline:
                    return [f"not everything was published within {seconds:.0f} s"]
                self._start_missing()
                time.sleep(self.chance.uniform(0.2, 0.8))
                self._strike()
            self._relieve()
            for reader in self._reading.values():
                reader.send_signal(signal.SIGKILL)
        finally:
            self._relieve()
            for process in (*self._reading.values(), *self._writing.values()):
                process.kill()
                process.wait()
        self._drain()
        return self._faults()

    def _plant(self) -> None:
        step = self.spool / "rank0" / "step0"
        step.mkdir(parents=True)
        for number in range(POISON):
            (step / f"{90_000_000 + number:08d}.Torch.poison.{number}.safetensors").write_bytes(b"\x08" + bytes(40))

    def _start_missing(self) -> None:
        for rank in range(self.writers):
            process = self._writing.get(rank)
            if process is not None and process.poll() is None:
                continue
            self._next[rank] = self._reached(rank)
            if self._next[rank] < self._share:
                words = [
                    self.spool,
                    rank,
                    self._next[rank],
                    self._share,
                    self.logs / f"writer{rank}",
                    self.chance.randrange(2**30),
                ]
                self._writing[rank] = self._start(ROOT / "tests" / "support" / "torture_writer.py", *words)
        for number in range(self.readers):
            process = self._reading.get(number)
            if process is None or process.poll() is not None:
                self._reading[number] = self._start(
                    "-m", "spool_check", "watch", self.spool, "--out", self.out / f"reader{number}", "--workers", 0,
                    "--follow", "--stale-after", STALE_S, "--device", "cpu",
                )  # fmt: skip

    def _start(self, *words: object) -> subprocess.Popen[bytes]:
        log = (self.logs / "output").open("ab")
        with log:
            return subprocess.Popen([sys.executable, *map(str, words)], env=environment(), stdout=log, stderr=log)

    def _strike(self) -> None:
        """One blow at random: a kill or a pause of a reader or a writer, or the disk filled for a while."""
        living = [p for p in (*self._reading.values(), *self._writing.values()) if p.poll() is None]
        kind = self.chance.choice(
            ["kill", "kill", "pause", "nothing", "nothing", "fill" if self.small_disk else "nothing"]
        )
        if kind == "kill" and living:
            self.chance.choice(living).send_signal(signal.SIGKILL)
        elif kind == "pause" and living:
            victim = self.chance.choice(living)
            victim.send_signal(signal.SIGSTOP)
            # Past the lease: others take its claims back, and it must notice.
            time.sleep(STALE_S * 2)
            if victim.poll() is None:
                victim.send_signal(signal.SIGCONT)
        elif kind == "fill":
            self._fill()
            time.sleep(self.chance.uniform(0.5, 2.0))
            self._relieve()
        self.blows[kind] += 1

    def _fill(self) -> None:
        with self._ballast.open("wb") as file:
            try:
                while True:
                    os.write(file.fileno(), bytes(65536))
            except OSError:
                pass

    def _relieve(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def _log(self, rank: int) -> list[list[str]]:
        path = self.logs / f"writer{rank}"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [words for line in lines if len(words := line.split()) == 3]

    def _reached(self, rank: int) -> int:
        # A call that was begun and not seen out may be out all the same: its successor starts with the next.
        return max((int(number) + 1 for _, _, number in self._log(rank)), default=0)

    def _published(self) -> bool:
        alive = any(process.poll() is None for process in self._writing.values())
        return bool(self._writing) and not alive and all(self._reached(r) >= self._share for r in range(self.writers))

    def _drain(self) -> None:
        """What the last readers left, once they count as dead."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            run = self._start(
                "-m", "spool_check", "watch", self.spool, "--out", self.out / "last", "--workers", 0,
                "--stale-after", STALE_S, "--device", "cpu",
            )  # fmt: skip
            run.wait(120)
            if not [p for p in self.spool.rglob("*.safetensors") if "quarantine" not in p.parts]:
                return
            time.sleep(STALE_S)

    def _faults(self) -> list[str]:
        begun = {(s, int(n)) for rank in range(self.writers) for word, s, n in self._log(rank) if word == "begin"}
        out = {(s, int(n)) for rank in range(self.writers) for word, s, n in self._log(rank) if word == "out"}
        rows = rows_of(*sorted(self.out.iterdir()))
        judged = {(row["session"], row["step"] * 50 + row["seq"]) for row in rows}
        found = [f"published and not judged: {key}" for key in sorted(out - judged)]
        found += [f"judged and never begun: {key}" for key in sorted(judged - begun)]
        for folder in sorted(self.out.iterdir()):
            keys = Counter(map(key_of, rows_of(folder)))
            found += [f"{count} rows of {key} in {folder.name}" for key, count in keys.items() if count > 1]
        found += [f"{row['api']}: {row['verdict']}: {row['message']}" for row in rows if row["verdict"] != "pass"]
        left = sorted(p.relative_to(self.spool).as_posix() for p in self.spool.rglob("*.safetensors"))
        set_aside = [name for name in left if name.startswith("quarantine/")]
        found += [f"left in the spool: {name}" for name in left if name not in set_aside]
        found += [f"in quarantine: {name}" for name in set_aside if ".Torch.poison." not in name]
        if len(set_aside) != POISON:
            found.append(f"{len(set_aside)} of {POISON} planted bundles in quarantine")
        # What a killed writer was writing is nobody's once everybody is dead.
        purge(self.spool, stale_after=0.1, grace=0.0)
        found += [f"debris: {path}" for path in self.spool.rglob(".*.tmp")]
        twice = len(rows) - len({key_of(row) for row in rows})
        self.blows["judged again after a death between row and deletion"] = twice
        return found


def main() -> int:
    """Run one torture and tell how it went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundles", type=int, default=2000)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--readers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument(
        "--small-disk", type=Path, default=None, help="a small file system that may be filled, for the spool"
    )
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**30)
    print(f"seed {seed}: {options.bundles} bundles, {options.writers} writers, {options.readers} readers", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="torture-", dir=options.dir))
    torture = Torture(folder, options.bundles, options.writers, options.readers, seed, options.small_disk)
    start = time.monotonic()
    faults = torture.run(options.seconds)
    blows = ", ".join(f"{count} {kind}" for kind, count in sorted(torture.blows.items()))
    print(f"{time.monotonic() - start:.0f} s; blows: {blows}")
    print("\n".join(faults[:50]) if faults else "nothing lost, nothing twice, nothing left")
    if faults:
        print(f"logs in {folder}; play it again with --seed {seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
