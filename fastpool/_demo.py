"""What ``fastpool demo`` does: pools a 4-D MRI series, and holds every result to NumPy or to the slow twin.

Maxima are shown with their places, averages of the same windows are compared and timed.

A NIfTI array is (x, y, z, t) with x fastest in memory. Its transpose (t, z, y, x) is therefore C-contiguous
without a copy, and has the rows H = y and columns W = x of each slice last. Pooled are T, H and W; the slices
z are carried along: they are often thicker than the voxels are wide, and have gaps.
"""

from __future__ import annotations

import math
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import nibabel
import numpy as np
import numpy.typing as npt
from nibabel.filebasedimages import ImageFileError
from numpy.lib.stride_tricks import sliding_window_view
from rich import box
from rich.console import Console
from rich.table import Table

import fastpool as fp
from fastpool import testing

Array = npt.NDArray[Any]

AXES = (0, 2, 3)
KERNEL = (2, 3, 3)
STRIDE = (2, 2, 1)
PADDING = (0, 1, 1)

BUNDLED = ("functional.nii", "example4d.nii.gz")
TOP = 5
SECONDS = 0.12  # of timing, for each function
ULPS = 8  # between two averages: 4 are ours at most, and NumPy rounds too
MOST_BYTES = 4 << 30  # what NumPy's way may take


# ---- input


class Series(NamedTuple):
    """A scan: `scan` as the file has it, (x, y, z, t); its transpose is what is pooled."""

    name: str
    scan: Array
    affine: Array

    @property
    def input(self) -> Array:
        return self.scan.T


def load(file: str | None, volumes: int | None) -> Iterator[Series]:
    """The series of a NIfTI file, or those that nibabel ships for its tests."""
    if file is not None:
        yield _read(Path(file), file, volumes)
        return
    folder = Path(nibabel.__file__).parent / "tests" / "data"
    for name in BUNDLED:
        path = folder / name
        if not path.exists():
            raise click.ClickException(f"this installation of nibabel ships no {name}; give a FILE")
        yield _read(path, f"{name} (shipped with nibabel)", volumes)


def _read(path: Path, name: str, volumes: int | None) -> Series:
    try:
        image: Any = nibabel.load(path)
        if len(image.shape) != 4 or image.shape[3] < KERNEL[0]:
            raise click.ClickException(f"{path} has shape {image.shape}; a 4-D series of two volumes or more is needed")
        scan = np.asarray(image.dataobj[..., :volumes])
    except (ImageFileError, OSError, EOFError) as error:
        raise click.ClickException(f"{path} cannot be read: {error}") from error
    if scan.size == 0 or scan.dtype.kind not in "iuf" or scan.itemsize > 8:
        raise click.ClickException(f"{path} holds {scan.dtype} of shape {scan.shape}, which cannot be pooled")
    taps = scan.nbytes * math.prod(KERNEL) // math.prod(STRIDE)
    if taps > MOST_BYTES:
        raise click.ClickException(f"NumPy would need {taps / 2**30:.1f} GiB to compare with; try --volumes")
    # Analyze and NIfTI files of either byte order are common; NumPy's results would keep the order.
    scan = np.asarray(scan, scan.dtype.newbyteorder("="), order="F")
    return Series(name, scan, np.asarray(image.affine))


# ---- two ways to pool


def pool(x: Array, **more: Any) -> fp.Pooled:
    return fp.max_pool(x, KERNEL, STRIDE, PADDING, axes=AXES, return_indices=True, **more)


def average(x: Array, **more: Any) -> Array:
    return fp.avg_pool(x, KERNEL, STRIDE, PADDING, axes=AXES, **more)


def average_backward(grad: Array, shape: tuple[int, ...]) -> Array:
    return fp.avg_pool_backward(grad, shape, KERNEL, STRIDE, PADDING, axes=AXES)


def numpy_windows(x: Array, fill: Any) -> Array:
    """Every window of a (t, z, y, x) array, its taps along the last three axes; `fill` is what padding holds."""
    pads = [(0, 0)] * x.ndim
    for axis, pad in zip(AXES, PADDING, strict=True):
        pads[axis] = (pad, pad)
    windows = sliding_window_view(np.pad(x, pads, constant_values=fill), KERNEL, axis=AXES)
    return windows[:: STRIDE[0], :, :: STRIDE[1], :: STRIDE[2]]


def lowest(x: Array) -> Any:
    return -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min


def numpy_max(x: Array) -> Array:
    return np.asarray(numpy_windows(x, lowest(x)).max(axis=(-3, -2, -1)))


def numpy_average(x: Array) -> Array:
    """Averages with padding counted, in float64."""
    return np.asarray(numpy_windows(x, 0).mean(axis=(-3, -2, -1), dtype=np.float64))


def numpy_pool(x: Array) -> fp.Pooled:
    """Maxima and their global flat indices, as one writes it in NumPy."""
    windows = numpy_windows(x, lowest(x))
    taps = windows.reshape(*windows.shape[:4], -1).argmax(axis=-1)
    position = list(np.indices(taps.shape, sparse=True))
    places = zip(AXES, np.unravel_index(taps, KERNEL), STRIDE, PADDING, strict=True)
    for axis, tap, stride, pad in places:
        # Padding is chosen only where every tap is the lowest value; the first real tap is then the answer.
        position[axis] = np.maximum(position[axis] * stride - pad + tap, 0)
    indices = np.ravel_multi_index(np.broadcast_arrays(*position), x.shape)
    return fp.Pooled(x.ravel()[indices], indices)


# ---- comparisons


def same_bits(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def comparisons(series: Series, pooled: fp.Pooled) -> dict[str, Callable[[], bool]]:
    """Every comparison by its name. Each answers whether it held; an error is a no."""
    x, (values, indices) = series.input, pooled
    t, z, h, w = (min(n, most) for n, most in zip(x.shape, (4, 2, 8, 8), strict=True))
    y0, x0 = (x.shape[2] - h) // 2, (x.shape[3] - w) // 2
    crop = x[:t, :z, y0 : y0 + h, x0 : x0 + w]
    # Differences need distinct values: the crop's ranks keep its order, and break its ties.
    ranks = crop.ravel().argsort(kind="stable").argsort().reshape(crop.shape).astype(np.float64)

    def numpy_values() -> bool:
        by_argmax = same_bits(values, numpy_pool(x).values)
        return by_argmax and np.array_equal(values, numpy_max(x), equal_nan=True)

    def numpy_indices() -> bool:
        return same_bits(indices, numpy_pool(x).indices)

    def voxels() -> bool:
        places = np.unravel_index(indices, x.shape)
        return same_bits(x.ravel()[indices], values) and same_bits(series.scan[places[::-1]], values)

    def slow_twin() -> bool:
        twin = testing.max_pool(crop, KERNEL, STRIDE, PADDING, axes=AXES, return_indices=True)
        return all(same_bits(fast, slow) for fast, slow in zip(pool(crop), twin, strict=True))

    def untransposed() -> bool:
        as_stored = fp.max_pool(series.scan, KERNEL, STRIDE, PADDING, axes=(3, 1, 0))
        return np.array_equal(as_stored.T, values, equal_nan=True)

    def threads() -> bool:
        runs = [pool(x, num_threads=n) for n in (1, 2, 3)]
        return all(same_bits(run.values, values) and same_bits(run.indices, indices) for run in runs)

    def backward() -> bool:
        counts = np.zeros(x.size)
        np.add.at(counts, indices.ravel(), 1.0)
        found = fp.max_pool_backward(np.ones(values.shape), indices, x.shape)
        return same_bits(found, counts.reshape(x.shape)) and found.sum() == values.size

    def sparse() -> bool:
        ones = np.ones(values.shape)
        dense = fp.max_pool_backward(ones, indices, x.shape).ravel()
        touched, counts = fp.max_pool_backward(ones, indices, x.shape, sparse=True)
        return same_bits(touched, np.flatnonzero(dense)) and same_bits(counts, dense[touched])

    def differences() -> bool:
        def gradient(grad: Array, a: Array) -> Array:
            return np.asarray(fp.max_pool_backward(grad, pool(a).indices, a.shape))

        return fp.gradcheck(lambda a: pool(a).values, gradient, ranks)

    def unpool() -> bool:
        expected = np.zeros(x.size, x.dtype)
        expected[indices.ravel()] = values.ravel()
        restored = fp.max_unpool(values, indices, x.shape)
        back = fp.max_unpool_backward(restored, indices)
        return same_bits(restored, expected.reshape(x.shape)) and same_bits(back, values)

    def averages() -> bool:
        found, expected = average(x), numpy_average(x)
        if found.dtype != (x.dtype if x.dtype.kind == "f" else np.float64) or found.shape != expected.shape:
            return False
        with np.errstate(all="ignore"):  # a scan may hold NaN and infinity
            apart = np.abs(found - expected)
            allowed = ULPS * np.spacing(numpy_average(np.abs(x.astype(np.float64))).astype(found.dtype))
            near = (found == expected) | (apart <= allowed) | (np.isnan(found) & np.isnan(expected))
        twin = testing.avg_pool(crop, KERNEL, STRIDE, PADDING, axes=AXES)
        exact = x.dtype.kind == "f" or same_bits(average(crop), twin)
        return bool(near.all()) and exact

    def transposed() -> bool:
        scan = np.nan_to_num(x.astype(np.float64), posinf=0.0, neginf=0.0)
        pooled = average(scan)
        grad = np.arange(pooled.size).reshape(pooled.shape) % 7 - 3.0
        there, back = pooled * grad, scan * average_backward(grad, scan.shape)
        return bool(abs(there.sum() - back.sum()) <= 1e-12 * np.abs(there).sum())

    return {
        "values are NumPy's, bit for bit": numpy_values,
        "flat indices are NumPy's": numpy_indices,
        "every index leads to its value, in the array and in the file's (x, y, z, t)": voxels,
        f"values and indices are the slow twin's, on a crop {crop.shape}": slow_twin,
        "the file's own layout, pooled with axes=(3, 1, 0), gives the same values": untransposed,
        "1, 2 and 3 threads give the same bits": threads,
        "backward of ones is np.add.at's, bit for bit, and conserves the sum": backward,
        "sparse backward is the dense one": sparse,
        "backward agrees with central differences, on the crop": differences,
        "unpool puts maxima back and zeros elsewhere, and its backward reads them": unpool,
        f"averages are NumPy's, within {ULPS} ulp; of integers exact, on the crop": averages,
        "the backward of averages is their transpose: <avg(x), g> = <x, backward(g)>": transposed,
    }


# ---- time and memory


def milliseconds(function: Callable[[], object]) -> float:
    function()
    times: list[float] = []
    while len(times) < 3 or sum(times) < SECONDS:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def peak_bytes(function: Callable[[], object]) -> int:
    """The most memory that a call has allocated at once: result, copies and workspace, but not its input."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# ---- printing


def run(series: Series, console: Console) -> list[str]:
    """Pool one series, print what there is to see, and return the names of the comparisons that failed."""
    x = series.input
    pooled = pool(x)
    console.rule(series.name, align="left", style="dim")
    console.print(f"max_pool, kernel {KERNEL}, stride {STRIDE}, padding {PADDING} over (T, H, W), axes {AXES}")
    console.print(_arrays(series, pooled))
    failed, table = _compare(series, pooled)
    if not failed:
        # Of results that are wrong, neither the places nor the speed mean anything.
        console.print(_maxima(series, pooled))
        console.print(_cost(x, pooled))
    console.print(table)
    return failed


def _compare(series: Series, pooled: fp.Pooled) -> tuple[list[str], Table]:
    table = Table("comparison", "held", box=box.SIMPLE_HEAD)
    failed = []
    for name, compare in comparisons(series, pooled).items():
        try:
            held, why = compare(), ""
        except (fp.FastpoolError, AssertionError, IndexError, ValueError) as error:
            held, why = False, f": {error}"
        if not held:
            failed.append(f"{series.name}: {name}{why}")
        table.add_row(name, "yes" if held else "NO", style=None if held else "red")
    return failed, table


def _arrays(series: Series, pooled: fp.Pooled) -> Table:
    table = Table("array", "axes", "shape", "dtype", "bytes", "layout", box=box.SIMPLE_HEAD)
    rows = (
        ("as loaded", "(x, y, z, t)", series.scan),
        ("input", "(T, Z, H, W)", series.input),
        ("values", "(T, Z, H, W)", pooled.values),
        ("indices", "(T, Z, H, W)", pooled.indices),
    )
    for name, axes, array in rows:
        layout = "C-contiguous" if array.flags.c_contiguous else "F-contiguous"
        if array is rows[1][2]:
            layout += ", a view"
        table.add_row(name, axes, str(array.shape), str(array.dtype), f"{array.nbytes:,}", layout)
    return table


def _maxima(series: Series, pooled: fp.Pooled) -> Table:
    """The highest of the voxels that are a maximum. Overlapping windows may share one."""
    found, first, windows = np.unique(pooled.indices, return_index=True, return_counts=True)
    x = series.input
    headings = ("value", "windows", "first output", "flat index", "voxel (x, y, z)", "t", "scanner mm")
    table = Table(*headings, box=box.SIMPLE_HEAD)
    for n in np.argsort(-x.ravel()[found].astype(np.float64), kind="stable")[:TOP]:
        index = int(found[n])
        output = tuple(int(i) for i in np.unravel_index(int(first[n]), pooled.values.shape))
        t, *zyx = (int(i) for i in np.unravel_index(index, x.shape))
        voxel = tuple(zyx[::-1])
        mm = series.affine @ (*voxel, 1)
        table.add_row(
            f"{x.ravel()[index]:.8g}",
            str(windows[n]),
            str(output),
            f"{index:,}",
            str(voxel),
            str(t),
            "(" + ", ".join(f"{c:.1f}" for c in mm[:3]) + ")",
        )
    return table


def _cost(x: Array, pooled: fp.Pooled) -> Table:
    ones = np.ones(pooled.values.shape)
    flat = pooled.indices.ravel()

    def add_at() -> None:
        np.add.at(np.zeros(x.size), flat, 1.0)

    rows: tuple[tuple[str, Callable[[], object], Callable[[], object]], ...] = (
        ("values", lambda: fp.max_pool(x, KERNEL, STRIDE, PADDING, axes=AXES), lambda: numpy_max(x)),
        ("values and indices", lambda: pool(x), lambda: numpy_pool(x)),
        ("backward", lambda: fp.max_pool_backward(ones, pooled.indices, x.shape), add_at),
        ("averages", lambda: average(x), lambda: numpy_average(x)),
    )
    headings = ("", "fastpool", "NumPy", "NumPy / fastpool", "peak, fastpool", "peak, NumPy")
    table = Table(*headings, box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, ours, theirs in rows:
        a, b = milliseconds(ours), milliseconds(theirs)
        peaks = (f"{peak_bytes(f):,} B" for f in (ours, theirs))
        table.add_row(name, f"{a:.3f} ms", f"{b:.3f} ms", f"{b / a:.1f}", *peaks)
    return table
