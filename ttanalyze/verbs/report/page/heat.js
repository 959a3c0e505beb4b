// Change of memory: regions by epochs, and the blocks of one region by epochs.

const BLOCK = 65536; // bytes
const ROW_LABELS = 36;

// A heat map of cells. spec: cells; rows(): those in view order; weight(row); alive(row): epochs
// [born, died) and "" where nothing is known; label(row); text(value): of a value; pick(row,
// epoch); what: what a row is called.
function heatMap(id, window_, spec) {
  const view = frame(id, window_, spec.keys || {});
  let range = null; // of rows in view

  function show() {
    const rows = spec.rows();
    if (!range || range[1] > rows.length) range = [0, rows.length];
    const inView = rows.slice(range[0], range[1]);
    const [e0, e1] = window_.epoch;
    const height = Math.max(150, Math.min(520, 22 * inView.length + 60));
    const columns = Math.max(40, Math.min(1400, view.host.clientWidth - MARGIN.l));
    const most = { columns, rows: Math.floor((height - 60) / 2) };
    const binned = binCells(spec.cells, inView, e0, e1, most, spec.weight);
    const { z, start, width, group } = binned;
    let largest = 0;
    z.forEach((row, i) => {
      const [born, died] = life(inView, i, group);
      row.forEach((value, j) => {
        const [from, until] = [start + j * width, start + (j + 1) * width];
        if (!value && (until <= born || from >= died)) row[j] = NaN;
        if (value > largest) largest = value;
      });
    });
    const top = Math.log2(1 + largest * spec.scale) || 1;
    const shades = z.map((row) => Array.from(row, (v) => (Number.isNaN(v) ? null : Math.log2(1 + v * spec.scale) / top)));
    const hovered = ({ x, y }) => {
      const j = Math.floor((x + 0.5 - start) / width);
      return { i: Math.round(y), j, value: z[Math.round(y)][j] };
    };
    const every = Math.max(1, Math.ceil(z.length / ROW_LABELS));
    const labelled = z.map((_, i) => i).filter((i) => i % every === 0);
    const narrow = view.host.clientWidth < NARROW;
    const traces = [
      {
        type: "heatmap",
        z: shades,
        x0: start + width / 2 - 0.5,
        dx: width,
        zmin: 0,
        zmax: 1,
        xgap: (e1 - e0) / width < 120 ? 1 : 0,
        ygap: z.length < 60 ? 1 : 0,
        colorscale: heatScale(),
        hoverinfo: "none",
        hoverongaps: false,
        colorbar: {
          tickvals: [0, 0.25, 0.5, 0.75, 1],
          ticktext: [0, 0.25, 0.5, 0.75, 1].map((share) => spec.text((2 ** (share * top) - 1) / spec.scale)),
          thickness: 12,
          outlinewidth: 0,
          len: 1,
          tickfont: { color: colour("ink"), size: 12 },
        },
        showscale: !narrow,
      },
    ];
    const layout = layoutOf(view, height, {
      xaxis: { range: [e0 - 0.5, e1 - 0.5], title: { text: "epoch", standoff: 6 }, tickformat: ",d", nticks: 10, showgrid: false },
      yaxis: {
        range: [z.length - 0.5, -0.5],
        tickvals: labelled,
        ticktext: labelled.map((i) => plain(cut(spec.label(inView[i * group]), narrow ? 11 : 22))),
        showgrid: false,
        ticks: "",
      },
      shapes: spec.marked().filter(([row]) => row === null || inView.includes(row)).map(([row, epoch]) =>
        row === null
          ? { type: "line", yref: "paper", y0: 0, y1: 1, x0: epoch, x1: epoch, line: { color: colour("accent"), width: 2 } }
          : rowShape(Math.floor(inView.indexOf(row) / group)),
      ),
    });
    layout.margin.r = narrow ? 10 : 96;
    return draw(view, traces, layout, {
      zoom: (x, y) => {
        if (y) {
          const [low, high] = [Math.min(...y), Math.max(...y)].map((v) => Math.round(v + 0.5) * group);
          const begin = range[0] + Math.max(0, low);
          range = [begin, Math.min(rows.length, Math.max(begin + 1, range[0] + high))];
        }
        if (x) window_.setEpochs(x[0] + 0.5, x[1] + 0.5);
        else show();
      },
      reset: () => {
        range = null;
        window_.reset();
      },
      hover: (point) => {
        const { i, j, value } = hovered(point);
        const own = inView.slice(i * group, (i + 1) * group);
        const name = own.length > 1 ? `${own.length} ${spec.what}s, from ${spec.label(own[0])} on` : spec.label(own[0]);
        const [from, until] = [start + j * width, Math.min(start + (j + 1) * width, spec.epochs) - 1];
        const when = from < until ? `epochs ${number(from)} to ${number(until)}` : `epoch ${number(from)}`;
        return [name, when, spec.text(value || 0) + spec.unit];
      },
      click: (point) => {
        const { i, j } = hovered(point);
        const own = inView.slice(i * group, (i + 1) * group);
        const [from, until] = [start + j * width, start + (j + 1) * width];
        const [row, epoch] = firstChange(spec.cells, own, from, until);
        spec.pick(row, epoch);
      },
    });
  }

  function life(rows, i, group) {
    let [born, died] = [Infinity, 0];
    for (const row of rows.slice(i * group, (i + 1) * group)) {
      const own = spec.alive(row);
      born = Math.min(born, own[0]);
      died = Math.max(died, own[1]);
    }
    return [born, died];
  }

  function rowShape(i) {
    const line = { color: colour("accent"), width: 2 };
    return { type: "rect", xref: "paper", x0: 0, x1: 1, y0: i - 0.5, y1: i + 0.5, line };
  }

  return {
    show,
    all: () => (range = null),
    reveal: (place) => {
      if (range && (place < range[0] || place >= range[1])) range = null;
    },
  };
}

// The row that changed most in these epochs, and the first epoch of them in which it did.
function firstChange(cells, rows, from, until) {
  const unit = 2 ** cells.shift;
  let best = [rows[0], from, 0];
  for (const row of rows) {
    const base = row * cells.width;
    let [sum, epoch] = [0, null];
    for (let k = lowerBound(cells.key, base + Math.floor(from / unit)); k < cells.key.length; k++) {
      const column = cells.key[k] - base;
      if (column >= cells.width || column * unit >= until) break;
      sum += cells.count[k];
      epoch = epoch === null ? Math.max(from, column * unit) : epoch;
    }
    if (sum > best[2]) best = [row, epoch, sum];
  }
  return best;
}

const METRICS = {
  bytes: { text: size, unit: " changed", scale: 1 / 1024 },
  share: { text: (value) => `${Number(value.toPrecision(2))} %`, unit: " of its blocks, on average", scale: 10 },
};

function showChanges(process, window_, state) {
  const { changes, regions, epochs } = process;
  const shown = changes.rows.length;
  const blocksOf = (row) => Math.max(1, Math.ceil(regions.size[row] / BLOCK));
  const name = (row) => {
    const label = regions.texts[regions.label[row]];
    return `${regions.id[row]} ${label ? `${label} ` : ""}(${size(regions.size[row])})`;
  };
  const order = at("order");
  const still = at("still");
  const metric = at("metric");
  let rows = [];

  function arrange() {
    rows = Array.from({ length: shown }, (_, i) => i);
    const of = (i) => changes.rows[i];
    if (!still.checked) rows = rows.filter((i) => regions.epochs[of(i)] > 0);
    if (order.value === "changes") rows.sort((a, b) => regions.epochs[of(b)] - regions.epochs[of(a)] || a - b);
    if (order.value === "size") rows.sort((a, b) => regions.size[of(b)] - regions.size[of(a)] || a - b);
    at("heat-empty").hidden = rows.length > 0;
    at("heat").hidden = rows.length === 0;
  }

  const spec = {
    cells: changes.regions,
    what: "region",
    epochs: epochs.count,
    rows: () => rows,
    label: (i) => name(changes.rows[i]),
    alive: (i) => [regions.born[changes.rows[i]], regions.died[changes.rows[i]]],
    marked: () => [
      ...(state.region === null ? [] : [[state.region, 0]]),
      ...(state.epoch === null ? [] : [[null, state.epoch]]),
    ],
    pick: (row, epoch) => {
      state.pickRegion(row, false);
      state.pickEpoch(epoch);
    },
    keys: {
      ArrowUp: () => step(-1),
      ArrowDown: () => step(1),
      Enter: () => at("blocks").focus(),
    },
  };
  function step(by) {
    if (!rows.length) return;
    const place = rows.indexOf(state.region);
    state.pickRegion(rows[Math.min(rows.length - 1, Math.max(0, place < 0 ? 0 : place + by))], false);
  }
  function measure() {
    Object.assign(spec, METRICS[metric.value]);
    spec.weight =
      metric.value === "bytes"
        ? (i) => regions.size[changes.rows[i]] / blocksOf(changes.rows[i])
        : (i) => 100 / blocksOf(changes.rows[i]) / Math.max(1, 2 ** changes.regions.shift);
  }

  still.checked = shown <= 60;
  measure();
  arrange();
  const map = heatMap("heat", window_, spec);
  for (const control of [order, still, metric]) {
    control.onchange = () => {
      measure();
      arrange();
      map.all();
      map.show();
    };
  }
  const left = regions.captured.reduce((sum, c) => sum + (c ? 1 : 0), 0) - shown;
  at("heat-note").textContent = [
    changes.regions.shift ? `Neighbouring epochs are put together by ${2 ** changes.regions.shift}.` : "",
    left > 0 ? `${counted(left, "region")} that changed least ${left === 1 ? "is" : "are"} not shown.` : "",
  ].join(" ");
  state.listeners.push(() => {
    if (state.region !== null) {
      if (!rows.includes(state.region)) {
        still.checked = true;
        arrange();
      }
      map.reveal(rows.indexOf(state.region));
    }
    map.show();
  });
  return { show: map.show, name };
}

function showBlocks(process, window_, state, name) {
  const { changes, regions, epochs } = process;
  const of = () => changes.rows[state.region];
  const merged = () => 2 ** changes.merged[state.region];
  const spec = {
    ...METRICS.bytes,
    cells: changes.blocks,
    what: "row",
    epochs: epochs.count,
    rows: () => {
      const [begin, end] = [changes.first[state.region], changes.first[state.region + 1]];
      return Array.from({ length: end - begin }, (_, i) => begin + i);
    },
    label: (row) => {
      const block = (row - changes.first[state.region]) * merged();
      return merged() > 1 ? `blocks ${number(block)} on` : `block ${number(block)}`;
    },
    alive: () => [regions.born[of()], regions.died[of()]],
    weight: () => Math.min(BLOCK, regions.size[of()]),
    marked: () => (state.epoch === null ? [] : [[null, state.epoch]]),
    pick: (_, epoch) => state.pickEpoch(epoch),
    keys: { Escape: () => state.pickRegion(null, false) },
  };
  const map = heatMap("blocks", window_, spec);
  let last = null;

  function show() {
    at("drill").hidden = state.region === null;
    if (state.region === null) return null;
    if (last !== state.region) map.all();
    last = state.region;
    const row = of();
    at("drill-title").textContent = `Region ${name(row)}`;
    const together = merged() > 1 ? `; ${merged()} blocks of 64 KiB to a row` : "";
    const epochsTogether = changes.blocks.shift ? `; ${2 ** changes.blocks.shift} epochs to a column` : "";
    at("drill-facts").textContent =
      `${regions.kinds[regions.kind[row]]} memory at ${regions.base[row]}, ` +
      `allocated at ${regions.texts[regions.site[row]] || "an unknown place"}, ${lifeText(regions, row, epochs.count)}. ` +
      `${regions.epochs[row] ? `Changed in ${counted(regions.epochs[row], "epoch")}, first in ${number(regions.earliest[row])}, last in ${number(regions.latest[row])}` : "Never changed"}` +
      `${together}${epochsTogether}.`;
    return map.show();
  }

  state.listeners.push(show);
  return show;
}

function lifeText(regions, row, total) {
  const [born, died] = [regions.born[row], regions.died[row]];
  return `alive from epoch ${number(born)} ${died > total ? "on" : died > born ? `to ${number(died - 1)}` : "but in none of them"}`;
}
