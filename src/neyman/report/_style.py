"""The page's style sheet: system fonts, light and dark, phone to desk."""

from __future__ import annotations

from neyman.report._looks import all_colours

_RULES = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 var(--font); }
main, header.top, footer { max-width: 1120px; margin: 0 auto; padding: 0 20px; }
header.top { padding-top: 44px; }
.eyebrow { margin: 0; color: var(--accent); font-weight: 650; letter-spacing: .09em; font-size: 13px;
  text-transform: uppercase; }
h1 { margin: 4px 0 6px; font-size: clamp(27px, 5vw, 40px); line-height: 1.15; letter-spacing: -.02em;
  overflow-wrap: anywhere; text-wrap: balance; }
.facts { margin: 0; padding: 0; list-style: none; display: flex; flex-wrap: wrap; gap: 2px 18px;
  color: var(--muted); font-size: 14.5px; overflow-wrap: anywhere; }
section { margin: 22px 0; padding: 26px 28px 28px; background: var(--paper); border: 1px solid var(--line);
  border-radius: 16px; min-width: 0; }
h2 { margin: 0 0 4px; font-size: 21px; letter-spacing: -.01em; line-height: 1.3; }
h3 { margin: 26px 0 4px; font-size: 16px; }
p { margin: 8px 0; max-width: 78ch; }
.lead { color: var(--muted); margin-top: 2px; font-size: 15px; }
section.verdict { border-left: 5px solid var(--muted); }
section.verdict.won { border-left-color: var(--good); }
.verdict h2 { font-size: clamp(21px, 3.4vw, 27px); margin-bottom: 8px; text-wrap: balance; }
.won h2::before { content: "✓ "; color: var(--good); }
.notes { margin: 14px 0 0; padding: 12px 16px; border-radius: 10px; background: var(--warn); font-size: 14.5px; }
.notes ul { margin: 4px 0 0; padding-left: 20px; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: 8px; margin: 20px 0 0; }
nav a { padding: 5px 13px; border: 1px solid var(--line); border-radius: 99px; background: var(--paper);
  color: var(--ink); text-decoration: none; font-size: 14px; }
nav a:hover { border-color: var(--accent); color: var(--accent); }
a:focus-visible, .scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--accent);
  outline-offset: 2px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 12px 0 2px; padding: 0; list-style: none;
  font-size: 14.5px; }
.legend i { font-style: normal; margin-right: 6px; }
.legend i.box { display: inline-block; width: 12px; height: 12px; border-radius: 3px; vertical-align: -1px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 20px 28px;
  margin-top: 14px; }
.plots.narrow { display: none; }
figure { margin: 0; min-width: 0; }
figcaption { font-weight: 600; font-size: 15px; margin-bottom: 6px; }
svg.plot { display: block; width: 100%; height: auto; overflow: visible; }
svg.plot * { stroke-linejoin: round; stroke-linecap: butt; }
svg.plot text { font-family: var(--font) !important; }
.scroll { overflow-x: auto; margin-top: 2px; border-radius: 8px; }
table { border-collapse: collapse; min-width: min(100%, 640px); font-size: 14.5px; font-variant-numeric: tabular-nums; }
p.caption { color: var(--muted); font-size: 13.5px; margin: 20px 0 0; }
th, td { text-align: left; padding: 7px 26px 7px 0; border-bottom: 1px solid var(--grid); vertical-align: top;
  font-weight: 400; }
thead th { color: var(--muted); font-size: 13px; vertical-align: bottom; line-height: 1.3; min-width: 74px;
  border-bottom-color: var(--muted); }
tbody th { white-space: nowrap; font-weight: 600; }
tbody th, thead th:first-child { position: sticky; left: 0; background: var(--paper); z-index: 1; }
td:not(.n) { overflow-wrap: anywhere; min-width: 130px; max-width: 360px; }
tbody tr:last-child > * { border-bottom: 0; }
.n { text-align: right; white-space: nowrap; }
th.n { white-space: normal; }
th:last-child, td:last-child { padding-right: 2px; }
td small { display: block; color: var(--muted); font-size: 12.5px; }
td b { font-weight: 600; }
.bar { display: flex; width: 190px; height: 14px; border-radius: 4px; overflow: hidden; margin: 4px 0 3px auto; }
.bar span { display: block; height: 100%; }
.empty { color: var(--muted); font-style: italic; }
details { margin-top: 14px; }
summary { cursor: pointer; font-weight: 600; }
pre { overflow: auto; max-height: 420px; padding: 14px; border-radius: 10px; background: var(--page);
  font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
dl { margin: 10px 0 0; max-width: 82ch; }
dt { font-weight: 600; margin-top: 10px; }
dd { margin: 2px 0 0; color: var(--muted); }
footer { padding: 6px 20px 48px; color: var(--muted); font-size: 13.5px; }
@media (max-width: 620px) {
  main, header.top, footer { padding-left: 12px; padding-right: 12px; }
  header.top { padding-top: 26px; }
  .plots.narrow { display: grid; }
  .plots.wide { display: none; }
  section { padding: 20px 16px 22px; border-radius: 13px; margin: 14px 0; }
}
@media print { body { background: #fff; } section { break-inside: avoid; } nav { display: none; } }
"""

_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif'
_LIGHT = {"page": "#f4f6f8", "line": "#e0e5ea", "accent": "#0068a3", "good": "#00805c", "warn": "#fff4dc"}
_DARK = {"page": "#0e1319", "line": "#28323d", "accent": "#63bdf0", "good": "#3ccf9f", "warn": "#33290f"}


def style_sheet() -> str:
    """Return the CSS, with every colour as a variable and its dark twin."""
    colours = all_colours()
    light = {**{c.name: c.light for c in colours}, **_LIGHT}
    dark = {**{c.name: c.dark for c in colours}, **_DARK}
    return (
        f":root {{ color-scheme: light dark; --font: {_FONT}; {_variables(light)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(dark)} }} }}\n{_RULES.strip()}\n"
    )


def _variables(values: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in values.items())
