// Flame graphs, the outermost frame on top. A click or Enter shows a frame as wide as the plot.

const FLAME_ROW = 22; // pixels
const FLAME_LEAST = 0.0015; // of the width: narrower frames are not drawn

const FLAME_UNITS = {
  "GPU time": (value) => duration(value, 4),
  launches: (value) => counted(value, "launch", "launches"),
  "bytes at the peak": size,
  "bytes of the whole run": size,
};

function showFlames(process) {
  const select = at("flame-metric");
  const trees = [process.flames.work, process.flames.memory];
  const metrics = trees.flatMap((tree) =>
    Object.entries(tree.values).filter(([, values]) => values[0] > 0).map(([name]) => [name, tree]),
  );
  select.replaceChildren(...metrics.map(([name], i) => make("option", { value: i }, name)));
  at("flames-section").hidden = metrics.length === 0;
  at("flames-link").hidden = metrics.length === 0;
  at("flame-empty").hidden = process.flames.stacks;
  at("flames").hidden = !process.flames.stacks;
  const show = () => {
    const [name, tree] = metrics[Number(select.value)] || [];
    if (tree && process.flames.stacks) flameGraph(tree, name);
  };
  select.onchange = show;
  return show;
}

function flameGraph(tree, metric) {
  const host = at("flames");
  const values = tree.values[metric];
  const unit = FLAME_UNITS[metric];
  const children = Array.from(values, () => []);
  for (let i = 1; i < values.length; i++) if (values[i] > 0) children[tree.parent[i]].push(i);
  for (const own of children) own.sort((a, b) => values[b] - values[a]);
  let [root, chosen] = [0, 0];

  const name = (i) => tree.texts[tree.text[i]];
  const share = (i) => `${((100 * values[i]) / values[0]).toFixed(1)} %`;
  const told = (i) => `${name(i)}: ${unit(values[i])}, ${share(i)}`;

  // A colour for each file, so that neighbours of one source look alike.
  function hue(i) {
    const key = (name(i).match(/\(([^()]*?)(:\d+)?\)$/) || [0, name(i)])[1];
    let hash = 7;
    for (const letter of key) hash = (hash * 31 + letter.charCodeAt(0)) >>> 0;
    return `var(--kind-${hash % 8})`;
  }

  function place(i, left, width, depth, into) {
    into.push([i, left, width, depth]);
    let x = left;
    for (const child of children[i]) {
      const own = (width * values[child]) / values[i];
      if (own < FLAME_LEAST) break;
      place(child, x, own, depth + 1, into);
      x += own;
    }
    return into;
  }

  function draw_() {
    const above = [];
    for (let i = root; i; i = tree.parent[i]) above.unshift(tree.parent[i]);
    const boxes = above.map((i, depth) => [i, 0, 1, depth]);
    place(root, 0, 1, above.length, boxes);
    const wide = host.clientWidth || 800;
    const deepest = Math.max(...boxes.map(([, , , depth]) => depth));
    const plot = make("div", { class: "flame" });
    plot.style.height = `${(deepest + 1) * FLAME_ROW}px`;
    plot.replaceChildren(
      ...boxes.map(([i, left, width, depth]) => {
        const box = make("div", {
          class: `frame${i === chosen ? " chosen" : ""}${depth < above.length ? " above" : ""}`,
          title: told(i),
          onclick: () => pick(i, true),
        }, width * wide > 40 ? name(i) : "");
        box.style.left = `${100 * left}%`;
        box.style.width = `${100 * width}%`;
        box.style.top = `${depth * FLAME_ROW}px`;
        box.style.background = i ? `color-mix(in srgb, ${hue(i)} 38%, var(--surface))` : "var(--heat-none)";
        return box;
      }),
    );
    const note = tree.left_out ? ` ${counted(tree.left_out, "small frame")} and what is in them are left out.` : "";
    at("flame-told").textContent = told(chosen) + (chosen ? "" : `.${note}`);
    host.replaceChildren(plot);
  }

  function pick(i, zoom) {
    chosen = i;
    if (zoom) root = i;
    draw_();
  }

  const sibling = (by) => {
    const own = chosen ? children[tree.parent[chosen]] : [0];
    const next = own[own.indexOf(chosen) + by];
    if (next !== undefined) pick(next, false);
  };
  const keys = {
    ArrowDown: () => children[chosen].length && pick(children[chosen][0], false),
    ArrowUp: () => pick(tree.parent[chosen], false),
    ArrowRight: () => sibling(1),
    ArrowLeft: () => sibling(-1),
    Enter: () => pick(chosen, true),
    Escape: () => pick(0, true),
    0: () => pick(0, true),
  };
  host.tabIndex = 0;
  host.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  };
  draw_();
}
