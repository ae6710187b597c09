// Charts: uPlot in the colours of the page, with a table behind each for those who cannot see it.

import { html, useEffect, useRef, useState } from "/page/vendor/preact-htm.js";
import { count, moment, timeOfDay, utc } from "./format.js";

// A canvas does not know light-dark(): the browser resolves it as the colour of an element.
function colour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const resolved = getComputedStyle(probe).color;
  probe.remove();
  return resolved;
}

// Bars of a row: asked in the back, refused in front, on one scale.
export function Spark({ points, label }) {
  if (!points?.length) return html`<span class="quiet">–</span>`;
  const most = Math.max(1, ...points.map(([asked]) => asked));
  const width = 100 / points.length;
  return html`<svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" role="img" aria-label=${label}>
    ${points.map(([asked, refused], n) => html`
      <rect class="asked" x=${n * width} width=${width * 0.8} y=${20 - (20 * asked) / most} height=${(20 * asked) / most} />
      ${refused > 0 && html`<rect class="refused" x=${n * width} width=${width * 0.8}
        y=${20 - Math.max(1.5, (20 * refused) / most)} height=${Math.max(1.5, (20 * refused) / most)} />`}`)}
  </svg>`;
}

function options(width, series, marks) {
  const ink = colour("--quiet");
  const grid = { stroke: colour("--line"), width: 1 };
  const font = "12px system-ui, sans-serif";
  const axis = { stroke: ink, grid, ticks: grid, font };
  return {
    width,
    height: 240,
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    legend: { live: true },
    scales: { x: { time: true }, refused: { range: (_, __, high) => [0, Math.max(4, high * 1.15)] }, asked: { range: (_, __, high) => [0, Math.max(4, high * 1.1)] } },
    axes: [
      { ...axis, values: (_, ticks) => ticks.map(timeOfDay), space: 70 },
      { ...axis, scale: "asked", values: (_, ticks) => ticks.map(count), size: 52 },
      { ...axis, scale: "refused", side: 1, grid: { show: false }, values: (_, ticks) => ticks.map(count), size: 52, stroke: colour("--refused") },
    ],
    series: [
      { value: (_, at) => (at === null || at === undefined ? "–" : `${moment(at)} (${utc(at)})`), label: "time" },
      ...series.map((each) => ({
        label: each.label,
        scale: each.scale,
        stroke: colour(each.colour),
        fill: each.fill ? colour(`${each.colour}-fill`) : undefined,
        dash: each.dash,
        width: 1.6,
        spanGaps: false,
        points: { show: false },
        value: (_, value) => (value === null || value === undefined ? "–" : count(value)),
      })),
    ],
    hooks: {
      draw: [
        (plot) => {
          const context = plot.ctx;
          context.save();
          context.fillStyle = colour("--ink");
          for (const mark of marks()) {
            const x = plot.valToPos(mark.at, "x", true);
            if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
            const y = plot.bbox.top + plot.bbox.height - 8 * devicePixelRatio;
            const size = 5 * devicePixelRatio;
            context.beginPath();
            context.moveTo(x, y - size);
            context.lineTo(x + size, y);
            context.lineTo(x, y + size);
            context.lineTo(x - size, y);
            context.fill();
          }
          context.restore();
        },
      ],
    },
  };
}

const SERIES = [
  { key: "allowed", label: "allowed", scale: "asked", colour: "--allowed", fill: true },
  { key: "refused", label: "refused", scale: "refused", colour: "--refused", fill: true },
  { key: "shadowed", label: "would be refused (shadow)", scale: "refused", colour: "--shadow", dash: [5, 4] },
];

// `data` has start, width and a list for each series; near the limit counts as allowed.
export function Timeline({ data, marks = [], title }) {
  const box = useRef(null);
  const plot = useRef(null);
  const shown = useRef(marks);
  const [asTable, setAsTable] = useState(false);
  shown.current = marks;
  const columns = () => {
    const times = data.allowed.map((_, n) => data.start + n * data.width);
    const allowed = data.allowed.map((each, n) => (each === null ? null : each + data.near_limit[n]));
    return [times, allowed, data.refused, data.shadowed];
  };
  useEffect(() => {
    if (asTable || !data || !box.current) return undefined;
    const make = () => {
      plot.current?.destroy();
      plot.current = new window.uPlot(
        options(box.current.clientWidth, SERIES, () => shown.current), columns(), box.current,
      );
    };
    make();
    const resize = new ResizeObserver(() => plot.current?.setSize({ width: box.current.clientWidth, height: 240 }));
    resize.observe(box.current);
    const theme = matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", make);
    addEventListener("penstock-theme", make);
    return () => {
      resize.disconnect();
      theme.removeEventListener("change", make);
      removeEventListener("penstock-theme", make);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [asTable, Boolean(data)]);
  useEffect(() => {
    if (data) plot.current?.setData(columns());
  }, [data]);
  if (!data) return html`<div class="chart empty">Loading…</div>`;
  return html`<figure class="chart" aria-label=${title}>
    <button class="link corner" aria-pressed=${asTable} onClick=${() => setAsTable(!asTable)}>${asTable ? "Chart" : "Table"}</button>
    ${asTable ? html`<${Numbers} data=${data} marks=${marks} />` : html`<div ref=${box}></div>`}
  </figure>`;
}

// The same figures, summed to at most thirty rows.
function Numbers({ data, marks }) {
  const size = Math.ceil(data.allowed.length / 30);
  const rows = [];
  for (let first = 0; first < data.allowed.length; first += size) {
    const at = data.start + first * data.width;
    const until = at + size * data.width;
    const seen = data.allowed.slice(first, first + size).some((each) => each !== null);
    const sum = (name) => data[name].slice(first, first + size).reduce((a, b) => a + (b ?? 0), 0);
    const what = marks.filter((mark) => mark.at >= at && mark.at < until).map((mark) => mark.text);
    rows.push({ at, seen, allowed: sum("allowed") + sum("near_limit"), refused: sum("refused"), shadowed: sum("shadowed"), what });
  }
  return html`<div class="scroll"><table>
    <thead><tr><th>from</th><th class="number">allowed</th><th class="number">refused</th><th class="number">shadow</th><th>changes</th></tr></thead>
    <tbody>${rows.reverse().map((row) => html`<tr>
      <td title=${utc(row.at)}>${timeOfDay(row.at)}</td>
      ${row.seen
        ? html`<td class="number">${count(row.allowed)}</td><td class="number">${count(row.refused)}</td><td class="number">${count(row.shadowed)}</td>`
        : html`<td class="quiet" colspan="3">not observed</td>`}
      <td>${row.what.join("; ")}</td></tr>`)}</tbody>
  </table></div>`;
}
