"""How the page of a result looks, by day and by night, on a screen and on paper."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #182230; --soft: #5c6a80; --paper: #f5f7fa; --card: #fff;
  --line: #e3e8ef; --good: #12794a; --warn: #9a5b00; --bad: #c3272f;
  --a: #2b6be4; --b: #12935f; --c: #d47a10; --d: #c2347a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ecf3; --soft: #98a5ba; --paper: #0f131a;
  --card: #171d27; --line: #29323f; --good: #4cc88d; --warn: #f2b04e; --bad: #ff7479;
  --a: #78a6ff; --b: #4cc88d; --c: #f2a33c; --d: #f27ab2; } }
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--ink);
  background: var(--paper); font-variant-numeric: tabular-nums; }
main { max-width: 64rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; letter-spacing: -.02em; margin: 0; display: flex; gap: .8rem;
  align-items: center; flex-wrap: wrap; overflow-wrap: anywhere; }
h2 { font-size: .95rem; margin: 0 0 .5rem; }
p { margin: .3rem 0; } .lead { font-size: 1.05rem; margin-top: .6rem; }
.soft { color: var(--soft); font-size: .87rem; } .note { color: var(--sign); font-size: .92rem; }
.good { --sign: var(--good); } .warn { --sign: var(--warn); } .bad { --sign: var(--bad); }
.pill { color: var(--sign); background: color-mix(in srgb, var(--sign) 14%, transparent); border-radius: 99px;
  font-size: .74rem; font-weight: 650; letter-spacing: .04em; padding: .18rem .65rem; white-space: nowrap; }
h1 .pill { font-size: .85rem; padding: .25rem .85rem; }
.coverage { display: flex; gap: 3px; margin-top: 1.3rem; height: 10px; }
.coverage i { flex: 1; min-width: 1px; background: var(--sign); border-radius: 3px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1.1rem 1.25rem;
  margin-top: 1rem; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .75rem;
  margin: 1.3rem 0 0; }
dl .card { margin: 0; padding: .7rem 1rem .75rem; }
dt { color: var(--soft); font-size: .82rem; } dd { margin: 0; font-size: 1.45rem; font-weight: 600;
  letter-spacing: -.01em; line-height: 1.25; color: var(--sign, var(--ink)); white-space: nowrap; }
dd small { font-size: .85rem; font-weight: 400; letter-spacing: 0; color: var(--soft); margin-left: .3rem; }
svg { display: block; width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--soft); }
svg .title { font-size: 15px; font-weight: 650; fill: var(--ink); }
svg .unit { font-size: 12.5px; font-weight: 400; fill: var(--soft); }
svg .y { text-anchor: end; } svg .x { text-anchor: middle; } svg .grid { stroke: var(--line); }
svg .curve { fill: none; stroke-width: 2; stroke-linejoin: round; } svg .area { opacity: .13; }
svg .place { fill: var(--ink); opacity: 0; } svg .place:hover { opacity: .07; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th { text-align: left; color: var(--soft); font-weight: 500; } td, th { padding: .45rem .9rem .45rem 0;
  white-space: nowrap; vertical-align: top; } td.n, th.n { text-align: right;
  padding: .45rem 0 .45rem 1.1rem; }
td small { color: var(--soft); } tbody { border-top: 1px solid var(--line); }
.why td { color: var(--bad); white-space: normal; padding-top: 0; }
.bar { display: block; height: 3px; border-radius: 2px; background: var(--line); margin-top: 3px; }
.bar b { display: block; height: 3px; border-radius: 2px; background: var(--a); margin-left: auto; }
@media print { body { background: none; } .card { break-inside: avoid; } main { padding: 0; } }
"""
