// Values of chosen tensors over the epochs, and their histogram in one of them.

function showValues(process) {
  const host = at("value-cards");
  at("values-section").hidden = !process.values.length;
  at("values-link").hidden = !process.values.length;
  const shown = process.values.map(valueCard);
  host.replaceChildren(...shown.map(({ card }) => card));
  return () => shown.forEach(({ show }) => show());
}

const figure = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(5))));

function valueCard(series) {
  const { figures, epochs } = series;
  const plot = make("div", { class: "plot" });
  const bars = make("div", { class: "plot" });
  const told = make("p", { "aria-live": "polite" });
  const title = make("h3", {}, `${series.name} (${counted(series.elements, "item")} of ${series.type})`);
  const note = make("p", { class: "muted" }, series.note ? `${series.note}.` : "");
  if (!epochs.length) return { card: make("div", { class: "card" }, title, make("p", {}, "No epoch has these contents."), note), show: () => null };
  const bad = figures.nan.findIndex((count, i) => count + figures.inf[i] > 0);
  const range = make("input", {
    type: "range", min: 0, max: epochs.length - 1, value: bad < 0 ? epochs.length - 1 : bad,
    "aria-label": `epoch of the histogram of ${series.name}`, oninput: () => show(),
  });
  const rows = epochs.map((epoch, i) =>
    make("tr", {}, ...[epoch, ...["min", "max", "mean", "nan", "inf", "zero"].map((name) => figures[name][i])]
      .map((value, column) => make("td", { class: "numeric" }, column ? figure(value) : number(value)))),
  );
  const heads = ["epoch", "min", "max", "mean", "NaN", "infinite", "zero"].map((name) => make("th", { scope: "col", class: "numeric" }, name));
  const numbers = make(
    "details", {}, make("summary", {}, "All numbers"),
    make("div", { class: "scroll tall", tabindex: 0 }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows))),
  );
  const card = make("div", { class: "card" }, title, note, plot, make("label", { class: "wide" }, "histogram of epoch", range), told, bars, numbers);

  function layout(height, more) {
    const wide = Math.max(250, card.clientWidth - 34);
    const view = { host: { clientWidth: wide } };
    const made = layoutOf(view, height, more);
    return { ...made, width: wide, margin: { ...made.margin, l: 64, r: 48 } };
  }

  function show() {
    const hues = palette();
    const line = (name, hue, more) => ({
      type: "scatter", mode: epochs.length < 60 ? "lines+markers" : "lines", name, x: epochs, y: figures[name],
      line: { color: hue, width: 2 }, marker: { size: 5, color: hue }, ...more,
    });
    const wrong = figures.nan.map((count, i) => count + figures.inf[i]);
    const some = wrong.some((count) => count > 0);
    const i = Number(range.value);
    const traces = [line("max", hues[0]), line("mean", hues[2]), line("min", hues[5])];
    if (some) {
      traces.push({ type: "bar", name: "NaN or infinite", x: epochs, y: wrong, yaxis: "y2", marker: { color: colour("accent") }, opacity: 0.5 });
    }
    Plotly.react(plot, traces, layout(260, {
      showlegend: true,
      legend: { orientation: "h", y: 1.18, x: 0 },
      margin: { t: 34, b: 44 },
      xaxis: { title: { text: "epoch", standoff: 6 }, tickformat: ",d" },
      yaxis: { tickformat: ".3~g" },
      yaxis2: { overlaying: "y", side: "right", tickmode: "auto", nticks: 4, range: [0, 1.15 * Math.max(...wrong, 1)], showgrid: false, tickformat: ",d", color: colour("accent") },
      shapes: [{ type: "line", yref: "paper", y0: 0, y1: 1, x0: epochs[i], x1: epochs[i], line: { color: colour("ink"), width: 1, dash: "dot" } }],
      dragmode: false,
    }), CONFIG);
    told.textContent =
      `Epoch ${number(epochs[i])}: from ${figure(figures.min[i])} to ${figure(figures.max[i])}, mean ${figure(figures.mean[i])}, ` +
      `${number(figures.nan[i])} NaN, ${number(figures.inf[i])} infinite, ${number(figures.zero[i])} zero.`;
    const edges = figures.edges[i];
    Plotly.react(bars, [{
      type: "bar", marker: { color: hues[0] }, x: figures.counts[i].map((_, k) => (edges[k] + edges[k + 1]) / 2),
      width: figures.counts[i].map((_, k) => (edges[k + 1] - edges[k]) * 0.96 || 1), y: figures.counts[i],
      hovertemplate: "%{y} items around %{x}<extra></extra>",
    }], layout(180, {
      xaxis: { title: { text: "value", standoff: 6 }, tickformat: ".3~g" },
      yaxis: { title: { text: "items" }, tickformat: "~s", rangemode: "tozero" },
      dragmode: false,
    }), CONFIG);
  }

  return { card, show };
}
