// Puts the page together: one process at a time, all of its views on the same window in time.

class State {
  constructor() {
    this.region = null; // index into the regions of the heat map
    this.epoch = null;
    this.only = null; // what the timeline shows alone
    this.listeners = [];
  }

  pickRegion(region, scroll) {
    this.region = region;
    this.tell();
    if (scroll) at("drill").scrollIntoView({ behavior: "smooth" });
  }

  pickEpoch(epoch) {
    this.epoch = epoch;
    this.tell();
  }

  highlight(what) {
    this.only = what;
    this.tell();
  }

  tell() {
    for (const listener of this.listeners) listener();
  }
}

function showEpoch(process, state) {
  const { epochs, timeline, clock } = process;
  const box = at("epoch");
  box.hidden = state.epoch === null;
  if (state.epoch === null) return;
  const i = Math.floor(state.epoch / epochs.step);
  const until = epochs.time[i];
  const since = i ? epochs.time[i - 1] : -1;
  const flags = Object.entries(epochs.flag_names).filter(([, bit]) => epochs.flags[i] & bit);
  const ran = new Map();
  for (const lane of timeline.lanes) {
    for (let k = 0; k < lane.called.length; k++) {
      if (lane.called[k] <= since || lane.called[k] > until) continue;
      const name = timeline.names[lane.what[k]];
      ran.set(name, (ran.get(name) || 0) + lane.count[k]);
    }
  }
  const top = [...ran].sort(([, a], [, b]) => b - a);
  const shown = top.slice(0, 8).map(([name, n]) => make("li", {}, `${number(n)} × ${cut(name, 120)}`));
  if (top.length > 8) shown.push(make("li", {}, `and ${counted(top.length - 8, "other kind")} of call`));
  const label = epochs.texts[epochs.label[i]];
  const several = epochs.step > 1 ? ` to ${number(Math.min(epochs.count, (i + 1) * epochs.step) - 1)}` : "";
  box.replaceChildren(
    make("h3", {}, `Epoch ${number(i * epochs.step)}${several}`),
    make(
      "p",
      {},
      `Cut ${epochs.triggers[epochs.trigger[i]]}${label ? ` “${cut(label, 120)}”` : ""} at ${timeText(clock, until)}, ` +
        `${counted(epochs.regions[i], "region")} looked at (${size(epochs.bytes_read[i])}), ` +
        `${counted(epochs.changed[i], "block")} changed${flags.length ? `; ${flags.map(([name]) => name).join(", ")}` : ""}.`,
    ),
    make("p", {}, timeline.bin ? "Since the epoch before, about:" : "Since the epoch before:"),
    make("ul", {}, ...(shown.length ? shown : [make("li", {}, "no recorded call")])),
  );
}

function showProcess(process) {
  const state = new State();
  const window_ = new Window(process);
  const rows = process.summary.flatMap(([key, value]) => [make("dt", {}, key), make("dd", {}, value)]);
  at("facts").replaceChildren(...rows);
  const calls = process.timeline.lanes.reduce((sum, lane) => sum + lane.time.length, 0);
  at("timeline-empty").hidden = calls > 0;
  const timeline = showTimeline(process, window_, state);
  const usage = showUsage(process, window_);
  const changes = showChanges(process, window_, state);
  const blocks = showBlocks(process, window_, state, changes.name);
  const flames = showFlames(process);
  const values = showValues(process);
  showKernels(process, state);
  showRegions(process, state);
  state.listeners.push(() => showEpoch(process, state));
  showEpoch(process, state);
  const all = () => Promise.all([timeline(), usage(), changes.show(), blocks()]);
  const whole = () => {
    flames();
    values();
    return all();
  };
  let due = false;
  window_.listeners.push(() => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      all();
    });
  });
  return whole;
}

function theme(redraw) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  let chosen = null;
  const apply = (printing) => {
    root.dataset.theme = printing ? "light" : chosen || (dark.matches ? "dark" : "light");
    return redraw();
  };
  at("theme").onclick = () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    apply(false);
  };
  dark.addEventListener("change", () => apply(false));
  addEventListener("beforeprint", () => apply(true));
  addEventListener("afterprint", () => apply(false));
  apply(false);
}

async function main() {
  const library = make("script");
  library.nonce = document.querySelector("script[nonce]").nonce;
  const [text, packed] = await Promise.all([inflate("library"), inflate("data")]);
  library.textContent = new TextDecoder().decode(text);
  document.head.append(library);
  const data = unpack(packed);
  let redraw = () => null;
  theme(() => redraw());
  const choice = at("process");
  const choose = () => {
    const process = data.processes[Number(choice.value)];
    redraw = showProcess(process);
    return redraw();
  };
  choice.onchange = choose;
  if (data.processes.length) await choose();
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) redraw();
    width = innerWidth;
  });
  document.documentElement.dataset.ready = "yes";
}

main().catch((error) => {
  at("failed").hidden = false;
  at("failed").textContent = `This page could not be drawn: ${error.message}`;
  throw error;
});
