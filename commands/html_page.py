"""The frame of HTML pages that load nothing from a network: head, colours of light and dark screens, tables. Pure."""

from __future__ import annotations

from html import escape
from string import Template

_DOCUMENT = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
:root { --back: #fff; --text: #1d2129; --dim: #626b78; --line: #dfe3e8; --box: #f6f7f9;
  --a: #2563c9; --good: #1f7a48; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --back: #15181d; --text: #e4e7eb; --dim: #9aa4b1; --line: #313740;
  --box: #1d2127; --a: #6ea3f7; --good: #6cc997; --bad: #f28b82; } }
body { margin: 0 auto; padding: 24px 16px 48px; max-width: 960px; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 26px; margin: 0; } h2 { font-size: 18px; margin: 32px 0 8px; }
p.sub { color: var(--dim); margin: 4px 0 16px; } .good { color: var(--good); } .bad { color: var(--bad); }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
td, th { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: anywhere; } th { font-weight: 500; color: var(--dim); white-space: nowrap; width: 1%; }
td.num, th.num { text-align: right; font-variant-numeric: tabular-nums; }
$style</style>
</head>
<body>
$body</body>
</html>
""")


def document(title: str, *, style: str, body: str) -> str:
    """Return a page with a title of plain text, and with more rules of style than all pages have."""
    return _DOCUMENT.substitute(title=escape(title), style=style, body=body)
