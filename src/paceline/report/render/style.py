"""The look of the HTML report: one style sheet, for light, dark, paper and phone."""

from paceline.record.palette import PHASE_COLOURS, phase_style_sheet

STYLE = """
:root{color-scheme:light dark;--bg:#fcfcfb;--card:#fff;--ink:#1c1f23;--soft:#5d646c;--rule:#e2e4e7;
--accent:#0b62a8;--good:#0a7d4f;--warn:#9a5b00;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#e69f00;--c5:#56b4e9;--c6:#8c6bb1;
--c7:#b2431e;--c8:#6b7a86;--c9:#a8b0b6}
@media (prefers-color-scheme:dark){:root{--bg:#14171a;--card:#1c2024;--ink:#e8eaec;--soft:#a2aab2;
--rule:#33393f;--accent:#6db6f2;--good:#4fc592;--warn:#e8ad4d;
--c0:#4fa8e0;--c1:#f08a4b;--c2:#3cc79b;--c3:#e39cc5;--c4:#f2b93b;--c5:#8ccdf3;--c6:#b59ad6;
--c7:#e07a55;--c8:#98a5b0;--c9:#6d767d}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.2rem clamp(.8rem,3vw,2rem) 3rem;max-width:76rem;background:var(--bg);
color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.5rem;line-height:1.25;margin:.2rem 0;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2rem 0 .6rem}
h3{font-size:1rem;margin:0 0 .25rem}
.soft{color:var(--soft)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.6rem;
margin:1rem 0}
.tile,.verdict,article,figure{background:var(--card);border:1px solid var(--rule);
border-radius:.5rem;padding:.7rem .9rem}
.tile b{display:block;font-size:1.25rem;line-height:1.3;font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:.82rem}
.verdict{border-left:.35rem solid var(--accent);font-size:1.05rem}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,25rem),1fr));gap:.8rem}
figure{margin:0;padding:.6rem .6rem .3rem}
figcaption{font-weight:600;margin:0 .3rem .2rem}
.keys{display:flex;flex-wrap:wrap;gap:.1rem .8rem;font-size:.78rem;color:var(--soft);margin:0 .3rem}
.key i{display:inline-block;width:.7rem;height:.7rem;border-radius:2px;margin-right:.3rem}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--soft);font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
.grid{stroke:var(--rule);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round}
.touch{fill:transparent}.touch:hover{fill:var(--ink);fill-opacity:.25}
.questions{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:.8rem}
article p{margin:.2rem 0}
article .small{font-size:.82rem;color:var(--soft)}
article .missing{font-size:.85rem;color:var(--warn)}
.remedy{font-size:.88rem;color:var(--good);overflow-wrap:anywhere}
code{font:.92em ui-monospace,SFMono-Regular,Menlo,monospace;background:color-mix(in srgb,
var(--rule) 55%,transparent);padding:.05em .3em;border-radius:.25em;overflow-wrap:anywhere}
.scroll{overflow-x:auto}
.track{display:flex;height:1.5rem;border-radius:.3rem;overflow:hidden;margin:0 0 .6rem}
.track+p,.keys+p{margin:.2rem 0}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.92rem}
td,th{padding:.28rem .6rem;border-bottom:1px solid var(--rule);text-align:left}
td.n,th.n{text-align:right;white-space:nowrap}
@media (max-width:40rem){.what{display:none}table{font-size:.82rem}td,th{padding:.28rem .25rem}
td.n,th.n{white-space:normal;overflow-wrap:anywhere}}
.bar{display:inline-block;height:.7rem;border-radius:2px;vertical-align:middle}
td.bars{width:8rem;min-width:4rem}
details{margin:.6rem 0}summary{cursor:pointer;color:var(--accent)}
pre{overflow-x:auto;font-size:.8rem}
.warning{border-left:.35rem solid var(--warn);padding:.2rem .7rem;margin:.4rem 0}
@media print{:root{color-scheme:light;--bg:#fff;--card:#fff;--ink:#000;--soft:#444;--rule:#bbb;
--accent:#0b62a8;--good:#0a7d4f;--warn:#9a5b00;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#e69f00;--c5:#56b4e9;--c6:#8c6bb1;
--c7:#b2431e;--c8:#6b7a86;--c9:#a8b0b6}
body{font-size:11px;max-width:none;padding:0}article,figure,.tile,.verdict{break-inside:avoid}
.plots{grid-template-columns:1fr 1fr}.questions{grid-template-columns:1fr 1fr}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""

COLOURS = "".join(
    f".c{n}{{stroke:var(--c{n})}}.dot.c{n}{{fill:var(--c{n})}}"
    f".b{n}{{fill:var(--c{n});background:var(--c{n})}}"
    for n in range(10)
)


PHASES = phase_style_sheet() + "".join(
    f".phase-{name}{{fill:var(--{name});background:var(--{name})}}" for name in PHASE_COLOURS
)


def phase_class(phase: str) -> str:
    """Paints a bar in the colour that the phase has everywhere."""
    return f"phase-{phase}"


def page(title: str, body: str) -> str:
    """`title` and `body` are HTML already."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}{COLOURS}{PHASES}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )
