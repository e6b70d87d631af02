"""What the training says of its calls is held against the rows, while judging and in every later report."""

from __future__ import annotations

from pathlib import Path

import pytest

from spool_reader.accounts import NAME, account_lines, load_accounts, save_accounts
from spool_reader.summary import SessionState, Summary


def state(session: str = "s1", rank: int = 0, how: str = "closed", **counts: int) -> SessionState:
    return SessionState(
        session, rank, how, {"seen": 0, "captured": 0, "filtered": 0, "unreplayable": 0, "dropped": 0, **counts}
    )


def summary(*states: SessionState, rows: int) -> Summary:
    made = Summary(sessions=list(states))
    for one in states:
        made.session_rows[one.session, one.rank] = rows
    return made


LINES = {
    "all is there": (
        summary(state(seen=10, captured=8, unreplayable=1, filtered=1), rows=9),
        ["rank 0: 10 calls seen: 9 recorded (1 of them cannot be replayed), 1 filtered out, 0 dropped; 9 rows"],
    ),
    "rows are missing": (
        summary(state(seen=5, captured=5), rows=3),
        [
            "rank 0: 5 calls seen: 5 recorded, 0 filtered out, 0 dropped; 3 rows; "
            "2 have no row here: still in the spool, in quarantine, or in another results folder"
        ],
    ),
    "not over yet": (
        summary(state(how="open", seen=5, captured=5), rows=3),
        ["rank 0: 5 calls seen: 5 recorded, 0 filtered out, 0 dropped; 3 rows"],
    ),
    "many": (
        summary(*[state(f"s{n}", n % 5, seen=2, captured=1, dropped=1) for n in range(10)], rows=1),
        ["5 ranks, 10 sessions: 20 calls seen: 10 recorded, 0 filtered out, 10 dropped; 10 rows"],
    ),
    "nothing is known": (Summary(), []),
}


@pytest.mark.parametrize("case", sorted(LINES))
def test_account_lines(case: str) -> None:
    made, expected = LINES[case]
    assert account_lines(made) == expected


def test_accounts_of_folders_are_kept_and_read_together(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    save_accounts(one, [state("s1", 0, "open", seen=1)])
    save_accounts(one, [state("s1", 0, seen=2), state("s2", 1, seen=3)])
    save_accounts(two, [state("s3", 0, seen=4)])
    assert [(s.session, s.rank, s.state, s.counts["seen"]) for s in load_accounts([one, two])] == [
        ("s1", 0, "closed", 2),
        ("s3", 0, "closed", 4),
        ("s2", 1, "closed", 3),
    ]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"sessions": 3}', '{"sessions": [{"session": "x"}]}', '{"sessions": [null]}']
)
def test_damaged_accounts_tell_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(text)
    assert load_accounts([tmp_path]) == []
    save_accounts(tmp_path, [state(seen=1)])
    assert len(load_accounts([tmp_path])) == 1
