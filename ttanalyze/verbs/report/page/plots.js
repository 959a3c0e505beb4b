// What plots share: colours of the theme, the window in time that they all show, a frame with
// buttons, keys and a tooltip, and the text of axes.

const CONFIG = { displayModeBar: false, doubleClick: false, scrollZoom: false, responsive: false };
const MARGIN = { l: 168, r: 24, t: 8, b: 44 };
const NARROW = 700; // pixels

// Plotly reads tags and entities in the text of axes.
const plain = (text) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

const palette = () => Array.from({ length: 8 }, (_, i) => colour(`kind-${i}`));

// From "nothing" through a scale of one hue, for values from 0 to 1.
function heatScale() {
  const steps = [0, 1, 2, 3, 4].map((i) => colour(`heat-${i}`));
  return [[0, colour("heat-none")], [1e-6, steps[0]], ...[1, 2, 3, 4].map((i) => [i / 4, steps[i]])];
}

// The part of the run that is in view: [t0, t1] in units of the clock, [e0, e1) in epochs.
class Window {
  constructor(process) {
    this.epochs = process.epochs;
    this.span = Math.max(process.clock.span, 1);
    this.listeners = [];
    this.reset();
  }

  reset() {
    const margin = this.span / 200;
    this.time = [-margin, this.span + margin];
    this.epoch = [0, Math.max(1, this.epochs.count)];
    this.tell();
  }

  // Shows this time, and the epochs that were cut in it.
  setTime(t0, t1) {
    const least = Math.max(this.span * 1e-9, 1e-3);
    const margin = this.span / 200;
    const length = Math.min(Math.max(t1 - t0, least), this.span + 2 * margin);
    t0 = Math.min(Math.max(t0, -margin), this.span + margin - length);
    this.time = [t0, t0 + length];
    const e0 = this.epochAt(t0);
    this.epoch = [e0, Math.max(e0 + 1, this.epochAt(t0 + length))];
    this.tell();
  }

  // Shows these epochs, and the time from the one before them on.
  setEpochs(e0, e1) {
    e0 = Math.max(0, Math.min(Math.floor(e0), this.epochs.count - 1));
    e1 = Math.max(e0 + 1, Math.min(Math.ceil(e1), this.epochs.count));
    this.epoch = [e0, e1];
    const t0 = e0 ? this.timeOf(e0 - 1) : 0;
    const t1 = this.timeOf(e1 - 1);
    const margin = Math.max((t1 - t0) / 100, this.span * 1e-9, 1e-3);
    this.time = [t0 - margin, t1 + margin];
    this.tell();
  }

  epochAt(time) {
    const { step, count } = this.epochs;
    return Math.min(count, lowerBound(this.epochs.time, time) * step);
  }

  timeOf(epoch) {
    return this.epochs.time[Math.floor(epoch / this.epochs.step)] || 0;
  }

  move(share) {
    const length = this.time[1] - this.time[0];
    this.setTime(this.time[0] + share * length, this.time[1] + share * length);
  }

  zoom(factor) {
    const middle = (this.time[0] + this.time[1]) / 2;
    const half = ((this.time[1] - this.time[0]) * factor) / 2;
    this.setTime(middle - half, middle + half);
  }

  tell() {
    for (const listener of this.listeners) listener();
  }
}

// A figure that can be reached and moved by keyboard. keys: more keys, by name.
function frame(id, window_, keys = {}) {
  const host = at(id);
  const plot = make("div", { class: "plot" });
  const tip = make("div", { class: "tip", hidden: true });
  const actions = {
    ArrowLeft: () => window_.move(-0.2),
    ArrowRight: () => window_.move(0.2),
    "+": () => window_.zoom(0.5),
    "=": () => window_.zoom(0.5),
    "-": () => window_.zoom(2),
    0: () => window_.reset(),
    Home: () => window_.reset(),
    ...keys,
  };
  const button = (key, label, title) =>
    make("button", { type: "button", title, "aria-label": title, onclick: actions[key] }, label);
  const bar = make(
    "div",
    { class: "zoom", role: "group", "aria-label": "what part is shown" },
    button("ArrowLeft", "◀", "earlier (←)"),
    button("ArrowRight", "▶", "later (→)"),
    button("+", "+", "closer (+)"),
    button("-", "−", "farther (−)"),
    button("0", "all", "the whole run (0)"),
  );
  host.replaceChildren(bar, plot, tip);
  host.tabIndex = 0;
  host.onkeydown = (event) => {
    if (event.target !== host || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  };
  return { host, plot, bar, tip };
}

// Draws, and the first time lets pointing, clicking and dragging tell what they hit.
function draw(view, traces, layout, on) {
  view.on = on;
  const drawn = Plotly.react(view.plot, traces, layout, CONFIG);
  if (view.wired) return drawn;
  view.wired = true;
  view.plot.on("plotly_hover", (event) => tell(view, event));
  view.plot.on("plotly_unhover", () => (view.tip.hidden = true));
  view.plot.on("plotly_click", (event) => view.on.click && view.on.click(event.points[0]));
  view.plot.on("plotly_doubleclick", () => view.on.reset());
  view.plot.on("plotly_relayout", (event) => {
    const range = (axis) => {
      const [low, high] = [event[`${axis}.range[0]`], event[`${axis}.range[1]`]];
      return low === undefined ? null : [Number(low), Number(high)];
    };
    const [x, y] = [range("xaxis"), range("yaxis")];
    if (x || y) view.on.zoom(x, y);
  });
  return drawn;
}

function tell(view, event) {
  const lines = view.on.hover(event.points[0]);
  if (!lines) return;
  view.tip.replaceChildren(...lines.map((line) => make("div", {}, line)));
  view.tip.hidden = false;
  const box = view.host.getBoundingClientRect();
  const [x, y] = [event.event.clientX - box.left, event.event.clientY - box.top];
  const left = x > box.width / 2 ? x - view.tip.offsetWidth - 14 : x + 14;
  view.tip.style.left = `${Math.max(4, Math.min(left, box.width - view.tip.offsetWidth - 4))}px`;
  view.tip.style.top = `${y + 16}px`;
}

function layoutOf(view, height, more) {
  const width = Math.max(280, view.host.clientWidth);
  const narrow = width < NARROW;
  const axis = {
    gridcolor: colour("line"),
    linecolor: colour("line"),
    zeroline: false,
    ticks: "outside",
    tickcolor: colour("line"),
    fixedrange: false,
    automargin: false,
  };
  return {
    width,
    height,
    margin: { ...MARGIN, l: narrow ? 84 : MARGIN.l, r: narrow ? 10 : MARGIN.r },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: narrow ? 11 : 14, color: colour("ink") },
    hovermode: "closest",
    dragmode: "zoom",
    showlegend: false,
    ...more,
    xaxis: { ...axis, ...more.xaxis },
    yaxis: { ...axis, ...more.yaxis },
  };
}

// The axis of time: seconds, or the order of calls where no times were kept.
function timeAxis(clock, [t0, t1]) {
  if (clock.unit === "calls") return { range: [t0, t1], title: { text: "calls" }, tickformat: ",d" };
  return {
    range: [t0 / 1e9, t1 / 1e9],
    tickformat: ".12~s",
    ticksuffix: "s",
    nticks: innerWidth < 700 ? 4 : 8,
    tickangle: 0,
    title: { text: "time since the first call", standoff: 8, font: { size: 12 } },
  };
}

const timeUnit = (clock) => (clock.unit === "calls" ? 1 : 1e9);
const timeText = (clock, time) =>
  clock.unit === "calls" ? `call ${number(time)}` : duration(Math.max(0, time));

// An axis of bytes, with ticks at round binary sizes.
function byteAxis(most) {
  let step = 1;
  while (most / step > 6) step *= 2;
  const ticks = [];
  for (let value = 0; value <= most * 1.05; value += step) ticks.push(value);
  return { tickvals: ticks, ticktext: ticks.map(size), range: [0, Math.max(1, most * 1.06)] };
}
