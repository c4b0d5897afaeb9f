"""What a call did, with `debug_mode`: its arrays, its plan, and time and bytes of each of its steps.

A call carries a `Record` in its settings and tells it where a step ends. Without `debug_mode` that is `OFF`, whose
methods do nothing, so that a function says the same lines either way::

    settings = resolve(options, "max_pool")
    x = as_input("x", x, settings)  # records x and the guard step
    plan, threads = ...
    settings.record.planned(pool_run, plan, threads)
    values = empty(shape, dtype)
    settings.record.step("write", values)
    plan.compiled.run(...)
    settings.record.step("kernel")
    return settings.record.done(values)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy.typing as npt

from . import _dispatch

if TYPE_CHECKING:
    from ._plan import ConvPlan, PoolPlan

__all__ = ["OFF", "Record", "Recording", "Report", "Run", "conv_run", "debug_by_default", "last_report", "pool_run"]

Array = npt.NDArray[Any]
Plan = TypeVar("Plan")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ArrayReport:
    """An input or a result. `copied`: fastpool made a copy of the input, or an array of a list."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    copied: bool


@dataclass(frozen=True, slots=True)
class Run:
    """The plan of one kernel run.

    `tile` is how many outputs a work unit computes along each axis that the kernel sees, `passes` how often it goes
    over each of them, `units` the number of work units, and `workspace` bytes per thread. A convolution tells its
    `algorithm`; its passes are the taps along each axis, of which the first is the batch.
    """

    threads: int
    units: int
    tile: tuple[int, ...]
    passes: tuple[int, ...]
    workspace: int
    algorithm: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """Time that a step took, and bytes that fastpool allocated in it."""

    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class StepsReport:
    """The steps of a call: checking inputs, planning, running kernels, and making or checking what they write to."""

    guard: Step
    plan: Step
    kernel: Step
    write: Step


@dataclass(frozen=True, slots=True)
class Report:
    """What a call did under ``debug_mode``; ``str()`` is the table that was printed.

    Attributes
    ----------
    function : str
        Name of the public function.
    isa : str
        Instruction-set level of the kernels.
    inputs, outputs : tuple of ArrayReport
        `name`, `shape`, `dtype`, and whether the input was `copied`.
    runs : tuple of Run
        The plan of every kernel run: `threads`, `units`, `tile`, `passes`, and bytes of `workspace` per thread. One
        for most calls, none for an empty result, several where a global reduction is cut into stages.
    steps : StepsReport
        `guard`, `plan`, `kernel` and `write`, each with its `seconds` and the `bytes` allocated: copies of inputs, what
        planning keeps for the kernel, workspace of all threads, and results. Not counted are results written to
        ``out=``, and what NumPy takes inside one of its functions.
    """

    function: str
    isa: str
    inputs: tuple[ArrayReport, ...]
    outputs: tuple[ArrayReport, ...]
    runs: tuple[Run, ...]
    steps: StepsReport

    def to_dict(self) -> dict[str, Any]:
        """The report as dicts, tuples, strings and numbers."""
        return asdict(self)

    def __str__(self) -> str:
        arrays = [("in", array) for array in self.inputs] + [("out", array) for array in self.outputs]
        steps = [(name, getattr(self.steps, name)) for name in _STEPS]
        total = Step(sum(step.seconds for _, step in steps), sum(step.bytes for _, step in steps))
        return "\n".join(
            [
                f"fastpool.{self.function} ({self.isa})",
                *(f"  {way:<4} {a.name} {a.dtype} {a.shape}{', copied' if a.copied else ''}" for way, a in arrays),
                *(
                    f"  run  {_count(run.threads, 'thread')}, {_count(run.units, 'unit')}, tile {run.tile}, "
                    f"passes {run.passes}, workspace {run.workspace:,} bytes per thread"
                    f"{'' if run.algorithm is None else f', {run.algorithm}'}"
                    for run in self.runs
                ),
                f"  {'step':<6} {'ms':>12} {'bytes':>16}",
                *(f"  {name:<6} {s.seconds * 1e3:>12,.3f} {s.bytes:>16,}" for name, s in (*steps, ("total", total))),
            ]
        )


StepName = Literal["guard", "plan", "kernel", "write"]

_STEPS: tuple[StepName, ...] = ("guard", "plan", "kernel", "write")
_last: ContextVar[Report | None] = ContextVar("fastpool_last_report", default=None)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def last_report() -> Report | None:
    """What the last call under `debug_mode` did, in this thread and this async task.

    Returns
    -------
    Report or None
        Its arrays, its plan, and time and bytes of its steps; ``to_dict()`` gives them as plain data. None before any
        such call. A call that raises leaves the report of the one before.

    Examples
    --------
    >>> import numpy as np, fastpool as fp
    >>> y = fp.max_pool(np.zeros((4, 6), np.float32), (2, 2), debug_mode=True)
    >>> report = fp.last_report()
    >>> report.function, report.outputs[0].shape, report.steps.write.bytes
    ('max_pool', (2, 3), 24)
    """
    return _last.get()


def debug_by_default() -> bool:
    """What FASTPOOL_DEBUG asks for."""
    text = os.environ.get("FASTPOOL_DEBUG") or "0"
    if text not in ("0", "1"):
        raise ImportError(f"FASTPOOL_DEBUG={text!r} is neither 0 nor 1")
    return text == "1"


class Record:
    """Where a call says what it does. This one does not listen; `Recording` does."""

    __slots__ = ()

    # Without *arguments, for which each call would make a tuple.

    def input(self, name: str, array: Array, copied: bool, bytes_: int) -> None:
        """An input is checked, which ends a part of the guard step; `bytes_` were allocated for it."""

    def step(self, name: StepName, made: Array | None = None, made_too: Array | None = None) -> None:
        """A step ends, or a part of it, in which these arrays were allocated."""

    def planned(self, describe: Callable[[Plan, int], Run | None], plan: Plan, threads: int) -> None:
        """The plan step ends; the next kernel run is ``describe(plan, threads)``, asked for only to be recorded."""

    def done(self, result: Result) -> Result:
        """The call is over and returns `result`; what it did since the last step was to write."""
        return result


OFF = Record()


class Recording(Record):
    """A record that is kept: the time since a step ended belongs to the one that ends next."""

    __slots__ = ("_bytes", "_function", "_inputs", "_ns", "_runs", "_since")

    def __init__(self, function: str) -> None:
        self._function = function
        self._inputs: list[ArrayReport] = []
        self._runs: list[Run] = []
        self._ns = dict.fromkeys(_STEPS, 0)
        self._bytes = dict.fromkeys(_STEPS, 0)
        self._since = perf_counter_ns()

    def _end(self, step: StepName, bytes_: int) -> None:
        now = perf_counter_ns()
        self._ns[step] += now - self._since
        self._bytes[step] += bytes_
        self._since = now

    def input(self, name: str, array: Array, copied: bool, bytes_: int) -> None:
        self._end("guard", bytes_)
        self._inputs.append(_array_report(name, array, copied))
        self._since = perf_counter_ns()

    def step(self, name: StepName, made: Array | None = None, made_too: Array | None = None) -> None:
        self._end(name, sum(array.nbytes for array in (made, made_too) if array is not None))

    def planned(self, describe: Callable[[Plan, int], Run | None], plan: Plan, threads: int) -> None:
        self._end("plan", 0)
        run = describe(plan, threads)
        if run is not None:
            self._runs.append(run)
            self._bytes["kernel"] += run.workspace * run.threads
        self._since = perf_counter_ns()  # what recording takes is nobody's time

    def done(self, result: Result) -> Result:
        self._end("write", 0)
        value: Any = result
        outputs = zip(value._fields, value, strict=True) if hasattr(value, "_fields") else [("result", value)]
        report = Report(
            self._function,
            _dispatch.ISA,
            tuple(self._inputs),
            tuple(_array_report(name, array, False) for name, array in outputs if array is not None),
            tuple(self._runs),
            StepsReport(*(Step(self._ns[name] / 1e9, self._bytes[name]) for name in _STEPS)),
        )
        _last.set(report)
        if sys.stderr is not None:  # as under pythonw
            sys.stderr.write(f"{report}\n")
        return result


def _array_report(name: str, array: Array, copied: bool) -> ArrayReport:
    return ArrayReport(name, array.shape, array.dtype.name, copied)


def pool_run(plan: PoolPlan, threads: int) -> Run | None:
    """The run of a compiled forward plan; an empty result needs none."""
    if plan.compiled is None or plan.spec is None:
        return None
    levels = plan.spec.levels
    return Run(
        min(threads, plan.compiled.units),
        plan.compiled.units,
        tuple(level.tile for level in levels),
        tuple(len(level.passes) for level in levels),
        plan.compiled.workspace_bytes,
    )


def conv_run(plan: ConvPlan | None, threads: int) -> Run | None:
    """The run of a plan of a convolution; an empty result needs none."""
    if plan is None:
        return None
    spec, compiled = plan.spec, plan.compiled
    threads = min(threads, compiled.units)
    return Run(
        threads,
        compiled.units,
        tuple(axis.tile for axis in spec.axes),
        tuple(len({shift[a] for role in spec.roles for shift in role.shifts}) for a in range(len(spec.axes))),
        compiled.workspace_bytes + (0 if spec.gradient else compiled.packed_bytes // threads),
        "direct" if spec.direct else "gemm",
    )
