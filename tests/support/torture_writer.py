"""A training process of the torture: `ROOT RANK FIRST LAST LOG SEED` publishes calls FIRST to LAST and logs each that is out.

It may die at any moment. A call stands in the log twice: before it is published, and after.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from pathlib import Path

import torch

from spool import Bundle, SessionInfo, SpoolFull, SpoolOptions, SpoolUnavailable, open_spool


def main(root: str, rank: int, first: int, last: int, log: Path, seed: int) -> None:
    """Publish, in steps of fifty calls, at a pace that changes."""
    torch.set_num_threads(1)
    chance = random.Random(seed)
    session = f"torture-{rank}-{os.getpid()}-{first}"
    options = SpoolOptions(max_pending_bundles=200, reserve_bytes=2**20, block_timeout=120, stale_after=2.0)
    x = torch.arange(1000, dtype=torch.float32)
    with open_spool(root, options=options) as spool, log.open("a", encoding="utf-8", buffering=1) as out:
        writer = spool.open_session(SessionInfo(session, rank, socket.gethostname(), os.getpid(), "0", time.time()))
        for number in range(first, last):
            step, seq = divmod(number, 50)
            bundle = Bundle.build(
                session=session, rank=rank, step=step, seq=seq, api=f"Torch.add.{seq}", phase="forward", args=(x, number),
                kwargs={}, result=x + number, context={}, producer={"device": "npu:0"}, time=time.time(),
            )  # fmt: skip
            print("begin", session, number, file=out)
            while True:
                try:
                    spool.publish(bundle)
                    break
                except (SpoolFull, SpoolUnavailable):
                    time.sleep(0.2)
            print("out", session, number, file=out)
            if chance.random() < 0.1:
                writer.heartbeat({"seen": number})
            time.sleep(chance.random() * 0.01)
        writer.close("closed", {"seen": last - first, "captured": last - first})


if __name__ == "__main__":
    _, place, who, begin, end, path, luck = sys.argv
    main(place, int(who), int(begin), int(end), Path(path), int(luck))
