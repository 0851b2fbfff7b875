"""The HTML page in a browser: it loads without a word on the console and without a request, tables sort and open,
the flame graph zooms and searches, by mouse and by keyboard. DYNPROF_PICTURES=DIR keeps pictures of it."""

import os
import subprocess
from pathlib import Path

import pytest

import browser as browsers
import support

FAKE_TRACE = support.BUILD / "tests" / "fake_trace"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = browsers.Browser(tmp_path_factory.mktemp("browser"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for scenario in ("training", "hostile", "empty"):
        subprocess.run([FAKE_TRACE, scenario, "html", folder / f"{scenario}.html"], check=True, timeout=60)
    return folder


@pytest.fixture
def training(browser, pages):
    browser.console.clear()
    browser.requests.clear()
    browser.look()
    browser.open(pages / "training.html")
    yield browser
    assert browser.console == []


def status(browser):
    return browser.evaluate("document.getElementById('flame-status').textContent")


def column(browser, table, index):
    return browser.evaluate(
        f"[...document.querySelectorAll('#{table} tbody tr')].map((row) => row.cells[{index}].textContent)"
    )


@pytest.mark.parametrize("scenario", ["training", "hostile", "empty"])
def test_it_loads_alone_and_in_silence(browser, pages, scenario):
    browser.console.clear()
    browser.requests.clear()
    browser.look()
    path = pages / f"{scenario}.html"
    assert browser.open(path) < 20
    assert browser.console == []
    assert browser.requests == [path.resolve().as_uri()]
    assert browser.evaluate("document.querySelectorAll('section h2').length") >= 3
    # Nothing but what the page's own script makes, whatever the names were.
    assert browser.evaluate("document.querySelectorAll('b, img, iframe, object, embed, link, form').length") == 0
    assert browser.evaluate("document.querySelectorAll('script').length") == 2


def test_a_click_on_a_column_sorts(training):
    header = "#compiles thead th:nth-child(3) button"
    training.click_on(header)
    down = [float(cell) for cell in column(training, "compiles", 2)]
    assert len(down) == 5 and down == sorted(down, reverse=True)
    training.click_on(header)
    assert [float(cell) for cell in column(training, "compiles", 2)] == sorted(down)
    assert training.evaluate("document.querySelector('#compiles th[aria-sort]').ariaSort") == "ascending"


def test_a_row_opens_by_keyboard(training):
    training.evaluate("document.querySelector('#compiles .opener').focus()")
    training.key("Enter", "\r")
    assert training.evaluate("document.querySelector('#compiles .opener').ariaExpanded") == "true"
    assert "samples" in training.evaluate("document.querySelector('#compiles td.details').textContent")
    training.key("Enter", "\r")
    assert training.evaluate("document.querySelector('#compiles td.details')") is None


def test_the_flame_graph_zooms(training):
    whole = status(training)
    training.click_on("#flame-canvas canvas", offset=(20, 18 * 1.5))
    assert status(training) != whole
    # The zoomed frame is as wide as the canvas: its right end is itself.
    zoomed = training.evaluate("window.flameView.title(window.flameView.zoomed)")
    training.evaluate("window.scrollTo(0, 0)")
    assert training.evaluate(
        "window.flameView.rectangles.find((one) => one.view === window.flameView.zoomed).width"
    ) == training.evaluate("window.flameView.frame.clientWidth")
    assert status(training).startswith(zoomed)
    training.key("Escape")  # the canvas has the focus since the click
    assert status(training) == whole


def test_the_flame_graph_by_keyboard(training):
    training.evaluate("document.querySelector('#flame-canvas canvas').focus()")
    seen = {status(training)}
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        training.key(key)
        seen.add(status(training))
    assert len(seen) >= 3
    assert training.evaluate("window.flameView.zoomed === window.flameView.current")
    training.key("Home")
    assert training.evaluate("window.flameView.zoomed === window.flameView.root")
    training.key("/")
    assert training.evaluate("document.activeElement.id") == "flame-search"


def test_search_counts_each_stack_once(training):
    training.type("#flame-search", "convert_frame")
    text = status(training)
    # All but the backward's 5 samples of 10 ms; functions that call each other are counted once.
    assert text == "4 functions match; stacks with them: 480 ms, 90.6 % of what is shown", text
    training.evaluate("document.getElementById('flame-search').value = ''")
    training.type("#flame-search", "no such function")
    assert status(training).startswith("0 functions match")


def test_wall_cpu_and_bottom_up_add_up(training):
    whole = "window.flameView.root.b"
    wall = training.evaluate(whole)
    cpu, wait = (
        training.evaluate(f"window.flameView.options.value = '{value}', window.flameView.rebuild(), {whole}")
        for value in ("cpu", "wait")
    )
    assert wall == cpu + wait and cpu > 0
    training.evaluate("window.flameView.options.value = 'wall', window.flameView.rebuild()")
    down = training.evaluate("window.flameView.options.split = false, window.flameView.rebuild(), " + whole)
    training.click_on("#flame-inverted")
    assert training.evaluate(whole) == down == wall
    # Bottom-up, the first level is what functions took themselves: all of it.
    level = "window.flameView.tree.childrenOf(window.flameView.root)"
    assert training.evaluate(f"{level}.reduce((sum, child) => sum + child.b, 0)") == wall


def test_two_trace_ids_are_compared(training):
    groups = training.evaluate("window.flameView.groups.map((group) => group.name)")
    first, second = groups.index("0/0"), groups.index("0/1")
    training.evaluate(f"window.flameView.choose('{second}', '{first}')")
    text = status(training)
    assert "→" in text and "×" in text, text
    assert training.evaluate("!window.flameView.differenceControls.hidden")


def test_the_timeline_by_keyboard(training):
    training.evaluate("document.querySelector('#timeline-canvas canvas').focus()")
    training.key("ArrowRight")
    text = training.evaluate("document.getElementById('timeline-status').textContent")
    assert text.startswith("compile ")
    training.key("Enter")
    assert training.evaluate("window.timelineView.to - window.timelineView.from < window.timelineView.whole")
    training.key("Escape")
    assert training.evaluate("window.timelineView.to - window.timelineView.from === window.timelineView.whole")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [(1400, 900), (800, 600)], ids=["wide", "narrow"])
def test_nothing_is_wider_than_the_window(browser, pages, dark, size):
    browser.console.clear()
    browser.look(*size, dark=dark)
    browser.open(pages / "hostile.html")
    assert browser.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(", "))) < 200) == dark
    assert browser.console == []
    folder = os.environ.get("DYNPROF_PICTURES")
    if folder:
        browser.picture(Path(folder) / f"{'dark' if dark else 'light'}-{size[0]}.png", whole=True)
