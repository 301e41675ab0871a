"""The report in a real browser: everything is visible, nothing runs, nothing is fetched, phones fit it."""

import base64
import json
import shutil

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'neyman[cli]'")
pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install 'neyman[dev]'")

from neyman.report import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="no chromium with chromedriver: apt-get install chromium chromium-driver",
)
EVIL = '<script>document.title="hacked"</script><img src=x onerror="document.title=\'hacked\'">'
SECTIONS = (
    "summary", "accuracy", "allocation", "effective", "calibration", "rollouts", "training", "prompts", "runs",
)  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory, synthetic):
    root = tmp_path_factory.mktemp("browser")
    for strategy in ("uniform", "vip", "sara"):
        for seed in (0, 1, 2):
            synthetic.write_run(root, strategy, seed, prompt_prefix=EVIL, reason=EVIL + "long" * 60)
    return write_report(root)


@pytest.fixture
def opened(browser, report):
    browser.get_log("performance")
    browser.get_log("browser")
    browser.get(report.as_uri())
    return browser


def narrow(browser, width):
    metrics = {"width": width, "height": 850, "deviceScaleFactor": 1, "mobile": width < 700}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def boxes(browser, selector):
    """Return [width, height, is visible] of what is displayed; ``.narrow`` and ``.wide`` take turns."""
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => { const b = e.getBoundingClientRect();"
        "return [b.width, b.height, e.checkVisibility({opacityProperty: true, visibilityProperty: true})]; })",
        selector,
    )


@pytest.mark.parametrize("width", [1280, 400])
def test_every_section_picture_and_table_is_visible(opened, width):
    narrow(opened, width)
    assert len(boxes(opened, "section")) == len(SECTIONS)
    for name in SECTIONS:
        ((wide, high, visible),) = boxes(opened, f"section#{name}")
        assert visible, name
        assert wide > 300, name
        assert high > 100, name
    shown = [box for box in boxes(opened, "svg.plot") if box[2]]
    assert len(shown) == 2 + 4 + 2 + 1 + 1 + 2
    assert all(wide > 250 and high > 60 for wide, high, _ in shown)
    assert all(visible and high > 30 for _, high, visible in boxes(opened, "table"))
    assert opened.execute_script("return [...document.images].every(i => i.naturalWidth > 0)")


def test_pictures_hold_shapes_within_their_frames(opened):
    narrow(opened, 1280)
    drawn = opened.execute_script(
        "return [...document.querySelectorAll('svg.plot')].filter(s => s.checkVisibility()).map(s => {"
        "const f = s.getBoundingClientRect(), b = s.getBBox();"
        "const text = [...s.querySelectorAll('text')].map(t => t.getBoundingClientRect());"
        "return [b.width, b.height, s.querySelectorAll('path').length, text.length,"
        " text.every(t => t.left >= f.left - 4 && t.right <= f.right + 4)]; })"
    )
    for wide, high, paths, texts, inside in drawn:
        assert wide > 100
        assert high > 40
        assert paths > 3
        assert texts > 3
        assert inside


def test_nothing_runs_nothing_fails_nothing_is_fetched(opened, report):
    assert opened.title == "uniform, sara and vip on rules/hard"
    assert opened.find_elements("css selector", "script, img[onerror]") == []
    assert [entry for entry in opened.get_log("browser") if entry["level"] != "INFO"] == []
    sent = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    urls = {m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"}
    assert {url for url in urls if not url.startswith("data:")} == {report.as_uri()}


@pytest.mark.parametrize("width", [1280, 768, 400, 320])
def test_no_page_scrolls_sideways(opened, width):
    narrow(opened, width)
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width


def test_dark_pages_are_dark_and_legible(opened):
    narrow(opened, 1280)
    script = (
        "const c = (e, p) => getComputedStyle(e)[p].match(/[0-9.]+/g).slice(0, 3).map(Number);"
        "const text = document.querySelector('svg.plot text');"
        "return [c(document.body, 'backgroundColor'), c(document.body, 'color'), c(text, 'fill')]"
    )
    try:
        for scheme, is_dark in (("light", False), ("dark", True)):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            page, ink, label = (sum(colour) / 3 for colour in opened.execute_script(script))
            assert (page < 60) == is_dark
            assert abs(page - ink) > 150
            assert abs(page - label) > 90
    finally:
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_screenshot_is_not_blank(opened, tmp_path):
    narrow(opened, 1280)
    shot = base64.b64decode(
        opened.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})["data"]
    )
    (tmp_path / "report.png").write_bytes(shot)
    assert len(shot) > 30_000
