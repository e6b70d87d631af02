"""The command line: parse, call, print. Everything heavy is imported inside the commands, so that `--help` is quick."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

OK, FAILED, USAGE, ENVIRONMENT, NOTHING = 0, 1, 2, 3, 5


class _Numbers(click.ParamType[tuple[int, ...]]):
    """`0,1,4-7` as a tuple of ranks or steps."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        numbers: list[int] = []
        for part in str(value).split(","):
            first, dash, last = part.strip().partition("-")
            if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
                self.fail(f"{value!r} is no list of {self.name}; write numbers and ranges, such as 0,1,4-7", param, ctx)
            numbers += range(int(first), int(last or first) + 1)
        return tuple(dict.fromkeys(numbers))


class _Names(click.ParamType[tuple[str, ...]]):
    """`conv1d,conv2d` as a tuple of names."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(name.strip() for name in str(value).split(",") if name.strip())


class _Group(click.Group):
    """Turns the errors of spool-check into one message and the exit code of their kind."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
            ctx.exit(130)
        except BrokenPipeError:
            # The reader of our standard output has gone (`| head`); there is nobody to tell.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(OK)
        except Exception as error:
            code = getattr(error, "exit_code", None)
            if not isinstance(code, int):
                raise
            click.echo(f"error: {error}", err=True)
            ctx.exit(code)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="spool-check", prog_name="spool-check")
def main() -> None:
    """Find the PyTorch call that an untrusted accelerator computes wrongly, while the training runs.

    Exit codes: 0 all passed, 1 some failed, 2 usage or configuration, 3 environment or spool, 5 nothing was checked.
    """


def _judging_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that `watch`, `reprocess` and `run-ut` share."""
    options = [
        click.option(
            "--out",
            "-o",
            type=click.Path(path_type=Path),
            help="Results folder.  [default: spool-check-results]",
        ),
        click.option("--device", help="auto, cpu, cuda, cuda:1, npu, …  [default: auto]"),
        click.option("--workers", type=click.IntRange(min=0), help="Worker processes; 0 judges in this process."),
        click.option("--rank", "ranks", type=_Numbers("ranks"), help="Only these ranks, such as 0,1,4-7."),
        click.option(
            "--profile", help="Limits: default, msprobe-8.3, cann, or a file of your own.  [default: default]"
        ),
        click.option("--white-list", type=_Names(), help="Judge only these APIs, such as conv1d,conv2d."),
        click.option("--black-list", type=_Names(), help="Do not judge these APIs."),
        click.option("--known", type=click.Path(path_type=Path), help="A list of known differences (JSON)."),
        click.option("--save-errors", type=click.Path(path_type=Path), help="Keep failing bundles in this folder."),
        click.option(
            "--columns", type=click.Choice(["zh", "en"]), help="Column names of the CSV files.  [default: zh]"
        ),
        click.option("--tf32", is_flag=True, default=None, help="Let the reference device use TF32."),
        click.option(
            "--repeat", is_flag=True, default=None, help="Run each reference twice, to see whether it is stable."
        ),
        click.option(
            "--import", "imports", multiple=True, default=None, help="A module that registers fused operators."
        ),
        click.option("--call-timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds for one call."),
        click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON lines, last a summary."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _selecting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that pick calls of a batch or a report, beside `--rank`."""
    step = click.option("--step", "steps", type=_Numbers("steps"), help="Only these steps, such as 0,1,4-7.")
    api = click.option("--api", "apis", type=_Names(), help="Only these APIs, such as mul,Functional.linear.")
    dtype = click.option("--dtype", "dtypes", type=_Names(), help="Only calls with a tensor of these types.")
    return step(api(dtype(command)))


def _lan_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a reader that listens on a socket."""
    tls = click.option("--tls-path", help="Folder with server.key, server.crt, ca.crt; '' for plain TCP.  [default: .]")
    landing = click.option("--spool-dir", type=click.Path(path_type=Path), help="Where bundles from a socket land.")
    return tls(landing(command))


def _given(**values: Any) -> dict[str, Any]:
    """Only the options that were given; the rest keeps the library's defaults."""
    return {name: value for name, value in values.items() if value is not None and value != ()}


def _print_json(item: Any) -> None:
    click.echo(json.dumps(item, ensure_ascii=False, allow_nan=False))


def _run(judge: Callable[..., Any], url: str, as_json: bool, /, **options: Any) -> int:
    """Run `watch` or `reprocess` with a view that fits the output; returns the exit code."""
    from spool import SpoolOptions
    from spool_reader.events import Event, Finished, RowWritten
    from spool_reader.interrupts import stop_requests
    from spool_reader.listening import place_to_watch
    from spool_reader.terminal import TerminalView

    view = TerminalView(sys.stderr, results=sys.stderr if as_json else sys.stdout)

    def on_event(event: Event) -> None:
        if as_json and isinstance(event, RowWritten):
            click.echo(event.line.rstrip(b"\n"))
        view(event)
        if as_json and isinstance(event, Finished):
            _print_json({"v": 1, "summary": event.summary.to_json()})

    def say(text: str) -> None:
        click.echo(text, err=True)

    options.setdefault("out", Path("spool-check-results"))
    lan = {name: options.pop(name, None) for name in ("spool_dir", "tls_path")}
    with (
        stop_requests(say) as (stop, abort),
        place_to_watch(url, **lan, options=options.get("spool") or SpoolOptions(), say=say) as place,
    ):
        summary = judge(place, on_event=on_event, stop=stop, abort=abort, **options)
    return int(summary.exit_code)


@main.command()
@click.argument("spool")
@_judging_options
@click.option("--follow", is_flag=True, help="Keep on when every session has ended.")
@click.option("--stale-after", type=click.FloatRange(min=0, min_open=True), help="Seconds without a sign of life.")
@_lan_options
@click.pass_context
def watch(ctx: click.Context, /, spool: str, as_json: bool, **options: Any) -> None:
    """Judge bundles as they land in SPOOL, a directory or tcp://HOST:PORT to listen on.

    Ends when every session is closed and the spool is empty.
    """
    from spool_reader.watch import watch as run

    ctx.exit(_run(run, spool, as_json, **_given(**options)))


@main.command()
@click.argument("spool")
@_judging_options
@_selecting_options
@click.option("--engine", type=click.Choice(["local", "ray"]), help="Where to judge.  [default: local]")
@click.option("--address", help="Ray cluster: auto, HOST:PORT or ray://HOST:PORT.  [default: auto]")
@click.option("--retry-failed", is_flag=True, help="Take quarantined bundles again.")
@click.option("--dry-run", is_flag=True, help="Only say what would be judged.")
@click.pass_context
def reprocess(ctx: click.Context, /, spool: str, as_json: bool, dry_run: bool, **options: Any) -> None:
    """Judge what is left in SPOOL, once; what the options leave out stays there.

    SPOOL may also be a folder of saved failures (`--save-errors`), which keeps them.
    """
    from spool_reader.watch import reprocess as run

    if dry_run:
        from spool_reader.plan import plan, plan_lines
        from spool_reader.selection import Selection

        found = plan(
            spool, Selection(**_given(**{name: options[name] for name in ("ranks", "steps", "apis", "dtypes")}))
        )
        if as_json:
            _print_json(found.to_json())
        else:
            click.echo("\n".join(plan_lines(found)))
        ctx.exit(OK if found.selected else NOTHING)
    ctx.exit(_run(run, spool, as_json, **_given(**options)))


@main.command("import")
@click.argument("dump", type=click.Path(path_type=Path))
@click.argument("spool")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def import_(ctx: click.Context, /, dump: Path, spool: str, as_json: bool) -> None:
    """Make bundles in SPOOL of an offline tensor dump of msprobe (level L1), for `reprocess` to judge."""
    from spool_reader.import_dump import import_dump, import_lines

    done = import_dump(dump, spool, say=lambda text: click.echo(text, err=True))
    if as_json:
        _print_json(done.to_json())
    else:
        click.echo("\n".join(import_lines(done)))
    ctx.exit(done.exit_code)


@main.command("run-ut")
@click.option("-config", "--config", "config", required=True, type=click.Path(path_type=Path), help="config.json")
@_judging_options
@_lan_options
@click.pass_context
def run_ut(ctx: click.Context, /, config: Path, as_json: bool, **options: Any) -> None:
    """Watch or listen as the judging side's config.json says; options given here win over the file."""
    from spool_reader.config import read_config
    from spool_reader.watch import watch as run

    settings = read_config(config)
    ctx.exit(_run(run, settings.url, as_json, await_session=True, **{**settings.keywords(), **_given(**options)}))


@main.command()
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, npu, …")
@click.option("--profile", default="default", show_default=True, help="default, msprobe-8.3, cann, or a file.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON lines.")
@click.pass_context
def replay(ctx: click.Context, /, bundles: tuple[Path, ...], device: str, profile: str, as_json: bool) -> None:
    """Judge these BUNDLES in full detail; nothing is deleted."""
    from spool_reader.explain import row_lines
    from spool_reader.inspection import replay_files
    from spool_reader.judging import JudgeOptions

    verdicts = []
    for row in replay_files(bundles, device=device, options=JudgeOptions(profile=profile)):
        verdicts.append(row["verdict"])
        if as_json:
            _print_json(row)
        else:
            click.echo("\n".join(row_lines(row)))
    ctx.exit(FAILED if "error" in verdicts else NOTHING if set(verdicts) == {"skip"} else OK)


@main.command()
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def inspect(bundles: tuple[Path, ...], as_json: bool) -> None:
    """Show what these BUNDLES hold, without running anything."""
    from spool_reader.explain import bundle_lines
    from spool_reader.inspection import inspect_file

    for path in bundles:
        found = inspect_file(path)
        if as_json:
            _print_json(found)
        else:
            click.echo("\n".join(bundle_lines(found)))


@main.command()
@click.argument("spool")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(spool: str, as_json: bool) -> None:
    """Say what is in SPOOL: ready, claimed, in quarantine, sessions."""
    from spool_reader.inspection import status as look

    _show_status(look(spool), as_json)


def _show_status(found: dict[str, Any], as_json: bool) -> None:
    from spool_reader.explain import status_lines

    if as_json:
        _print_json(found)
    else:
        click.echo("\n".join(status_lines(found)))


@main.command()
@click.argument("spool")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--stale-after", type=click.FloatRange(min=0, min_open=True), help="Seconds without a sign of life.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def purge(spool: str, dry_run: bool, stale_after: float | None, as_json: bool) -> None:
    """Put right what dead processes have left in SPOOL: claims, half-written files, sessions. Deletes no bundle."""
    from dataclasses import asdict

    from spool import purge as put_right
    from spool_reader.explain import purge_lines

    done = put_right(spool, dry_run=dry_run, **_given(stale_after=stale_after))
    if as_json:
        _print_json(asdict(done))
    else:
        click.echo("\n".join(purge_lines(done)))


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--days", type=click.IntRange(1, 3650), default=180, show_default=True, help="How long they are valid.")
@click.option("--encrypt", is_flag=True, help="Encrypt the keys; the passphrase is asked for.")
@click.option("--force", is_flag=True, help="Overwrite what is there.")
def certs(folder: Path, days: int, encrypt: bool, force: bool) -> None:
    """Make a CA, a server and a client certificate in FOLDER, for trials of LAN mode with TLS."""
    from spool.lan.certs import make_certificates

    passphrase = click.prompt("Passphrase", hide_input=True, confirmation_prompt=True) if encrypt else None
    for path in make_certificates(folder, days=days, passphrase=passphrase, force=force):
        click.echo(str(path))


@main.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--format",
    "kind",
    type=click.Choice(["text", "csv", "html", "json", "junit"]),
    default="text",
    show_default=True,
    help="What to make.",
)
@click.option("--html", "kind", flag_value="html", help="The same as --format html.")
@click.option("--columns", type=click.Choice(["zh", "en"]), default="zh", show_default=True, help="Column names.")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="Folder for files.  [default: the results folder]")
@click.option(
    "--against",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Results of an earlier run: say what got worse, better, is new or gone.",
)
@click.option("--rank", "ranks", type=_Numbers("ranks"), help="Only these ranks, such as 0,1,4-7.")
@_selecting_options
@click.option("--stats", is_flag=True, help="Say also where the time of judging went.")
@click.pass_context
def report(
    ctx: click.Context,
    /,
    results: tuple[Path, ...],
    kind: str,
    columns: str,
    out: Path | None,
    against: tuple[Path, ...],
    stats: bool,
    **selected: Any,
) -> None:
    """Sum up RESULTS folders of any number of hosts and ranks as one.

    As text or JSON here, as CSV files, as one HTML page (report.html) or as JUnit XML (junit.xml) in a folder.
    """
    from spool_reader.accounts import load_accounts
    from spool_reader.against import compare_runs
    from spool_reader.merging import Merged
    from spool_reader.report import csv_files, exit_code, html_file, junit_file
    from spool_reader.selection import Selection
    from spool_reader.summary import summarise, summary_line
    from spool_reader.terminal import summary_lines
    from spool_reader.time_spent import time_lines

    if against and (stats or kind not in ("text", "json")):
        raise click.UsageError(
            f"--against compares two runs as text or json; leave out {'--stats' if stats else f'--format {kind}'}"
        )
    selection = Selection(**_given(**selected))
    merged, before = Merged(results, selection), Merged(against, selection)
    if against:
        found = compare_runs(merged, before)
        click.echo(found.to_line() if kind == "json" else "\n".join(found.lines()))
        code = found.exit_code
    else:
        summary = summarise(merged.rows())
        summary.sessions = load_accounts(results)
        code = summary.exit_code
        if kind == "csv":
            summary.reports = [str(path) for path in csv_files(merged, out, columns)]
        elif kind in ("html", "junit"):
            summary.reports = [str((html_file if kind == "html" else junit_file)(merged, out, summary))]
        if kind == "json":
            _print_json(summary_line(summary))
        else:
            timed = time_lines(merged.rows()) if stats else []
            click.echo("\n".join([*timed, *summary_lines(summary)]))
    for note in (*merged.notes, *before.notes):
        click.echo(note, err=True)
    problems = (*merged.problems, *before.problems)
    for problem in problems:
        click.echo(f"error: {problem}", err=True)
    ctx.exit(exit_code(code, problems))


@main.command()
@click.argument("api", required=False)
@click.option("--profile", default="default", show_default=True, help="default, msprobe-8.3, cann, or a file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def standards(api: str | None, profile: str, as_json: bool) -> None:
    """Say which standard judges API (mul, Tensor.mul.3, npu_rms_norm, …), with which limits, and from where."""
    from spool_reader.standards import standards as look
    from spool_reader.standards import standards_lines

    found = look(api, profile)
    if as_json:
        for entry in found:
            _print_json(entry)
    else:
        click.echo("\n".join(standards_lines(found)))


@main.command()
@click.argument("npu_csv", type=click.Path(path_type=Path))
@click.argument("gpu_csv", type=click.Path(path_type=Path))
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), default=Path(), help="Folder for the two files.  [default: .]"
)
@click.option("--profile", default="default", show_default=True, help="default, msprobe-8.3, cann, or a file.")
@click.option("--columns", type=click.Choice(["zh", "en"]), default="zh", show_default=True, help="Column names.")
@click.pass_context
def compare(ctx: click.Context, /, npu_csv: Path, gpu_csv: Path, out: Path, profile: str, columns: str) -> None:
    """Give the three-way verdict from two accuracy_checking_details files, ours or the peer's."""
    from spool_reader.compare import compare_csv

    found = compare_csv(npu_csv, gpu_csv, out, profile=profile, columns=columns)
    click.echo(str(found))
    for path in found.paths:
        click.echo(f"report: {path}")
    ctx.exit(found.exit_code)


@main.command()
@click.argument("spool", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
@click.pass_context
def doctor(ctx: click.Context, /, spool: Path | None, as_json: bool) -> None:
    """Check this host and, with SPOOL, that directory: mount, rename, claims, events, clock, space, permissions.

    Exit code 3 when something would not work. The directory is left as it was.
    """
    from spool_reader.doctor import diagnose, finding_lines

    found = list(diagnose(spool))
    if as_json:
        for finding in found:
            _print_json(finding.to_json())
    else:
        click.echo("\n".join(finding_lines(found)))
    ctx.exit(ENVIRONMENT if any(finding.state == "fail" for finding in found) else OK)


@main.command()
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), help="Where to work; default is a new temporary folder."
)
@click.option(
    "--fault",
    type=click.Choice(["layer_norm", "gelu", "softmax", "none"]),
    default="layer_norm",
    show_default=True,
    help="The operator that is wrong.",
)
@click.option("--steps", type=click.IntRange(1, 1000), default=3, show_default=True, help="Training steps.")
@click.pass_context
def demo(ctx: click.Context, /, folder: Path | None, fault: str, steps: int) -> None:
    """Run the whole thing here: train on a simulated device with a planted fault, watch, and name the fault."""
    import tempfile

    from spool_reader.demo import outcome_lines, run_demo
    from spool_reader.terminal import TerminalView

    folder = folder or Path(tempfile.mkdtemp(prefix="spool-check-demo-"))
    view = TerminalView(sys.stderr, results=sys.stdout)
    outcome = run_demo(folder, fault=fault, steps=steps, on_event=view)
    click.echo("\n".join(outcome_lines(outcome)))
    ctx.exit(OK if outcome else FAILED)
