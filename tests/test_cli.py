"""The command line: as a process, and in this one with a comparison spoiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpool as fp
from fastpool.options import runtime

pytest.importorskip("click")
nibabel = pytest.importorskip("nibabel")
pytest.importorskip("rich")

from click.testing import CliRunner, Result  # noqa: E402

from fastpool import _demo  # noqa: E402
from fastpool._commands import fastpool as command  # noqa: E402


def process(*arguments: str, code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process that sees the installed package, not the current directory."""
    program = f"{code}\nfrom fastpool.cli import main\nmain()"
    return subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments],
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time each function only a few times."""
    monkeypatch.setattr(_demo, "SECONDS", 0.0)


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    """A big-endian series with ties, and with whole windows of the lowest value of its dtype."""
    rng = np.random.default_rng(3)
    data = rng.integers(0, 50, (9, 8, 2, 5)).astype(">i2")
    data[:4, :4] = np.iinfo(np.int16).min
    image = nibabel.Nifti1Image(data, np.diag([2.0, 3.0, 4.0, 1.0]), nibabel.Nifti1Header(endianness=">"))
    path = tmp_path / "series.nii.gz"
    nibabel.save(image, path)
    return path


def test_demo_in_a_process() -> None:
    done = process("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "OK"
    assert "functional.nii" in done.stdout
    assert "example4d.nii.gz" in done.stdout
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in done.stdout


def test_demo_names_the_highest_voxel(quick: None) -> None:
    path = Path(nibabel.__file__).parent / "tests" / "data" / "functional.nii"
    image = nibabel.load(path)
    scan = np.asarray(image.dataobj)
    x, y, z, t = (int(i) for i in np.unravel_index(scan.argmax(), scan.shape))
    mm = image.affine @ (x, y, z, 1)
    row = next(line for line in invoke("demo").stdout.splitlines() if line.strip().startswith("5571.6219"))
    flat = np.ravel_multi_index((t, z, y, x), scan.T.shape)
    for text in (f"({x}, {y}, {z})", f" {t} ", f"{flat:,}", f"({mm[0]:.1f}, {mm[1]:.1f}, {mm[2]:.1f})"):
        assert text in row


@pytest.mark.parametrize("arguments", [(), ("--threads", "1"), ("--volumes", "4")])
def test_demo_of_a_file(quick: None, scan: Path, arguments: tuple[str, ...]) -> None:
    result = invoke("demo", str(scan), *arguments)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "OK"


def _wrong_index(pooled: fp.Pooled) -> fp.Pooled:
    pooled.indices.flat[-1] -= 1
    return pooled


def _index_out_of_range(pooled: fp.Pooled) -> fp.Pooled:
    pooled.indices.flat[0] = 2**40
    return pooled


def _wrong_value(pooled: fp.Pooled) -> fp.Pooled:
    pooled.values.flat[7] += 1
    return pooled


@pytest.mark.parametrize("spoil", [_wrong_index, _index_out_of_range, _wrong_value])
def test_demo_fails_where_a_comparison_does(quick: None, monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    right = fp.max_pool

    def wrong(*arguments: Any, **options: Any) -> Any:
        pooled = right(*arguments, **options)
        return spoil(pooled) if options.get("return_indices") else pooled

    monkeypatch.setattr(fp, "max_pool", wrong)
    result = invoke("demo")
    assert result.exit_code == 1
    assert "NO" in result.stdout
    last = result.stdout.splitlines()[-1]
    assert last.startswith("FAILED: functional.nii")
    assert "OK" not in result.stdout


@pytest.mark.parametrize(
    "function", ["max_pool_backward", "max_unpool", "max_unpool_backward", "avg_pool", "avg_pool_backward"]
)
def test_demo_fails_where_one_element_is_wrong(quick: None, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    right = getattr(fp, function)

    def wrong(*arguments: Any, **options: Any) -> Any:
        result = right(*arguments, **options)
        if isinstance(result, np.ndarray):
            result.flat[result.size // 2] += 1
        return result

    monkeypatch.setattr(fp, function, wrong)
    result = invoke("demo")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].startswith("FAILED: ")


def test_demo_compares_everything(quick: None) -> None:
    held = [line for line in invoke("demo").stdout.splitlines() if line.rstrip().endswith(" yes")]
    series = next(_demo.load(None, None))
    assert len(held) == 2 * len(_demo.comparisons(series, _demo.pool(series.input)))


def test_demo_refuses_what_is_no_series(tmp_path: Path) -> None:
    volume = tmp_path / "volume.nii"
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 4, 4), np.int16), np.eye(4)), volume)
    colours = tmp_path / "complex.nii"
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 4, 4, 3), np.complex64), np.eye(4)), colours)
    text = tmp_path / "text.nii"
    text.write_text("no scan")
    for path, said in ((volume, "4-D series"), (colours, "cannot be pooled"), (text, "cannot be read")):
        result = invoke("demo", str(path))
        assert result.exit_code == 1
        assert said in result.output
    assert invoke("demo", str(tmp_path / "absent.nii")).exit_code == 2


def test_bad_options() -> None:
    result = invoke("demo", "--threads", "0")
    assert result.exit_code == 1
    assert "num_threads is 0" in result.output
    assert invoke("demo", "--volumes", "1").exit_code == 2


def test_info() -> None:
    done = process("info", OMP_NUM_THREADS="1", FASTPOOL_ISA="baseline")
    assert done.returncode == 0, done.stderr
    assert "baseline: FASTPOOL_ISA=baseline asks for it" in done.stdout
    assert "OMP_NUM_THREADS is 1" in " ".join(done.stdout.split())
    assert fp.__version__ in done.stdout


def test_info_as_json() -> None:
    result = invoke("info", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == runtime()


def test_info_says_who_set_the_threads() -> None:
    fp.set_num_threads(1)
    try:
        assert "set by set_num_threads" in invoke("info").stdout
    finally:
        fp.set_num_threads(None)


def test_version() -> None:
    assert process("--version").stdout.strip() == f"fastpool {fp.__version__}"


def test_module_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fastpool", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "demo" in done.stdout
    assert "info" in done.stdout


@pytest.mark.parametrize("missing", ["click", "nibabel", "rich"])
def test_without_the_extra(missing: str) -> None:
    done = process("demo", code=f"import sys; sys.modules[{missing!r}] = None")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("pip install 'fastpool[cli]'")
    assert missing in done.stderr
    assert "Traceback" not in done.stderr


# ---- explain

KNOWN = ("--shape", "1,1,225,225", "--kernel", "2,2", "--stride", "2,2")


def test_explain() -> None:
    assert process("explain", *KNOWN).stdout == f"{fp.explain((1, 1, 225, 225), (2, 2))}\n"
    result = invoke("explain", *KNOWN, "--ceil-mode", "--indices", "--threads", "1", "--json")
    plan = fp.explain((1, 1, 225, 225), (2, 2), ceil_mode=True, return_indices=True, num_threads=1)
    assert json.loads(result.stdout) == plan.to_dict()


@pytest.mark.parametrize(
    ("arguments", "padding"),
    [
        (("1",), 1),
        (("0,1",), (0, 1)),
        (("1:0,-1:2",), ((1, 0), (-1, 2))),
        (("-1,0:1",), (-1, (0, 1))),
        (("same_lower",), "same_lower"),
        (("valid",), "valid"),
    ],
)
def test_explain_takes_every_form_of_padding(arguments: tuple[str, ...], padding: Any) -> None:
    result = invoke(
        "explain", "--shape", "9,8,7", "--kernel", "3,2", "--stride", "1", "--dilation", "1,2", "--axes", "-3,1",
        "--dtype", "int16", "--padding", *arguments,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{fp.explain((9, 8, 7), (3, 2), 1, padding, (1, 2), axes=(-3, 1), dtype='int16')}\n"


def test_explain_of_one_axis() -> None:
    assert invoke("explain", "--shape", "9", "--kernel", "3", "--padding", "1:0").stdout == (
        f"{fp.explain((9,), (3,), padding=((1, 0),))}\n"
    )
    assert invoke("explain", "--shape", "9,8", "--kernel", "3", "--axes", "0,1").stdout == (
        f"{fp.explain((9, 8), 3, axes=(0, 1))}\n"
    )


def test_explain_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "out.svg"
    result = invoke("explain", *KNOWN, "--plot", str(path))
    assert result.exit_code == 0, result.output
    assert "112 x 112 windows" in path.read_text(encoding="utf-8")
    result = invoke("explain", *KNOWN, "--plot", str(tmp_path / "absent" / "out.svg"))
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")


def test_explain_without_matplotlib() -> None:
    done = process("explain", *KNOWN, "--plot", "out.svg", code="import sys; sys.modules['matplotlib'] = None")
    assert done.returncode == 1
    assert done.stderr == "Error: drawing a plan needs matplotlib, which is missing: pip install 'fastpool[plot]'\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--shape", "4", "--kernel", "5"), 1, "no window fits along axis 0"),
        (("--shape", "4", "--kernel", "2,2"), 1, "only 1 dimension"),
        (("--shape", "4", "--kernel", "2", "--dtype", "complex64"), 1, "is not taken"),
        (("--shape", "4", "--kernel", "2", "--plot", "out.pdf"), 1, "must end in .svg or .png"),
        (("--shape", "4", "--kernel", "2", "--threads", "0"), 1, "num_threads is 0"),
        (("--shape", "4.5", "--kernel", "2"), 2, "'4.5' is not a number"),
        (("--shape", "4", "--kernel", "2", "--padding", "sane"), 2, "'sane' is not a number"),
        (("--shape", "4"), 2, "Missing option '--kernel'"),
    ],
)
def test_explain_tells_what_is_wrong(arguments: tuple[str, ...], status: int, said: str) -> None:
    result = invoke("explain", *arguments)
    assert result.exit_code == status
    assert said in " ".join(result.output.split())
    assert result.exception is None or isinstance(result.exception, SystemExit)
