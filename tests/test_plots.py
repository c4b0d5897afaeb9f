"""Pictures of plans: what is drawn where, and the files; those of the documents are what their script makes."""

from __future__ import annotations

import itertools
import re
import runpy
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from strategies import real_taps

import fastpool as fp

matplotlib = pytest.importorskip("matplotlib")
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402

from fastpool import _plots  # noqa: E402

DOCS = Path(__file__).resolve().parents[1] / "docs"
LONG = 19_199_998

PLANS = {
    "one axis": fp.explain((7,), (3,), 2, 1),
    "ceil": fp.explain((225,), (2,), ceil_mode=True),
    "floor": fp.explain((225,), (2,)),
    "crop": fp.explain((30,), (2,), 3, ((-2, -1),)),
    "dilated": fp.explain((50,), (3,), 7, 4, 5, ceil_mode=True),
    "long": fp.explain((LONG,), (1921,), 1, 960),
    "long gaps": fp.explain((LONG,), (3,), 50, ((-7, 3),), 7),
    "grid": fp.explain((5, 5), (3, 3), 2, 1),
    "grid at stride 1": fp.explain((4, 2, 9), (3, 3), (2, 1), (1, (1, 1)), axes=(0, 2)),
    "long grid": fp.explain((1, 1, 225, 4000), (2, 3), (2, 1), ceil_mode=True),
    "huge grid": fp.explain((LONG, 2 * LONG), (1921, 1), (1, 3), (960, 0)),
    "dilated grid": fp.explain((7, 9), (2, 3), (2, 1), (0, 1), (3, 1)),
    "three axes": fp.explain((6, 30, 9), (2, 3, 3), (1, 4, 2), (1, 0, -1)),
}


def windows_of(figure):
    """The rectangles of windows by the numbers in their names: panel, then the window along each axis."""
    found = {}
    for patch in figure.axes[0].patches:
        match = re.fullmatch(r"panel-(\d+)-window-(\d+)(?:-(\d+))?", patch.get_gid() or "")
        if match:
            found[tuple(int(number) for number in match.groups() if number is not None)] = patch
    return found


def test_one_axis_has_a_bar_for_every_window():
    plan = fp.explain((9,), (3,), 2, 1, 2)
    bars = windows_of(plan.plot())
    assert list(bars) == [(0, o) for o in range(plan.axes[0].out)]
    for o, bar in enumerate(bars.values()):
        assert bar.get_width() == pytest.approx(5 - 0.16)
        assert bar.get_x() - bars[0, 0].get_x() == pytest.approx(2 * o)
        assert bar.get_y() - bars[0, 0].get_y() == pytest.approx(o)


def test_two_axes_have_a_box_for_every_window():
    plan = fp.explain((5, 8), (3, 2), (2, 3), ((1, 1), (0, 1)))
    boxes = windows_of(plan.plot())
    assert set(boxes) == {(0, i, j) for i in range(3) for j in range(3)}
    middle = {at: (box.get_y() + box.get_height() / 2, box.get_x() + box.get_width() / 2) for at, box in boxes.items()}
    for (_, i, j), (y, x) in middle.items():
        assert y - middle[0, 0, 0][0] == pytest.approx(2 * i)
        assert x - middle[0, 0, 0][1] == pytest.approx(3 * j)
    turned = windows_of(plan.plot(axes=(1, 0)))
    assert turned[0, 2, 0].get_y() > turned[0, 0, 2].get_y()


def test_any_other_number_of_axes_has_a_panel_for_each():
    plan = PLANS["three axes"]
    bars = windows_of(plan.plot())
    assert {panel for panel, _ in bars} == {0, 1, 2}
    assert len(bars) == sum(axis.out for axis in plan.axes)
    assert {at[0] for at in windows_of(plan.plot(axes=-1))} == {0}
    assert len(windows_of(plan.plot(axes=-1))) == plan.axes[2].out
    assert len(windows_of(plan.plot(axes=(0, 2)))) == plan.axes[0].out * plan.axes[2].out


@pytest.mark.parametrize("name", ["one axis", "ceil", "floor", "crop", "dilated"])
def test_marks_are_right(name):
    plan = PLANS[name].axes[0]
    track = _plots.Track(plan)
    axis = (plan.length, plan.kernel_size, plan.stride, plan.dilation, *plan.padding)
    touched = {tap for o in range(plan.out) for tap in real_taps(o, *axis)}
    kept = range(max(-plan.padding[0], 0), plan.length - max(-plan.padding[1], 0))
    for position in track.place:
        if 0 <= position < plan.length:
            wanted = "cropped" if position not in kept else "element" if position in touched else "untouched"
        elif position < plan.length + plan.padding[1]:
            wanted = "padding"
        else:
            wanted = "overhang" if plan.overhang else ""
        assert track.kind(position) == wanted, position
    for window in track.windows:
        drawn = [place for place, kind in track.taps(window) if kind in ("element", "untouched")]
        assert drawn == [track.place[tap] for tap in real_taps(window, *axis)]


def test_what_ceil_mode_would_add_is_drawn():
    def others(figure):
        return [patch for patch in figure.axes[0].patches if (patch.get_gid() or "").endswith("-other")]

    (other,) = others(PLANS["floor"].plot())
    bars = windows_of(PLANS["floor"].plot())
    assert other.get_x() - bars[0, 111].get_x() == pytest.approx(2)
    assert not others(PLANS["ceil"].plot())
    assert not others(PLANS["one axis"].plot())


@pytest.mark.parametrize("name", ["long", "long gaps", "long grid", "huge grid"])
def test_long_axes_are_cut_short(name):
    figure = PLANS[name].plot()
    assert len(figure.axes[0].patches) < 1500
    assert max(figure.get_size_inches()) < 20
    windows = windows_of(figure)
    drawn = [{o for o in numbers if o < 10**9} for numbers in zip(*windows, strict=True)][1:]
    for axis, numbers in zip(PLANS[name].axes, drawn, strict=True):
        assert {0, axis.out - 1} <= numbers
        assert len(numbers) == 6


@pytest.mark.parametrize("name", PLANS)
def test_texts_neither_overlap_nor_leave_the_picture(name):
    figure = PLANS[name].plot()
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in figure.axes[0].texts]
    assert boxes
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        apart = a.x1 <= b.x0 + 0.5 or b.x1 <= a.x0 + 0.5 or a.y1 <= b.y0 + 0.5 or b.y1 <= a.y0 + 0.5
        assert apart, (one, other)
    width, height = figure.bbox.size
    for text, box in boxes:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text


def test_files(tmp_path):
    plan = PLANS["grid"]
    figure = plan.plot(tmp_path / "plan.svg")
    assert isinstance(figure, matplotlib.figure.Figure)
    tree = ET.parse(tmp_path / "plan.svg")
    ids = [node.get("id") for node in tree.iter() if node.get("id")]
    assert len(ids) == len(set(ids))
    assert sum(re.fullmatch(r"panel-0-window-\d-\d", name) is not None for name in ids) == 9
    assert "3 x 3 windows" in "".join(tree.getroot().itertext())
    plan.plot(str(tmp_path / "plan.PNG"))
    assert (tmp_path / "plan.PNG").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    plan.plot(tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "plan.svg").read_bytes()


def test_bad_arguments(tmp_path):
    plan = fp.explain((2, 8, 8), (2, 2))
    with pytest.raises(fp.GeometryError, match="axis 0 is not pooled; the pooled axes are 1, 2"):
        plan.plot(axes=(0, 1))
    with pytest.raises(fp.GeometryError, match="more than once"):
        plan.plot(axes=(1, -2))
    with pytest.raises(fp.GeometryError, match=r"must end in \.svg or \.png"):
        plan.plot(tmp_path / "plan.pdf")
    assert not list(tmp_path.iterdir())


def test_global_state_of_matplotlib_is_left_alone(tmp_path):
    # to ask for the backend would choose one, which imports pyplot
    code = (
        "import sys, fastpool as fp; assert 'matplotlib' not in sys.modules\n"
        "from matplotlib import rcParams; state = lambda: {k: rcParams[k] for k in rcParams if k != 'backend'}\n"
        "before = state(); fp.explain((5, 5), (2, 2)).plot(sys.argv[1])\n"
        "assert 'matplotlib.pyplot' not in sys.modules and state() == before"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "plan.svg")], check=True)


def test_without_matplotlib():
    code = "import sys; sys.modules['matplotlib'] = None\nimport fastpool as fp\nfp.explain((5,), (2,)).plot()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("matplotlib, which is missing: pip install 'fastpool[plot]'")


def drawing(path):
    """A picture as words and numbers, less what releases of matplotlib write each in their way: names and fonts."""
    text = re.sub(r'(id="|url\(#|href="#)[^")]*', "", path.read_text(encoding="utf-8"))
    text = re.sub(r'<text style="[^"]*"', "<text", text)
    parts = re.split(r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)", text)
    return [" ".join(part.split()) for part in parts[::2]], [float(part) for part in parts[1::2]]


@pytest.mark.skipif(not (DOCS / "pictures.py").exists(), reason="no documents beside the tests")
def test_pictures_of_the_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pictures.py", str(tmp_path)])
    runpy.run_path(str(DOCS / "pictures.py"), run_name="__main__")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {path.name for path in DOCS.glob("*.svg")}
    for name in names:
        words, numbers = drawing(tmp_path / name)
        committed = drawing(DOCS / name)
        assert words == committed[0], name
        # and text is placed by slightly different metrics
        assert numbers == pytest.approx(committed[1], abs=0.5), name
