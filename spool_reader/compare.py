"""`spool-check compare NPU.csv GPU.csv`: the three-way verdict from two details files, ours or the peer's.

Both files hold metrics against the same golden runs; the NPU's are judged by the standard of each API, with the GPU's as
the reference. Rows are matched by name, and by step where both files have steps. A row without a partner, or without the
figures that its standard needs, is reported as SKIP, never dropped.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comparators import ProfileError, load_profile
from comparators.names import ABSOLUTE, ACCUMULATIVE, BENCHMARK, BINARY, THOUSANDTH, ULP, base_name, listed_standard
from comparators.profiles import Profile
from comparators.standards import judge_standard
from spool import ConfigError, ResultsError

from .csv_columns import ALGORITHMS, COMPARE_DETAILS, DETAILS, RESULT, keys_by_title
from .csv_records import BLANK, CHECKED
from .csv_views import CsvFile

_REQUIRED = (
    *("name", "dtype", "small_value_share", "rmse", "max_rel_err", "mean_rel_err", "eb", "error_rate"),
    *("inf_nan_share", "rel_err_share", "abs_err_share", "mean_ulp", "ulp_share", "thousandth"),
)
_NEEDED = {
    BINARY: ("error_rate",),
    ABSOLUTE: ("inf_nan_share", "rel_err_share", "abs_err_share"),
    ULP: ("mean_ulp", "ulp_share"),
    THOUSANDTH: ("thousandth",),
    ACCUMULATIVE: ("inf_nan_share", "rel_err_share", "abs_err_share", "eb"),
    BENCHMARK: ("small_value_share", "rmse", "max_rel_err", "mean_rel_err", "eb"),
}
_THREE_WAY = (ULP, BENCHMARK)
_FLOATS = ("float16", "bfloat16", "float32")
_UNSUPPORTED = ("float64", "complex64", "complex128")
_SEVERITY = {"SKIP": 0, "pass": 1, "warning": 2, "error": 3}


class _NoNumber(Exception):
    """A figure of a row is no number; the message says which."""


@dataclass
class CompareResult:
    """What a comparison of two files has found.

    `paths` are the result and the details file, `unread` says which rows have figures that are no numbers.
    """

    paths: list[Path]
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_SEVERITY, 0))
    failed: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.counts["error"] == 0

    @property
    def exit_code(self) -> int:
        """As for every command: 0 all passed, 1 some failed, 3 some could not be read, 5 nothing was checked."""
        if not self:
            return 1
        if self.unread:
            return ResultsError.exit_code
        return 0 if self.counts["pass"] + self.counts["warning"] else 5

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {word}" for word, count in self.counts.items() if count)
        lines = [f"compared by API: {counts or 'nothing'}"]
        lines += [f"  error: {name}" for name in self.failed[:20]]
        if len(self.failed) > 20:
            lines.append(f"  … and {len(self.failed) - 20} more")
        lines += [f"  not judged: {said}" for said in self.unread[:20]]
        if len(self.unread) > 20:
            lines.append(f"  … and {len(self.unread) - 20} more")
        return "\n".join(lines)


def compare_csv(
    npu_csv: Path | str,
    gpu_csv: Path | str,
    out_dir: Path | str,
    *,
    profile: str | Path = "default",
    columns: str = "zh",
) -> CompareResult:
    """Judge the rows of one details file with another's as reference; writes two CSV files into `out_dir`."""
    try:
        limits = load_profile(profile)
    except ProfileError as exc:
        raise ConfigError(str(exc)) from exc
    npu, gpu = _read(Path(npu_csv)), _read(Path(gpu_csv))
    out = Path(out_dir)
    stamp = time.strftime("%Y%m%d%H%M%S")
    try:
        out.mkdir(parents=True, exist_ok=True)
        result = CsvFile(out / f"api_precision_compare_result_{stamp}.csv", RESULT, columns)
        details = CsvFile(out / f"api_precision_compare_details_{stamp}.csv", COMPARE_DETAILS, columns)
    except OSError as exc:
        raise ResultsError(f"{out}: {exc.strerror}; choose another folder with --out") from exc
    try:
        calls: dict[tuple[str, str], dict[str, list[Any]]] = {}
        found = CompareResult([])
        for key, row in npu.items():
            try:
                record = _judge(row, gpu.get(key), limits)
            except _NoNumber as reason:
                record = {"name": row["name"], "result": "SKIP", "message": str(reason)}
                found.unread.append(f"{row['name']}: {reason}")
            details.add(record)
            call, direction, _ = _parts(row["name"])
            statuses = calls.setdefault((call, key[1]), {"forward": [], "backward": [], "messages": []})
            statuses[direction].append(record["result"])
            if record["result"] in ("error", "SKIP") and record["message"] != BLANK:
                statuses["messages"].append(record["message"])
        for (call, _), statuses in calls.items():
            forward, backward = _worst(statuses["forward"]), _worst(statuses["backward"])
            message = "; ".join(dict.fromkeys(statuses["messages"])) or BLANK
            result.add({"api": call, "forward": forward, "backward": backward, "message": message})
            worst = _worst([word for word in (forward, backward) if word != BLANK])
            found.counts[worst] += 1
            if worst == "error":
                found.failed.append(call)
        found.paths += [result.finish(), details.finish()]
        return found
    finally:
        result.discard()
        details.discard()


def _read(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Rows of a details file by name and step; the step is empty where the file has none."""
    names = {**keys_by_title(DETAILS), "Step": "step", "Seq": "seq"}
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines)
            titles = reader.fieldnames or []
            found = [names[title] for title in titles if title in names]
            missing = [key for key in _REQUIRED if key not in found]
            if missing:
                wanted = [next(title for title, key in names.items() if key == lacking) for lacking in missing]
                raise ConfigError(f"{path} is no details file: its columns lack {', '.join(wanted)}")
            rows: dict[tuple[str, str], dict[str, str]] = {}
            for line in reader:
                row = {names[title]: value or "" for title, value in line.items() if title in names}
                _parts(row["name"], f"{path}, line {reader.line_num}")
                key = row["name"], row.get("step", "").strip()
                if key in rows:
                    step = f" of step {key[1]}" if key[1] else ""
                    raise ConfigError(
                        f"{path}, line {reader.line_num}: {row['name']}{step} is there twice; rows must be unique"
                    )
                rows[key] = row
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}") from exc
    except (UnicodeDecodeError, csv.Error) as exc:
        raise ConfigError(f"{path} is no CSV file in UTF-8: {exc}") from exc
    return rows


def _parts(name: str, where: str = "") -> tuple[str, str, str]:
    """`Torch.matmul.7`, `forward`, `0` of `Torch.matmul.7.forward.output.0`."""
    call, _, rest = name.rpartition(".output.")
    api, _, direction = call.rpartition(".")
    if not api or direction not in ("forward", "backward"):
        raise ConfigError(f"{where}: {name!r} is no output's name, such as Torch.matmul.7.forward.output.0")
    return api, direction, rest


def _judge(row: Mapping[str, str], reference: Mapping[str, str] | None, profile: Profile) -> dict[str, Any]:
    api = _parts(row["name"])[0]
    record: dict[str, Any] = {"name": row["name"], "result": "SKIP", "message": row.get("message") or BLANK}
    dtype = row["dtype"].strip().removeprefix("torch.")
    if reference is None:
        return {**record, "message": "not in the other file"}
    if not dtype or row.get("shape", "").strip() == "(0,)" or (dtype in _UNSUPPORTED and profile.peer_arithmetic):
        failed = row.get("status", "").strip() == "error" and not profile.peer_arithmetic
        return {**record, "result": "error"} if failed else record
    standard = _standard(api, dtype, row, profile)
    metrics = _figures(row, _NEEDED[standard])
    other = _figures(reference, _NEEDED[standard]) if standard in _THREE_WAY else {}
    lacking = [name for name in _NEEDED[standard] if name not in metrics]
    if lacking or (other is not None and standard in _THREE_WAY and set(other) != set(metrics)):
        failed = row.get("status", "").strip() == "error" and not profile.peer_arithmetic
        said = f"no figures for the {standard} standard" + (
            ": the output failed before it was measured" if failed else ""
        )
        return {**record, "result": "error" if failed else "SKIP", "message": said}
    limits = profile.limits(api, dtype)
    finding = judge_standard(standard, dict(metrics), dict(other), limits)
    record["algorithm"] = ALGORITHMS[standard]
    record["result"] = finding.status
    record["message"] = finding.message or BLANK
    for check in finding.checks:
        record["eb_ratio" if check.metric == "eb" else check.metric] = check.value
        if check.metric in CHECKED:
            record[CHECKED[check.metric]] = "pass" if check.passed else "error"
    if standard == ULP:
        record["mean_ulp"], record["ulp_status"] = metrics["mean_ulp"], finding.status
    if standard == BENCHMARK:
        ratio = abs(metrics["eb"]) / max(abs(other["eb"]), limits["min_err"])
        record["eb_ratio"], record["eb_status"] = ratio, "pass" if ratio <= limits["eb_ratio"] else "error"
    return record


def _standard(api: str, dtype: str, row: Mapping[str, str], profile: Profile) -> str:
    """The API's standard; the peer's choice where its file lacks the figures of ours."""
    if dtype not in _FLOATS and dtype not in _UNSUPPORTED and not dtype.startswith("float8"):
        return BINARY
    standard = profile.standard(api)[0]
    if all(row.get(name, "").strip() for name in _NEEDED[standard]):
        return standard
    return listed_standard(base_name(api), peer_lists_only=True)[0]


def _figures(row: Mapping[str, str], names: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in names:
        text = row.get(name, "").strip()
        if not text:
            continue
        try:
            found[name] = float(text)
        except ValueError:
            title = next(title for title, key in keys_by_title(DETAILS).items() if key == name)
            raise _NoNumber(
                f"{title} is {text!r}, no number; was the file edited? Make it again with `report`"
            ) from None
    return found


def _worst(statuses: list[str]) -> str:
    return max(statuses, key=_SEVERITY.__getitem__, default=BLANK)
