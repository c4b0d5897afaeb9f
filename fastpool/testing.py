"""What the functions of fastpool mean, as plain loops; and a check of gradients.

Every twin has the name and the arguments of the fast function, and shows what it does: list the elements of each window
(`Windows` in ``_twins.py``), and pick one or add them up; or list the products of a convolution (``_twins_conv.py``),
and add up those of an output. It is the reference that the tests hold the compiled kernels to, and a place to read how
pooling and convolution work. Where the rule is exact (maxima, integers) both give the same bits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from ._twins import Array, is_floating
from ._twins_conv import conv, conv_backward, conv_transpose, conv_transpose_backward
from ._twins_max import (
    convert_indices,
    global_max_pool,
    max_pool,
    max_pool_backward,
    max_unpool,
    max_unpool_backward,
    min_pool,
)
from ._twins_mean import (
    avg_pool,
    avg_pool_backward,
    global_avg_pool,
    global_avg_pool_backward,
    lp_pool,
    lp_pool_backward,
    sum_pool,
    sum_pool_backward,
)
from ._twins_unfold import fold, pad, unfold
from ._twins_windows import (
    adaptive_avg_pool,
    adaptive_avg_pool_backward,
    adaptive_max_pool,
    fractional_max_pool,
    stochastic_pool,
    window_pool,
    window_pool_backward,
    windows_from_edges,
)

__all__ = [
    "adaptive_avg_pool",
    "adaptive_avg_pool_backward",
    "adaptive_max_pool",
    "avg_pool",
    "avg_pool_backward",
    "conv",
    "conv_backward",
    "conv_transpose",
    "conv_transpose_backward",
    "convert_indices",
    "fold",
    "fractional_max_pool",
    "global_avg_pool",
    "global_avg_pool_backward",
    "global_max_pool",
    "gradcheck",
    "lp_pool",
    "lp_pool_backward",
    "max_pool",
    "max_pool_backward",
    "max_unpool",
    "max_unpool_backward",
    "min_pool",
    "pad",
    "stochastic_pool",
    "sum_pool",
    "sum_pool_backward",
    "unfold",
    "window_pool",
    "window_pool_backward",
    "windows_from_edges",
]


def gradcheck(
    function: Callable[..., Any],
    backward: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-6,
    rtol: float = 1e-5,
    seed: int = 0,
) -> bool:
    """Check a backward pass against central differences, in float64 and without any framework.

    Each element of each floating-point input is moved by `eps` both ways; the change of the output, weighted
    with one random `grad_output`, must agree with what `backward` says about that element. Choose inputs away
    from kinks: for a maximum, no two elements of a window closer than ``2 * eps``.

    Parameters
    ----------
    function : callable
        ``function(*inputs)`` returns an array, or a tuple that starts with one (such as ``Pooled``).
    backward : callable
        ``backward(grad_output, *inputs)`` returns the gradient, or a tuple with one gradient per
        floating-point input. None stands for a gradient that is not checked.
    inputs : array_like, or tuple or list of arrays
        Where to check. Floating-point inputs are taken as float64; others (indices, say) are passed on.
    eps : float, default 1e-6
        The step.
    atol, rtol : float
        Allowed difference: ``atol + rtol * abs(numerical)``.
    seed : int, default 0
        Of the random `grad_output`.

    Returns
    -------
    bool
        True. A wrong gradient raises.

    Raises
    ------
    AssertionError
        If a gradient is missing, has the wrong shape, or is wrong; the message names the worst element.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpool import testing
    >>> testing.gradcheck(lambda x: x**2, lambda grad, x: 2 * x * grad, np.array([1.0, -3.0]))
    True
    >>> wrong = lambda grad, x: x * grad
    >>> testing.gradcheck(lambda x: x**2, wrong, np.array([1.0, -3.0]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    AssertionError: gradient 0 at [1]: backward gives 0.396..., central differences give 0.792...
    """
    given = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    points = [np.array(x, np.float64) if is_floating(np.asarray(x).dtype) else x for x in given]
    moved = [point for x, point in zip(given, points, strict=True) if is_floating(np.asarray(x).dtype)]
    if not moved:
        raise AssertionError("no input is floating-point, so there is no gradient to check")

    def evaluate() -> Array:
        result = function(*copy.deepcopy(points))
        return np.array(result[0] if isinstance(result, tuple) else result, np.float64)

    grad_output = np.random.default_rng(seed).standard_normal(evaluate().shape)
    answer = backward(grad_output.copy(), *copy.deepcopy(points))
    gradients = answer if isinstance(answer, tuple) else (answer,)
    if len(gradients) != len(moved):
        raise AssertionError(f"backward returned {len(gradients)} gradients for {len(moved)} inputs")

    for number, (point, gradient) in enumerate(zip(moved, gradients, strict=True)):
        if gradient is None:
            continue
        found = np.array(gradient, np.float64)
        if found.shape != point.shape:
            raise AssertionError(f"gradient {number} has shape {found.shape}, its input {point.shape}")
        numerical = np.empty(point.shape)
        for position in np.ndindex(*point.shape):
            here = point[position]
            point[position] = here + eps
            above = evaluate()
            point[position] = here - eps
            below = evaluate()
            point[position] = here
            step = (here + eps) - (here - eps)  # what was really moved, after rounding
            numerical[position] = np.sum((above - below) * grad_output) / step
        excess = np.abs(found - numerical) - (atol + rtol * np.abs(numerical))
        if not np.all(excess <= 0):  # NaN is wrong too
            worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
            raise AssertionError(
                f"gradient {number} at {[int(i) for i in worst]}: backward gives {float(found[worst])!r}, "
                f"central differences give {float(numerical[worst])!r}"
            )
    return True
