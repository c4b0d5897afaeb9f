"""Window arithmetic in Python integers: tuples, axes, padding, output sizes, canonical form. No arrays.

Every size formula of the package lives here (and, for the compiled plans that check what they are
given, once more in ``_kernels/_window.pxd``; a test sweeps the two against each other).
"""

from __future__ import annotations

import math
import operator
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

from .errors import GeometryError

# Sizes beyond this cannot belong to an array in memory, and would overflow 64-bit arithmetic in the kernels.
LARGEST = 2**62

# Windows that reach further than this, and further than their axis, are listed by their real taps if they are few.
WIDEST = 2**20

Arguments = TypeVarTuple("Arguments")
R = TypeVar("R")


class Window(NamedTuple):
    """The windows along one pooled axis: tap ``j`` of output ``o`` is element ``o*stride + j*dilation - before``.

    Negative padding is turned into `crop` already: `length` is what remains of the axis, `crop` its first element.
    """

    length: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    out: int
    crop: int = 0

    @property
    def extent(self) -> int:
        """Elements from the first tap to the last, both counted."""
        return extent(self.kernel, self.dilation)


class Bounds(NamedTuple):
    """Windows along one axis by where they start and how many taps they have, for windows that no stride describes.

    Output ``o`` is output ``r = (o + phase) % period`` of period ``t = (o + phase) // period``; its taps are elements
    ``starts[r] + t + j*step`` for ``j < counts[r]``, and those that lie outside the axis count nothing. Windows given
    one by one have a single period, `out` long. The arrays are int64, as bytes, so that a plan can be looked up by
    them; with more starts than a period has, every outer index has starts of its own.
    """

    length: int
    out: int
    period: int
    phase: int
    step: int
    starts: bytes
    counts: bytes
    crop: int = 0


def is_plain(arguments: tuple[Any, ...]) -> bool:
    """Whether these are nothing but int, str, None and tuples of them, and so may be the key of a cache.

    Equal keys must mean equal calls, and 2.0 == 2 == 2 + 0j, True == 1.
    """
    for argument in arguments:
        if type(argument) not in _PLAIN and not (type(argument) is tuple and is_plain(argument)):
            return False
    return True


_PLAIN = {int, str, type(None)}


def kept(function: Callable[[*Arguments], R]) -> Callable[[*Arguments], R]:
    """Keep the results for plain arguments, given by position; for others they are computed every time."""
    cached = lru_cache(maxsize=512)(function)

    @wraps(function)
    def call(*arguments: *Arguments) -> R:
        return cached(*arguments) if is_plain(arguments) else function(*arguments)

    return call


class Geometry(NamedTuple):
    """A pooling call in integers: the pooled axes, ascending, with one `Window` (or `Bounds`) each."""

    input_shape: tuple[int, ...]
    axes: tuple[int, ...]
    windows: tuple[Window | Bounds, ...]
    output_shape: tuple[int, ...]

    @classmethod
    def of(cls, input_shape: tuple[int, ...], windows: dict[int, Any]) -> Geometry:
        """Windows by axis."""
        output_shape = tuple(windows[i].out if i in windows else n for i, n in enumerate(input_shape))
        check_size("the output shape", output_shape)
        ascending = tuple(sorted(windows))
        return cls(input_shape, ascending, tuple(windows[axis] for axis in ascending), output_shape)


# ---------------------------------------------------------------------------------------------- integers and tuples


def integer(name: str, value: Any) -> int:
    """`value` as a Python int; floats, strings and booleans are refused rather than rounded."""
    if type(value) is int:
        number = value
    else:
        try:
            if isinstance(value, bool):
                raise TypeError
            number = operator.index(value)
        except TypeError:
            raise GeometryError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}") from None
    if not -LARGEST <= number <= LARGEST:
        digits = str(number) if number.bit_length() <= 256 else f"a number of {number.bit_length()} bits"
        raise GeometryError(f"{name} is {digits}, which no array in memory can reach (the limit is 2**62)")
    return number


def is_integer(value: Any) -> bool:
    """Whether `value` is meant as one number rather than as one per axis."""
    return hasattr(type(value), "__index__") and not _is_sequence(value)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (tuple, list)) or (
        hasattr(value, "__len__")
        and hasattr(value, "__getitem__")
        and not isinstance(value, (str, bytes, dict))
        and getattr(value, "ndim", 1) > 0
    )


def sequence(name: str, value: Any, what: str) -> list[Any]:
    """`value` as a list of its entries, for arguments that hold one entry per axis."""
    if not _is_sequence(value):
        raise GeometryError(f"{name} must be {what}, got {value!r}")
    return list(value)


def _axis_word(count: int) -> str:
    return "1 pooled axis" if count == 1 else f"{count} pooled axes"


def per_axis(name: str, value: Any, count: int, least: int) -> tuple[int, ...]:
    """One int per pooled axis from an int or a sequence, each at least `least`."""
    if is_integer(value):
        numbers = (integer(name, value),) * count
    else:
        entries = sequence(name, value, "an integer or one integer per pooled axis")
        if len(entries) != count:
            raise GeometryError(f"{name}={tuple(entries)!r} has {len(entries)} entries for {_axis_word(count)}")
        numbers = tuple(integer(f"{name}[{i}]", v) for i, v in enumerate(entries))
    for i, number in enumerate(numbers):
        if number < least:
            where = f"{name}[{i}]" if count > 1 else name
            raise GeometryError(f"{where} is {number}; it must be at least {least}")
    return numbers


def shape_tuple(name: str, value: Any) -> tuple[int, ...]:
    """A shape: non-negative integers whose product addresses memory."""
    if is_integer(value):
        value = (value,)
    shape = tuple(integer(f"{name}[{i}]", v) for i, v in enumerate(sequence(name, value, "a tuple of integers")))
    for i, length in enumerate(shape):
        if length < 0:
            raise GeometryError(f"{name}[{i}] is {length}; a length cannot be negative")
    check_size(name, shape)
    return shape


def check_size(name: str, shape: Sequence[int]) -> None:
    """Refuse shapes whose flat indices or bytes would not fit 64 bits."""
    if math.prod(max(length, 1) for length in shape) > LARGEST // 16:
        raise GeometryError(f"{name} {tuple(shape)} has more elements than memory can address")


def normalize_axes(axes: Any, ndim: int, count: int = 0) -> tuple[int, ...]:
    """The pooled axes as non-negative positions, in the order given (``None``: the last `count`)."""
    if axes is None:
        if count > ndim:
            raise GeometryError(
                f"kernel_size has {count} entries but the input has only {ndim} "
                f"{'dimension' if ndim == 1 else 'dimensions'}"
            )
        return tuple(range(ndim - count, ndim))
    entries = [axes] if is_integer(axes) else sequence("axes", axes, "an integer or a tuple of integers")
    if not entries:
        raise GeometryError("axes is empty; name at least one axis to pool")
    result = []
    for i, entry in enumerate(entries):
        axis = integer(f"axes[{i}]", entry)
        if not -ndim <= axis < ndim:
            raise GeometryError(
                f"axes[{i}] is {axis}, but the input has {ndim} dimensions: {-ndim} to {ndim - 1} are allowed"
            )
        result.append(axis % ndim)
    if len(set(result)) != len(result):
        raise GeometryError(f"axes={tuple(entries)!r} names an axis more than once")
    return tuple(result)


def named_or_last_axes(name: str, sizes: Any, axes: Any, ndim: int) -> tuple[tuple[int, ...], list[Any]]:
    """The pooled axes and the entry of `sizes` for each: the last axes, or those named; one number needs names."""
    if is_integer(sizes) or sizes is None:
        if axes is None:
            raise GeometryError(
                f"{name}={sizes!r} does not say how many axes to pool: "
                f"give a tuple with one entry per pooled axis, or name the axes with axes="
            )
        positions = normalize_axes(axes, ndim)
        return positions, [sizes] * len(positions)
    entries = sequence(name, sizes, "a tuple with one entry per pooled axis")
    if not entries:
        raise GeometryError(f"{name} is empty; give one entry per pooled axis")
    if axes is None and len(entries) > ndim:
        raise GeometryError(f"{name} has {len(entries)} entries but the input has only {ndim} dimensions")
    positions = normalize_axes(axes, ndim, len(entries))
    if len(entries) != len(positions):
        raise GeometryError(f"{name}={tuple(entries)!r} has {len(entries)} entries for {_axis_word(len(positions))}")
    return positions, entries


def reduced_axes(shape: tuple[int, ...], axes: Any) -> tuple[int, ...]:
    """The axes of a global pooling, ascending: those named, or all but the first two; none may be empty."""
    if axes is None:
        if len(shape) < 3:
            raise GeometryError(
                f"x has {len(shape)} dimensions; axes=None reduces all but the first two: name the axes with axes="
            )
        reduced = tuple(range(2, len(shape)))
    else:
        reduced = tuple(sorted(normalize_axes(axes, len(shape))))
    for axis in reduced:
        if shape[axis] == 0:
            raise GeometryError(f"axis {axis} has length 0; there is nothing to reduce")
    return reduced


# ---------------------------------------------------------------------------------------------- output sizes, padding


def extent(kernel: int, dilation: int) -> int:
    """Elements from the first tap of a window to its last, both counted."""
    return dilation * (kernel - 1) + 1


def windows_by_formula(
    length: int, kernel: int, stride: int, dilation: int, before: int, after: int, ceil_mode: bool
) -> int:
    """`output_length` before a last window in nothing but padding is left out. Floor division is exact for any sign."""
    room = length + before + after - extent(kernel, dilation)
    return (room + (stride - 1 if ceil_mode else 0)) // stride + 1


def output_length(
    length: int, kernel: int, stride: int, dilation: int, before: int, after: int, ceil_mode: bool
) -> int:
    """Number of windows along an axis; below 1 where not even one fits."""
    out = windows_by_formula(length, kernel, stride, dilation, before, after, ceil_mode)
    if ceil_mode and (out - 1) * stride >= length + before:
        out -= 1  # the last window must start inside the input or its left padding
    return out


def padding_pairs(
    padding: Any,
    lengths: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> tuple[tuple[int, int], ...]:
    """``(before, after)`` per pooled axis from any accepted form of `padding`; negative entries crop."""
    count = len(kernel)
    if isinstance(padding, str):
        if padding == "valid":
            return ((0, 0),) * count
        if padding not in ("same", "same_lower"):
            raise GeometryError(
                f'padding={padding!r} is not known; use an integer, pairs, "valid", "same" or "same_lower"'
            )
        pairs = []
        for length, k, s, d in zip(lengths, kernel, stride, dilation, strict=True):
            windows = -(-length // s)
            total = max((windows - 1) * s + extent(k, d) - length, 0)
            small, large = total // 2, total - total // 2
            pairs.append((small, large) if padding == "same" else (large, small))
        return tuple(pairs)
    if is_integer(padding):
        number = integer("padding", padding)
        return ((number, number),) * count
    entries = sequence(
        "padding", padding, "an integer, one integer or (before, after) pair per pooled axis, or a string"
    )
    if len(entries) != count:
        hint = " (a single axis takes ((before, after),))" if count == 1 and len(entries) == 2 else ""
        raise GeometryError(f"padding={tuple(entries)!r} has {len(entries)} entries for {_axis_word(count)}{hint}")
    pairs = []
    for i, entry in enumerate(entries):
        if is_integer(entry):
            number = integer(f"padding[{i}]", entry)
            pairs.append((number, number))
            continue
        pair = sequence(f"padding[{i}]", entry, "an integer or a (before, after) pair")
        if len(pair) != 2:
            raise GeometryError(f"padding[{i}]={tuple(pair)!r} must be an integer or a (before, after) pair")
        pairs.append((integer(f"padding[{i}][0]", pair[0]), integer(f"padding[{i}][1]", pair[1])))
    return tuple(pairs)


def _first_between(step: int, modulus: int, start: int, low: int) -> int | None:
    """The smallest ``x >= 0`` with ``(start + step*x) % modulus >= low``, in logarithmic time, or None."""

    def first(a: int, m: int, lo: int, hi: int) -> int | None:
        # the smallest multiple of a that lies between lo and hi modulo m, by the steps of Euclid's algorithm
        a %= m
        if lo == 0:
            return 0
        if a == 0:
            return None
        if 2 * a > m:
            return first(m - a, m, m - hi, m - lo)
        x = -(-lo // a)
        if x * a <= hi:
            return x
        y = first(-m % a, a, lo % a, hi % a)
        return None if y is None else -(-(lo + m * y) // a)

    shift = start % modulus
    return 0 if shift >= low else first(step, modulus, low - shift, modulus - 1 - shift)


def window_without_tap(window: Window) -> int | None:
    """The first output along the axis whose taps all fall on padding, or None."""
    length, kernel, stride, dilation, before, _, out, _ = window
    # Windows that start at or after 0: the first tap decides, and the last window starts furthest right.
    first_outside = -(-(length + before) // stride)
    # Windows that start in the left padding: only a dilation wider than the axis can step over it.
    starting_left = min(out, -(-before // stride), first_outside)
    if starting_left > 0:
        if (kernel - 1) * dilation < before:
            return 0
        bad = _first_between(stride, dilation, -before, length) if dilation > length else None
        if bad is not None and bad < starting_left:
            return bad
    return first_outside if first_outside < out else None


def pooling_geometry(
    input_shape: tuple[int, ...],
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    axes: Any = None,
    *,
    padding_counts: bool = False,
) -> Geometry:
    """Check every geometry argument of a pooling call and compute its windows.

    `padding_counts` says that a window of nothing but padding has a defined value (a sum or a padded average).
    """
    ndim = len(input_shape)
    if type(ceil_mode).__name__ not in ("bool", "bool_", "int") or ceil_mode not in (0, 1):
        raise GeometryError(f"ceil_mode must be True or False, got {ceil_mode!r}")
    if is_integer(kernel_size):
        integer("kernel_size", kernel_size)
        if axes is None:
            raise GeometryError(
                f"kernel_size={kernel_size!r} does not say how many axes to pool: "
                f"give a tuple with one entry per pooled axis, or name the axes with axes="
            )
        positions = normalize_axes(axes, ndim)
    else:
        entries = sequence("kernel_size", kernel_size, "a tuple with one integer per pooled axis")
        if not entries:
            raise GeometryError("kernel_size is empty; give one entry per pooled axis")
        positions = normalize_axes(axes, ndim, len(entries))
    count = len(positions)
    kernels = per_axis("kernel_size", kernel_size, count, 1)
    strides = kernels if stride is None else per_axis("stride", stride, count, 1)
    dilations = per_axis("dilation", dilation, count, 1)
    lengths = [input_shape[axis] for axis in positions]
    for axis, length in zip(positions, lengths, strict=True):
        if length == 0:
            raise GeometryError(f"axis {axis} has length 0; a pooled axis needs at least one element")
    pads = padding_pairs(padding, lengths, kernels, strides, dilations)

    windows = {}
    for axis, length, k, s, d, (pad_before, pad_after) in zip(
        positions, lengths, kernels, strides, dilations, pads, strict=True
    ):
        crop = max(-pad_before, 0)
        kept = length - crop - max(-pad_after, 0)
        if kept < 1:
            raise GeometryError(
                f"negative padding {(pad_before, pad_after)} crops axis {axis} of length {length} to nothing"
            )
        before, after = max(pad_before, 0), max(pad_after, 0)
        out = output_length(kept, k, s, d, before, after, bool(ceil_mode))
        if out < 1:
            raise GeometryError(
                f"no window fits along axis {axis}: length {length} with padding {(pad_before, pad_after)} is shorter "
                f"than a window of kernel_size {k} with dilation {d}, which spans {extent(k, d)} elements"
            )
        window = Window(kept, k, s, d, before, after, out, crop)
        if not padding_counts:
            bad = window_without_tap(window)
            if bad is not None:
                raise GeometryError(
                    f"window {bad} along axis {axis} (length {length}, kernel_size {k}, stride {s}, dilation {d}, "
                    f"padding {(pad_before, pad_after)}) has no tap inside the input"
                )
        windows[axis] = window
    return Geometry.of(tuple(input_shape), windows)


def transposed_windows(
    input_shape: tuple[int, ...],
    kernel_size: tuple[int, ...],
    stride: Any,
    padding: Any,
    output_padding: Any,
    dilation: Any,
) -> list[tuple[int, int, int, int, int, int]]:
    """Length of the result, kernel, stride, dilation, padding before and length of the input, per axis."""
    count = len(kernel_size)
    strides = per_axis("stride", stride, count, 1)
    dilations = per_axis("dilation", dilation, count, 1)
    extras = per_axis("output_padding", output_padding, count, 0)
    same = isinstance(padding, str) and padding in ("same", "same_lower")
    pads = padding_pairs("valid" if same else padding, input_shape[-count:], kernel_size, strides, dilations)
    result = []
    for i, (n, k, s, d, extra) in enumerate(
        zip(input_shape[-count:], kernel_size, strides, dilations, extras, strict=True)
    ):
        axis = len(input_shape) - count + i
        if n == 0:
            raise GeometryError(f"axis {axis} has length 0; it needs at least one element")
        if extra >= max(s, d):
            where = f"output_padding[{i}]" if count > 1 else "output_padding"
            raise GeometryError(f"{where} is {extra}; it must be less than the stride {s} or the dilation {d}")
        before, after = pads[i]
        if same:
            # the result is as long as the stride makes it; what a short window leaves open is added at the end
            total = extent(k, d) - s + extra
            small = max(total, 0) // 2
            before = small if padding == "same" else max(total, 0) - small
            after = total - before
        length = (n - 1) * s - before - after + extent(k, d) + extra
        if length < 1:
            raise GeometryError(f"padding {(before, after)} leaves a length of {length} along axis {axis}")
        result.append((length, k, s, d, before, n))
    check_size("the output shape", (*input_shape[:-count], *(row[0] for row in result)))
    return result


# ---------------------------------------------------------------------------------------------- windows given by bounds


def bounds_of(length: int, starts: Sequence[int], counts: Sequence[int]) -> Bounds:
    """Windows along an axis, one by one: output ``o`` is ``counts[o]`` elements from ``starts[o]`` on.

    With a multiple of the starts that there are counts, every outer index has starts of its own.
    """
    return Bounds(length, len(counts), len(counts), 0, 1, int64_bytes(starts), int64_bytes(counts))


def int64_bytes(numbers: Iterable[int]) -> bytes:
    """Python integers as `Bounds` keeps them."""
    return array("q", numbers).tobytes()


def int64_of(numbers: bytes) -> list[int]:
    """The numbers of `Bounds` as Python integers."""
    return array("q", numbers).tolist()


def by_places(length: int, windows: Sequence[range], crop: int = 0) -> Bounds:
    """Windows by the places of their taps, all at the same distance; places off the axis are left out."""
    real = [places[max(0, -(places.start // places.step)) :] for places in windows]
    real = [range(places.start, min(places.stop, length), places.step) if places else places for places in real]
    starts, counts = [places.start if places else 0 for places in real], [len(places) for places in real]
    step = windows[0].step if max(counts) > 1 else 1
    return Bounds(length, len(windows), len(windows), 0, step, int64_bytes(starts), int64_bytes(counts), crop)


def adaptive_window(length: int, out: int) -> Window | Bounds:
    """`out` windows that cover an axis: window ``i`` is ``[i*length // out, ceil((i+1)*length / out))``."""
    if length % out == 0:
        return Window(length, length // out, length // out, 1, 0, 0, out)
    # allocated whole, which fails at once where there is no memory for so many
    starts, counts = array("q", [0]) * out, array("q", [0]) * out
    for i in range(out):
        starts[i] = i * length // out
        counts[i] = -(-(i + 1) * length // out) - starts[i]
    return bounds_of(length, starts, counts)


def nowhere(length: int, out: int, crop: int = 0) -> Window:
    """Windows of one tap that lies before the axis, for outputs that have none."""
    return Window(length, 1, 1, 1, out, 0, out, crop)


def adjoint_window(window: Window) -> Window | Bounds:
    """The windows of the way back: for every element of the axis, the outputs that have it as a tap, ascending.

    Read the other way round: tap ``j`` of output ``o`` is element ``i = o*stride + j*dilation - before``, so element
    ``i`` belongs to the outputs ``o = (i + before - j*dilation) / stride`` that are whole numbers. At stride 1 these
    are windows of the same kernel; otherwise the pattern repeats with the stride, unless it is longer than the axis.
    """
    length, k, s, d, before, _, out, _ = window
    if s == 1 or out == 1:
        behind = (k - 1) * d - before  # may be negative: then the first outputs lie in the padding and go nowhere
        crop = max(-behind, 0)
        if crop >= out:
            return nowhere(out, length)
        after = max(0, length + (k - 1) * d - behind - out)
        return Window(out - crop, k, 1, d, max(behind, 0), after, length, crop)
    common = math.gcd(s, d)
    period, step = s // common, d // common  # from tap to tap of an element of phase r, and from output to output
    inverse = pow(step, -1, period)

    def outputs(t: int, r: int) -> range:
        """Outputs of element ``t*stride + r - before``, those that there are not included."""
        first = r // common * inverse % period  # solves first*d = r modulo s
        if r % common or first >= k:
            return range(0, 0, step)
        taps = range(first, k, period)
        return range(t - (taps[-1] * d - r) // s, t - (first * d - r) // s + 1, step)

    if s > length or max(k, d, before) > max(length, out, WIDEST):
        return by_places(out, [outputs(*divmod(i + before, s)) for i in range(length)])
    listed = [outputs(before // s, r) for r in range(s)]
    starts, counts = int64_bytes([o.start for o in listed]), int64_bytes(map(len, listed))
    return Bounds(out, length, s, before % s, step, starts, counts)


def adjoint_bounds(length: int, starts: Sequence[int], stops: Sequence[int]) -> Bounds:
    """For every element of an axis the windows ``[starts[o], stops[o])`` that hold it; both must be non-decreasing."""
    firsts = [bisect_right(stops, i) for i in range(length)]
    counts = [max(0, bisect_right(starts, i) - first) for i, first in enumerate(firsts)]
    return bounds_of(len(starts), firsts, counts)


def adaptive_geometry(input_shape: tuple[int, ...], output_size: Any, axes: Any) -> Geometry:
    """The windows that cut every pooled axis into `output_size` parts, as equal as whole elements allow."""
    positions, sizes = named_or_last_axes("output_size", output_size, axes, len(input_shape))
    output_shape = list(input_shape)
    for i, (axis, size) in enumerate(zip(positions, sizes, strict=True)):
        length = input_shape[axis]
        out = length if size is None else integer(f"output_size[{i}]", size)
        if length == 0:
            raise GeometryError(f"axis {axis} has length 0; a pooled axis needs at least one element")
        if out < 1:
            raise GeometryError(f"output_size[{i}] is {out}; it must be at least 1")
        output_shape[axis] = out
    check_size("the output shape", output_shape)  # before any window is listed
    return Geometry.of(
        input_shape, {axis: adaptive_window(input_shape[axis], output_shape[axis]) for axis in positions}
    )


class Taps(NamedTuple):
    """How many taps of a window count in a mean: of the first outputs, of all between, and of the last ones."""

    lead: tuple[int, ...]
    middle: int
    trail: tuple[int, ...]


def counted_taps(window: Window | Bounds, include_padding: bool) -> Taps:
    """Taps per output: on elements, and with `include_padding` on padding; never what ceil mode lets hang over."""
    if isinstance(window, Bounds):
        counts = int64_of(window.counts)
        same = len(set(counts)) == 1
        return Taps((), counts[0], ()) if same else Taps(tuple(counts), 0, ())
    length, k, s, d, before, after, out, _ = window
    low, high = (-before, length + after) if include_padding else (0, length)

    def count(o: int) -> int:
        start = o * s - before
        return min(k, (high - 1 - start) // d + 1) - max(0, -((start - low) // d))

    lead = min(out, max(0, -(-(low + before) // s)))
    whole = max(lead, min(out, (high - 1 - (k - 1) * d + before) // s + 1))  # outputs that do not hang over the end
    taps = Taps(tuple(map(count, range(lead))), k, tuple(map(count, range(whole, out))))
    if lead == whole and len({*taps.lead, *taps.trail}) == 1:
        return Taps((), count(0), ())
    return taps
