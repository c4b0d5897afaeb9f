"""Names, signatures, docstrings and their examples."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from calls import ARGUMENTS

import fastpool as fp
from fastpool import testing

WINDOWS = "kernel_size, stride=None, padding=0, dilation=1, *"
GEOMETRY = f"{WINDOWS}, ceil_mode=False, axes=None"
DIVISOR = "count_include_pad=True, divisor_override=None"
SLIDE = "stride=1, padding=0, dilation=1"
CONV = f"{SLIDE}, groups=1"
TRANSPOSE = "stride=1, padding=0, output_padding=0, dilation=1, groups=1"
NEEDS = "needs=('x', 'weight', 'bias')"
SIGNATURES = {
    "max_pool": f"x, {GEOMETRY}, return_indices=False, out=None, **options",
    "min_pool": f"x, {GEOMETRY}, return_indices=False, out=None, **options",
    "global_max_pool": "x, *, axes=None, keepdims=True, return_indices=False, **options",
    "avg_pool": f"x, {WINDOWS}, ceil_mode=False, {DIVISOR}, dtype=None, axes=None, out=None, **options",
    "sum_pool": f"x, {WINDOWS}, ceil_mode=False, dtype=None, axes=None, out=None, **options",
    "lp_pool": f"x, norm_type, {WINDOWS}, ceil_mode=False, signed=False, axes=None, out=None, **options",
    "adaptive_max_pool": "x, output_size, *, axes=None, return_indices=False, out=None, **options",
    "adaptive_avg_pool": "x, output_size, *, dtype=None, axes=None, out=None, **options",
    "global_avg_pool": "x, *, axes=None, keepdims=True, dtype=None, **options",
    "fractional_max_pool": "x, kernel_size, output_size, *, random_samples=None, rng=None, axes=None, "
    "return_indices=False, **options",
    "stochastic_pool": "x, kernel_size, stride=None, padding=0, *, rng=None, axes=None, return_indices=False, "
    "**options",
    "window_pool": "x, windows, op='max', *, axes=None, return_indices=False, out=None, **options",
    "windows_from_edges": "coordinates, edges",
    "avg_pool_backward": f"grad_output, input_shape, {WINDOWS}, ceil_mode=False, {DIVISOR}, axes=None, out=None, "
    "**options",
    "sum_pool_backward": f"grad_output, input_shape, {GEOMETRY}, out=None, **options",
    "lp_pool_backward": f"grad_output, x, y, norm_type, {WINDOWS}, ceil_mode=False, signed=False, axes=None, "
    "out=None, **options",
    "adaptive_avg_pool_backward": "grad_output, input_shape, *, axes=None, out=None, **options",
    "global_avg_pool_backward": "grad_output, input_shape, *, axes=None, **options",
    "window_pool_backward": "grad_output, input_shape, windows, op, *, axes=None, **options",
    "max_unpool": "values, indices, output_shape, *, out=None, **options",
    "max_pool_backward": "grad_output, indices, input_shape, *, sparse=False, out=None, **options",
    "max_unpool_backward": "grad_output, indices, **options",
    "output_shape": f"input_shape, {GEOMETRY}",
    "explain": f"input_shape, {GEOMETRY}, dtype='float32', return_indices=False, **options",
    "conv": f"x, weight, bias=None, {CONV}, *, padding_mode='zeros', out=None, **options",
    "conv_backward": f"grad_output, x, weight, {CONV}, *, padding_mode='zeros', {NEEDS}, **options",
    "conv_transpose": f"x, weight, bias=None, {TRANSPOSE}, *, out=None, **options",
    "conv_transpose_backward": f"grad_output, x, weight, {TRANSPOSE}, *, {NEEDS}, **options",
    "unfold": f"x, kernel_size, {SLIDE}, **options",
    "fold": f"columns, output_size, kernel_size, {SLIDE}, **options",
    "pad": "x, padding, mode='constant', value=0, *, axes=None",
    "convert_indices": "indices, input_shape, spatial_ndim, *, to='flat', frm='flat', channels_last=None",
}
TWINS = set(testing.__all__) - {"gradcheck"}
PUBLIC = [name for name in fp.__all__ if inspect.isfunction(getattr(fp, name))]


def plain(function):
    """The signature without annotations."""
    signature = inspect.signature(function)
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)).strip("()")


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    assert plain(getattr(fp, name)) == SIGNATURES[name]


@pytest.mark.parametrize("name", sorted(TWINS))
def test_twin_has_the_same_signature(name):
    assert plain(getattr(testing, name)) == plain(getattr(fp, name))


def test_every_function_of_arrays_has_a_twin():
    of_arrays = set(PUBLIC) & set(ARGUMENTS) - {"gradcheck"}
    assert of_arrays == TWINS


def test_public_names():
    assert list(fp.__all__) == sorted(set(fp.__all__))
    names = {name for name in vars(fp) if not name.startswith("_")}
    modules = {name for name in names if inspect.ismodule(getattr(fp, name))}
    assert names - modules == set(fp.__all__) - modules


def test_named_tuples():
    assert fp.Pooled._fields == ("values", "indices")
    assert fp.SparseGradient._fields == ("indices", "values")
    assert fp.ConvGradients._fields == ("x", "weight", "bias")
    assert type(fp.max_pool([1, 2], (2,), return_indices=True)) is fp.Pooled


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        ("GeometryError", ValueError),
        ("ContiguityError", ValueError),
        ("DtypeError", TypeError),
        ("IndexOutOfBoundsError", IndexError),
        ("NonFiniteError", ValueError),
    ],
)
def test_errors_are_builtins_too(error, builtin):
    assert issubclass(getattr(fp, error), fp.FastpoolError)
    assert issubclass(getattr(fp, error), builtin)


@pytest.mark.parametrize("name", ["ContiguityWarning", "NonFiniteWarning"])
def test_warnings_are_warnings(name):
    assert issubclass(getattr(fp, name), UserWarning)


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings_are_complete(name):
    function = getattr(fp, name)
    text = inspect.getdoc(function)
    assert text
    sections = {line for line, under in pairwise(text.splitlines()) if set(under) == {"-"}}
    parameters = list(inspect.signature(function).parameters)
    if name == "options":
        parameters = list(fp.Options.__annotations__)
    wanted = {"Examples"}
    if parameters:
        wanted |= {"Parameters", "Raises"}
    if name not in ("options", "set_num_threads", "show_runtime"):
        wanted |= {"Returns"}
    assert wanted <= sections, wanted - sections
    block = text.partition("Parameters\n")[2].partition("\nReturns\n")[0]
    for parameter in parameters:
        assert parameter in block, parameter


@pytest.mark.parametrize("name", PUBLIC)
def test_annotations_are_complete(name):
    signature = inspect.signature(getattr(fp, name))
    for parameter in signature.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter.name
    assert signature.return_annotation is not inspect.Signature.empty


def modules():
    """Every pure Python module of the package whose own imports are installed."""
    for info in pkgutil.walk_packages(fp.__path__, "fastpool."):
        spec = importlib.util.find_spec(info.name)
        if spec is None or not (spec.origin or "").endswith(".py") or info.name.endswith("__main__"):
            continue
        yield info.name


@pytest.mark.parametrize("name", ["fastpool", *modules()])
def test_examples_run(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if error.name is not None and error.name.startswith("fastpool"):
            raise
        pytest.skip(f"needs {error.name}")
    threads = fp.get_num_threads()
    results = doctest.testmod(module, verbose=False)
    assert results.failed == 0
    assert fp.get_num_threads() == threads


def test_examples_exist():
    finder = doctest.DocTestFinder()
    found = set()
    for name in {getattr(fp, name).__module__ for name in PUBLIC}:
        found.update(test.name for test in finder.find(importlib.import_module(name)) if test.examples)
    for name in PUBLIC:
        function = getattr(fp, name)
        assert f"{function.__module__}.{name}" in found


def imports(module):
    """Names that a module of the package imports from the package."""
    tree = ast.parse(Path(fp.__path__[0], f"{module}.py").read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                found.update([node.module.partition(".")[0]] if node.module else [alias.name for alias in node.names])
            elif node.module and node.module.startswith("fastpool"):
                found.add(node.module.partition(".")[2].partition(".")[0] or "fastpool")
    return found


def test_layers_are_kept():
    """Integers know no arrays, and the twins know nothing of what they are held against."""
    assert imports("_geometry") <= {"errors"}
    assert imports("_coverage") <= {"_geometry"}
    twins = {path.stem for path in Path(fp.__path__[0]).glob("_twins*.py")}
    assert len(twins) > 1
    for module in ("testing", *twins):
        assert imports(module) <= {"errors", "_geometry", "_results", *twins}, module
    assert imports("_guards") <= {"errors", "options"}
    assert imports("errors") == set()
    tree = Path(fp.__path__[0], "_geometry.py").read_text(encoding="utf-8")
    assert "numpy" not in tree


def test_only_dispatch_imports_kernels():
    for path in Path(fp.__path__[0]).glob("*.py"):
        if path.name != "_dispatch.py":
            assert "_kernels" not in imports(path.stem), path.name


def test_import_needs_numpy_alone():
    code = "import sys, numpy; before = set(sys.modules); import fastpool; print(*set(sys.modules) - before)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    tops = {name.partition(".")[0] for name in run.stdout.split()}
    assert "fastpool" in tops
    optional = {
        "dask",
        "ml_dtypes",
        "matplotlib",
        "onnx",
        "pytest",
        "scipy",
        "threadpoolctl",
        "torch",
        "xarray",
    }
    assert not tops & optional
