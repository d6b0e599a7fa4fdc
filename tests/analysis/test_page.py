"""The page of a report, in a real browser without a network. Skipped where there is no Chromium."""

import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers.synthetic import Told, fill, grid_study, noise, row_of
from playwright.sync_api import Browser, Locator, Page, Playwright, sync_playwright

from greedyac.analysis.figures import COLOURS
from greedyac.analysis.load import curves_of, load, with_values
from greedyac.analysis.payload import DARK_COLOURS
from greedyac.analysis.report import analyse
from greedyac.analysis.stats import BANDS, Band, band_of
from greedyac.cli import main
from greedyac.results.files import publish_rows
from greedyac.results.schema import BINS, SCHEMA
from greedyac.training.config import Run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="install chromium")
FIGURES = ("learning-curves", "sensitivity", "variance", "heat-maps", "comparison")
AGENTS = ("greedy-ac", "sac")


def told(run: Run) -> Told:
    """Curves that rise to a level which depends on everything, and some divergence."""
    hypers = run.config.hypers
    if hypers["critic_step_size"] == 1e-2 and run.seed == 3:
        return Told(None)
    best, weight = (1.0, 60) if run.config.env == "Pendulum-CA" else (0.1, 20)
    level = 40 * np.log10(hypers["critic_step_size"]) - weight * abs(hypers["actor_step_size_scale"] - best)
    level += 5 * noise(run)
    level -= (30 if run.config.agent == "sac" else 3) * np.log10(hypers["entropy_scale"]) ** 2
    level -= 50 * ["MountainCar-CA", "Pendulum-CA"].index(run.config.env)
    curve = level - 300 + 300 * np.linspace(0, 1, BINS) + np.random.default_rng(run.seed).normal(size=BINS)
    return Told(float(curve.mean()), float(curve.max()), [float(value) for value in curve])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    fill(folder / "store", grid_study(AGENTS, ("MountainCar-CA", "Pendulum-CA"), "0-9", "0-4"), told)
    assert main(["report", "--store", str(folder / "store"), "--out", str(folder / "report"), "--no-figures"]) == 0
    return folder


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=sandbox)
    yield browser
    browser.close()


def opened(browser: Browser, report: Path, width: int = 1100, scheme: Any = "light") -> tuple[Page, list[str]]:
    """The page, ready, and what it asked for or complained of."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True, accept_downloads=True
    )
    page, said = context.new_page(), list[str]()
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("request", lambda request: said.append(f"request: {request.url}"))
    page.goto((report / "report.html").as_uri())
    page.wait_for_function("document.documentElement.dataset.ready")
    return page, said


@pytest.fixture
def page(browser: Browser, store: Path) -> Iterator[Page]:
    page, _ = opened(browser, store / "report")
    yield page
    page.context.close()


def drawn(figure: Locator) -> str:
    """What a figure shows."""
    return str(
        figure.evaluate(
            "home => JSON.stringify([home.querySelector('.plot').data, home.querySelector('.plot').layout])"
        )
    )


def traces(figure: Locator) -> list[dict[str, Any]]:
    """The traces of a figure, typed arrays as lists."""
    return list(
        json.loads(
            figure.locator(".plot").evaluate(
                """plot => JSON.stringify(plot.data,
                    (key, value) => ArrayBuffer.isView(value) ? Array.from(value) : value)"""
            )
        )
    )


@needs_browser
def test_it_asks_for_nothing_and_complains_of_nothing(browser: Browser, store: Path) -> None:
    for scheme in ("light", "dark"):
        page, said = opened(browser, store / "report", scheme=scheme)
        assert said == [f"request: {(store / 'report' / 'report.html').as_uri()}"]
        assert page.locator("#problem").is_hidden()
        assert [page.locator(f"#{name} .plot svg").count() > 0 for name in FIGURES] == [True] * len(FIGURES)
        page.context.close()


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("name", FIGURES)
def test_every_value_of_every_control_changes_the_figure(page: Page, name: str) -> None:
    figure = page.locator(f"#{name}")
    if name == "learning-curves":
        page.select_option("[name=learning-curves-view]", "one")  # shows all controls
    tried = 0
    for control in figure.locator("select:visible").all():
        values, chosen = control.evaluate("select => [[...select.options].map(option => option.value), select.value]")
        seen = set()
        for value in values:
            control.select_option(value)
            seen.add(drawn(figure))
        assert len(seen) == len(values), control.get_attribute("name")
        control.select_option(chosen)
        tried += 1
    for box in figure.locator("input").all():
        before = drawn(figure)
        box.check()
        assert drawn(figure) != before
    assert tried >= 1


@needs_browser
@pytest.mark.parametrize("band", BANDS)
def test_the_curves_are_those_of_python(page: Page, store: Path, band: Band) -> None:
    page.select_option("[name=learning-curves-env]", "Pendulum-CA")
    page.select_option("[name=learning-curves-band]", band)
    shown = traces(page.locator("#learning-curves"))
    found = analyse(load(store / "store"))
    spread = curves_of(with_values(found.results.runs))
    rounding = float(np.ptp(spread)) / 65535
    checked = 0
    for one in found.chosen("env"):
        if one.env != "Pendulum-CA":
            continue
        mean, low, high = band_of(curves_of(one.runs), band)
        [line] = [trace for trace in shown if str(trace.get("name")).startswith(f"{one.choice.agent}, ")]
        area = shown[shown.index(line) - 1]
        np.testing.assert_allclose(line["y"], mean, atol=rounding)
        assert line["x"] == [1000 * (place + 1) for place in range(BINS)]
        slack = 0.15 * float((high - low).max()) if band == "bootstrap" else 2 * rounding  # other draws, and fewer
        np.testing.assert_allclose(area["y"], [*high, *low[::-1]], atol=slack)
        checked += 1
    assert checked == 2


@pytest.mark.slow
@needs_browser
def test_single_runs_of_a_chosen_setting(page: Page, store: Path) -> None:
    page.select_option("[name=learning-curves-view]", "one")
    page.select_option("[name=learning-curves-agent]", "sac")
    for place, value in enumerate(("0.01", "1", "10")):
        page.select_option(f"[name=learning-curves-hyper{place}]", value)
    page.check("[name=learning-curves-single]")
    shown = traces(page.locator("#learning-curves"))
    single = {trace["name"]: trace["y"] for trace in shown if "seed" in str(trace.get("name"))}
    assert list(single) == [f"sac, seed {seed}" for seed in range(10)]
    results = load(store / "store")
    texts = ('"critic_step_size": 0.01,', '"actor_step_size_scale": 1.0,', '"entropy_scale": 10.0')
    setting = [pl.col("hypers").str.contains(text, literal=True) for text in texts]
    runs = with_values(results.runs).filter(pl.col("env") == "MountainCar-CA", pl.col("agent") == "sac", *setting)
    np.testing.assert_allclose(list(single.values()), curves_of(runs), atol=0.05)
    assert len(set(single["sac, seed 3"])) == 1  # it diverged: the lowest value on its environment, all along
    legend = page.locator("#learning-curves .legendtext").all_text_contents()
    assert legend == ["sac, 10 runs, 1 diverged"]


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("name", FIGURES)
def test_hovering_shows_numbers(page: Page, name: str) -> None:
    plot = page.locator(f"#{name} .plot")
    plot.scroll_into_view_if_needed()
    target = plot.locator(".point, .nsewdrag").last.bounding_box()  # a marker or a bar, or else the whole area
    assert target is not None
    page.mouse.move(target["x"] + target["width"] / 2 - 3, target["y"] + target["height"] / 2)
    page.mouse.move(target["x"] + target["width"] / 2, target["y"] + target["height"] / 2)
    page.wait_for_function("name => document.querySelector(`#${name} .hoverlayer text`)", arg=name)
    assert re.search(r"\d", " ".join(plot.locator(".hoverlayer text").all_text_contents()))


@pytest.mark.slow
@needs_browser
def test_figures_can_be_downloaded(page: Page) -> None:
    for format, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with page.expect_download() as download:
            page.locator("#sensitivity").get_by_role("button", name=f"Download {format}").click()
        assert download.value.suggested_filename == f"sensitivity-MountainCar-CA.{format.lower()}"
        assert Path(download.value.path()).read_bytes().startswith(start)


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", [360, 390, 768, 1400])
def test_nothing_is_cut_at_any_width(browser: Browser, store: Path, width: int) -> None:
    page, _ = opened(browser, store / "report", width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cut = page.evaluate(
        """() => [...document.querySelectorAll(".plot")].flatMap((plot) => {
            const home = plot.getBoundingClientRect();
            return [...plot.querySelectorAll("text")].filter((text) => {
                const box = text.getBoundingClientRect();
                return box.width && (box.left < home.left - 1 || box.right > home.right + 1
                                     || box.top < home.top - 1 || box.bottom > home.bottom + 1);
            }).map((text) => text.textContent);
        })"""
    )
    assert cut == []
    page.context.close()


@needs_browser
@pytest.mark.parametrize("width", [360, 1400])
def test_evaluations_are_a_picture_that_fits(browser: Browser, tmp_path: Path, width: int) -> None:
    study = grid_study(("sac",), ("Pendulum-CA",), "0-1", sweep="critic_step_size = [1e-3]")
    store = fill(tmp_path / "store", study, lambda _: None)
    told = {"eval_steps": 50_000, "eval_curve": [1.0, 2.0]}
    rows = [{**row_of(run, Told(float(run.seed))), **told} for run in study.runs().values()]
    publish_rows(store.chunks, pl.DataFrame(rows, SCHEMA))
    assert main(["report", "--store", str(tmp_path / "store"), "--out", str(tmp_path / "report"), "--no-figures"]) == 0
    page, said = opened(browser, tmp_path / "report", width)
    image = page.locator("figure img")
    assert image.evaluate("image => image.naturalWidth") > 1000
    assert (box := image.bounding_box()) is not None
    assert 0.7 * min(width, 1000) < box["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert said == [f"request: {(tmp_path / 'report' / 'report.html').as_uri()}"]
    page.context.close()


@pytest.mark.slow
@needs_browser
def test_light_and_dark_follow_the_reader(browser: Browser, store: Path) -> None:
    page, _ = opened(browser, store / "report", scheme="light")
    read = """() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,
                     document.querySelector('#sensitivity .plot').layout.paper_bgcolor]"""
    light = page.evaluate(read)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("document.querySelector('#sensitivity .plot').layout.paper_bgcolor === '#14181d'")
    dark = page.evaluate(read)
    assert not set(light) & set(dark)
    for paper, ink, _ in (light, dark):
        assert contrast(paper, ink) >= 7  # WCAG's strictest level
    page.context.close()


def contrast(*colours: str) -> float:
    """The contrast ratio of two colours, as WCAG 2 defines it."""
    light, dark = sorted((luminance(re.findall(r"\d+", colour)[:3]) for colour in colours), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(channels: list[str]) -> float:
    shares = [int(channel) / 255 for channel in channels]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


BLINDNESS = {  # Machado, Oliveira and Fernandes (2009), full severity, on linear RGB
    "none": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def lab(colour: str, blindness: str) -> np.ndarray[Any, Any]:
    """A colour as seen, in CIELAB."""
    shares = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(BLINDNESS[blindness]) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ seen / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("blindness", BLINDNESS)
@pytest.mark.parametrize("colours", [COLOURS, DARK_COLOURS], ids=["light", "dark"])
def test_colours_can_be_told_apart(colours: tuple[str, ...], blindness: str) -> None:
    """A distance of 10 in CIELAB is seen at a glance."""
    seen = [lab(colour, blindness) for colour in colours]
    assert min(float(np.linalg.norm(one - two)) for one, two in itertools.combinations(seen, 2)) > 10
