"""Rows, bundles and spools in plain lines, for people at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spool import PurgeReport

from .terminal import sanitised


def row_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """One judged call in full: verdict, standard, and for each output its metrics beside their limits."""
    place = f"rank {row['rank']} step {row['step']} seq {row['seq']}"
    yield f"{row['verdict'].upper()} {sanitised(row['api'])} ({row['phase']}), {place}"
    if row.get("origin"):
        yield f"  of the backward of {sanitised(row['origin'])}"
    if row.get("message"):
        yield f"  {sanitised(row['message'])}"
    if row.get("standard"):
        yield f"  standard: {row['standard']}, {row.get('mode') or 'not compared'}, replayed on {row.get('device')}"
    for output in row.get("outputs", ()):
        shape = "x".join(map(str, output.get("shape") or ())) or "scalar"
        name = output.get("path", output["index"])
        yield f"  output {name}: {output.get('verdict', output['status'])}, {output.get('dtype')} {shape}"
        if output.get("message"):
            yield f"    {sanitised(output['message'])}"
        for name, value, limit, met in output.get("checks") or ():
            yield f"    {'ok  ' if met else 'FAIL'} {name:32} {_number(value)}   limit {_number(limit)}"
        for metric, value in (output.get("metrics") or {}).items():
            if value is not None:
                yield f"         {metric:32} {_number(value)}"
        worst = output.get("worst")
        if worst:
            yield f"    worst element {worst['index']}: device {worst['device']}, reference {worst['reference']}"
        if output.get("would_pass"):
            wanted = ", ".join(f"{name} {_number(value)}" for name, value in output["would_pass"].items())
            yield f"    would have passed with: {wanted}"
    for note in row.get("notes", ()):
        yield f"  note: {sanitised(note)}"
    if row.get("reproduce"):
        yield f"  reproduce: {sanitised(row['reproduce'])}"


def bundle_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What a bundle holds."""
    yield f"{found['path']}"
    yield f"  {sanitised(found['api'])} ({found['phase']}), rank {found['rank']} step {found['step']} seq {found['seq']}"
    yield f"  session {sanitised(found['session'])}, format {found['format']}, {found['nbytes']} bytes of data, digest checked"
    if found.get("origin"):
        yield f"  of the backward of {sanitised(found['origin'])}"
    if found.get("skip"):
        yield f"  {sanitised(found['skip'])}"
    for part in ("context", "producer"):
        yield f"  {part}: " + ", ".join(f"{name} {sanitised(value)}" for name, value in found[part].items())
    for path, text in found["values"].items():
        yield f"  {path}: {sanitised(text)}"


def status_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What is in a spool, and who writes to it."""
    yield f"{found['spool']}"
    oldest = found.get("oldest_age_s")
    since = f" (oldest {oldest:.0f} s)" if oldest is not None else ""
    yield f"  ready {found['ready']}{since}, claimed {found['claimed']}, in quarantine {found['quarantined']}"
    for rank, count in found["ready_by_rank"].items():
        yield f"  rank {rank}: {count} ready"
    for session in found["sessions"]:
        counts = ", ".join(f"{name} {count}" for name, count in session["counts"].items() if count)
        yield (
            f"  session {sanitised(session['session'])}: rank {session['rank']}, {session['state']}, on "
            f"{sanitised(session['host'])} pid {session['pid']}, last heard {session['heartbeat_age_s']:.0f} s ago; {counts}"
        )
    if not found["sessions"]:
        yield "  no training has written here yet"


def purge_lines(done: PurgeReport) -> Iterator[str]:
    """What a purge did, or would do."""
    verb = "would be" if done.dry_run else "were"
    kinds = {
        "claims of dead readers": (done.claims, "given back"),
        "records of dead readers": (done.consumers, "removed"),
        "half-written files": (done.temporaries, "removed"),
        "sessions of dead writers": (done.sessions, "marked failed"),
        "states of closed LAN sessions": (done.states, "removed"),
    }
    for name, (paths, what) in kinds.items():
        yield f"{len(paths)} {name} {verb} {what}"
        yield from (f"  {sanitised(path)}" for path in paths)


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
