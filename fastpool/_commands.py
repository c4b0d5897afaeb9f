"""The ``fastpool`` command line. A new one is a function here, under ``@fastpool.command()``."""

from __future__ import annotations

import json
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from . import __version__, plans
from .errors import FastpoolError
from .options import options, runtime

WIDTH = 100


class _Group(click.Group):
    """Errors of the library are told in a line: they say what is wrong and what to do."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FastpoolError as error:
            raise click.ClickException(str(error)) from error


def _console() -> Console:
    """Made for each command, so that it writes to what is standard output by then."""
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return console


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fastpool", message="%(prog)s %(version)s")
def fastpool() -> None:
    """Pooling of N-D NumPy arrays: try it on a scan, explain a call, and see what this installation runs on."""


@fastpool.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False), required=False)
@click.option("--threads", type=int, metavar="N", help="Threads of every call; -1 is every core.")
@click.option("--volumes", type=click.IntRange(min=2), metavar="N", help="Take only the first N volumes.")
def demo(file: str | None, threads: int | None, volumes: int | None) -> None:
    """Pool a 4-D functional MRI series over (T, H, W), and compare with NumPy.

    FILE is a NIfTI series (.nii or .nii.gz); without it, the two that nibabel ships are taken. Prints where
    the maxima sit, time and memory beside plain NumPy, and every comparison. The last line is OK, and the
    exit status 0, only if every comparison was made and held.
    """
    from . import _demo

    console = _console()
    failures: list[str] = []
    with options(num_threads=threads):
        for series in _demo.load(file, volumes):
            failures += _demo.run(series, console)
    if failures:
        console.print(f"FAILED: {'; '.join(failures)}", style="bold red", soft_wrap=True)
        raise SystemExit(1)
    console.print("OK", style="bold green")


@fastpool.command()
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def info(as_json: bool) -> None:
    """Show version, instruction sets, threads and caches, and why they are what they are."""
    data = runtime()
    if as_json:
        click.echo(json.dumps(data, indent=2))
        return
    isa, openmp = data["isa"], data["openmp"]
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    table.add_row("fastpool", data["version"])
    table.add_row("Python", data["python"])
    table.add_row("instruction set", f"{isa['active']}: {_why_isa(isa)}")
    table.add_row("  built", ", ".join(isa["built"]))
    table.add_row("  runnable here", ", ".join(isa["runnable"]))
    table.add_row("threads", f"{data['threads']['default']}: {_why_threads(data)}")
    table.add_row("OpenMP", _openmp(openmp))
    for name, size in data["caches"].items():
        table.add_row(f"{name.upper()} cache", f"{size // 1024:,} KiB")
    tile = data["FASTPOOL_TILE_BYTES"]
    table.add_row("tile size", f"FASTPOOL_TILE_BYTES={tile}" if tile else "by the L2 cache")
    _console().print(table)


class _Numbers(click.ParamType[Any]):
    """``2,3`` as a tuple, and one number as an int."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        entries = value.split(",")
        try:
            numbers = tuple(self.entry(entry) for entry in entries)
        except ValueError:
            self.fail(f"{value!r} is not {self.wanted}", param, ctx)
        return numbers if len(numbers) > 1 else numbers[0]

    wanted = "a number, or numbers separated by commas"

    def entry(self, text: str) -> Any:
        return int(text)


class _Padding(_Numbers):
    """As numbers, or ``before:after`` for each, or a word."""

    name = "padding"
    wanted = "a number, or numbers or before:after pairs separated by commas, or valid, same or same_lower"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in ("valid", "same", "same_lower"):
            return value
        padding = super().convert(value, param, ctx)
        return (padding,) if isinstance(padding, tuple) and ":" in value and "," not in value else padding

    def entry(self, text: str) -> Any:
        before, colon, after = text.partition(":")
        return (int(before), int(after)) if colon else int(before)


@fastpool.command()
@click.option("--shape", type=_Numbers(), required=True, help="Shape of the input, as 1,1,225,225.")
@click.option("--kernel", type=_Numbers(), required=True, help="Taps of the window along each pooled axis, as 2,2.")
@click.option("--stride", type=_Numbers(), help="Of the windows; the kernel size by default.")
@click.option("--padding", type=_Padding(), default="0", help="As 1, or 0,1, or 0:1,2:2, or same; negative crops.")
@click.option("--dilation", type=_Numbers(), default="1", help="Distance between the taps of a window.")
@click.option("--ceil-mode", is_flag=True, help="Let the last window hang over the end.")
@click.option("--axes", type=_Numbers(), help="The pooled axes, as 1,2; the last ones by default.")
@click.option("--dtype", default="float32", help="Of the input.", show_default=True)
@click.option("--indices", is_flag=True, help="With the indices of the maxima.")
@click.option("--threads", type=int, metavar="N", help="Threads of the call; -1 is every core.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option("--plot", type=click.Path(dir_okay=False), metavar="FILE", help="Draw it, to a .svg or .png file.")
def explain(
    shape: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    axes: Any,
    dtype: str,
    indices: bool,
    threads: int | None,
    as_json: bool,
    plot: str | None,
) -> None:
    """Explain the size of a pooling's result: every window's taps, padding, untouched elements, memory.

    For example: fastpool explain --shape 1,1,225,225 --kernel 2,2 --stride 2,2 --plot out.svg
    """
    plan = plans.explain(
        shape,
        (kernel,) if isinstance(kernel, int) and axes is None else kernel,
        stride,
        padding,
        dilation,
        ceil_mode=ceil_mode,
        axes=axes,
        dtype=dtype,
        return_indices=indices,
        num_threads=threads,
    )
    if plot is not None:
        try:
            plan.plot(plot)
        except (OSError, ModuleNotFoundError) as error:
            raise click.ClickException(str(error)) from error
    click.echo(json.dumps(plan.to_dict(), indent=2) if as_json else str(plan))


def _why_isa(isa: dict[str, Any]) -> str:
    requested = isa["FASTPOOL_ISA"]
    if requested and requested.strip().lower() != "auto":
        return f"FASTPOOL_ISA={requested} asks for it"
    return "the highest level that is built and that this machine runs"


def _why_threads(data: dict[str, Any]) -> str:
    threads = data["threads"]
    if threads["serial_after_fork"]:
        return "this process was forked after its parent had used several"
    if threads["set_num_threads"] is not None:
        return "set by set_num_threads"
    if not data["openmp"]["compiled"]:
        return "built without OpenMP"
    quota, variable = threads["cgroup_quota"], threads["OMP_NUM_THREADS"]
    return (
        f"the smallest of CPU affinity ({threads['affinity']}), container quota ({quota or 'none'}) and what "
        f"OpenMP answers ({threads['openmp_max']}; OMP_NUM_THREADS is {variable or 'not set'})"
    )


def _openmp(openmp: dict[str, Any]) -> str:
    if not openmp["compiled"]:
        return "not compiled in: every call runs on one thread"
    return openmp["runtime"] or "compiled in; the library's path is not known"
