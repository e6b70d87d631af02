"""What a reader remembers of a listing is bounded over all ranks together, and nothing is passed over for that."""

from __future__ import annotations

from pathlib import Path

import pytest
from spool_bundles import PLAIN, call, drain, taken

from spool import open_spool
from spool.directory import DirectorySpool


def test_many_ranks_are_remembered_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spool.listing._IN_ALL", 20)
    monkeypatch.setattr("spool.listing._LEAST", 2)
    with open_spool(tmp_path, options=PLAIN) as spool:
        assert isinstance(spool, DirectorySpool)
        for rank in range(10):
            for seq in range(12):
                spool.publish(call(seq, rank=rank, step=seq // 3))
        assert taken(spool).done()
        remembered = sum(map(len, spool._listing._ranks.values()))
        assert remembered == 10 * 3 - 1, "the first step of each rank, which holds enough"
        keys = drain(spool)
        assert len(keys) == 10 * 12 - 1
        for rank in range(10):
            seqs = [key[3] for key in keys if key[1] == rank]
            assert seqs == sorted(seqs), "in execution order within a rank"
