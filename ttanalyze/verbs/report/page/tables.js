// Tables that can be sorted, searched and paged.

const PAGE = 20; // rows

// columns: {title, value(row), text(row), numeric, cell(row): an element}; rows: what is listed.
function table(id, columns, rows, sorted) {
  const host = at(id);
  let [by, descending, page, wanted] = [sorted, true, 0, ""];
  const search = make("input", { type: "search", placeholder: "find…", "aria-label": "find in the table" });
  const body = make("tbody");
  const heads = columns.map((column, i) => {
    const sort = () => {
      descending = by === i ? !descending : Boolean(column.numeric);
      by = i;
      page = 0;
      show();
    };
    const button = make("button", { type: "button", onclick: sort }, column.title);
    return make("th", { scope: "col", class: column.numeric ? "numeric" : null }, button);
  });
  const place = make("span", { "aria-live": "polite" });
  const turn = (by_) => () => {
    page += by_;
    show();
  };
  const before = make("button", { type: "button", onclick: turn(-1), "aria-label": "rows before" }, "◀");
  const after = make("button", { type: "button", onclick: turn(1), "aria-label": "rows after" }, "▶");
  search.oninput = () => {
    wanted = search.value.toLowerCase();
    page = 0;
    show();
  };
  const text = (column, row) => String(column.text ? column.text(row) : column.value(row));

  function show() {
    const found = wanted
      ? rows.filter((row) => columns.some((column) => text(column, row).toLowerCase().includes(wanted)))
      : [...rows];
    const key = columns[by].value;
    const sign = descending ? -1 : 1;
    found.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      return sign * (x < y ? -1 : x > y ? 1 : 0);
    });
    page = Math.max(0, Math.min(page, Math.ceil(found.length / PAGE) - 1));
    const shown = found.slice(page * PAGE, (page + 1) * PAGE);
    body.replaceChildren(
      ...shown.map((row) =>
        make(
          "tr",
          {},
          ...columns.map((column) =>
            make("td", { class: column.numeric ? "numeric" : null }, column.cell ? column.cell(row) : text(column, row)),
          ),
        ),
      ),
    );
    heads.forEach((head, i) =>
      head.setAttribute("aria-sort", i !== by ? "none" : descending ? "descending" : "ascending"),
    );
    const last = page * PAGE + shown.length;
    place.textContent = found.length ? `${number(page * PAGE + 1)}–${number(last)} of ${number(found.length)}` : "none";
    before.disabled = page === 0;
    after.disabled = last >= found.length;
  }

  host.replaceChildren(
    make("div", { class: "controls" }, search, before, place, after),
    make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body)),
  );
  show();
}

function showKernels(process, state) {
  const { kernels, clock } = process;
  const timed = kernels.listed.some((kernel) => kernel.gpu_time !== null);
  const weight = (kernel) => (timed ? kernel.gpu_time || 0 : kernel.launches);
  const most = Math.max(1, ...kernels.listed.map(weight));
  const total = timed ? kernels.listed.reduce((sum, kernel) => sum + weight(kernel), 0) : kernels.launches;
  const share = (kernel) => {
    const bar = make("span", { class: "bar" });
    bar.style.width = `${(100 * weight(kernel)) / most}%`;
    const percent = (100 * weight(kernel)) / Math.max(1, total);
    return make("span", { class: "share" }, bar, `${percent < 0.05 ? "<0.1" : percent.toFixed(1)} %`);
  };
  const named = (kernel) => {
    const show = () => {
      state.highlight(kernels.listed.indexOf(kernel));
      at("timeline-section").scrollIntoView({ behavior: "smooth" });
    };
    return make("button", { type: "button", class: "link", title: kernel.name, onclick: show }, cut(kernel.short, 70));
  };
  const dims = (values) => values.join(" × ");
  const gpuTime = { title: "GPU time", value: (k) => k.gpu_time ?? -1, text: (k) => (k.gpu_time === null ? "?" : duration(k.gpu_time, 4)), numeric: true };
  const called = kernels.listed.some((kernel) => kernel.callers.length > 0);
  const callerText = (k) => k.callers.map(([name, n]) => `${name} × ${number(n)}`).join("\n");
  const callers = {
    title: "called by",
    value: (k) => (k.callers.length ? k.callers[0][0] : ""),
    text: callerText,
    cell: (k) => make("span", { title: callerText(k) }, k.callers.length ? `${cut(k.callers[0][0], 50)}${k.callers.length > 1 ? " …" : ""}` : "?"),
  };
  table(
    "kernel-table",
    [
      { title: "kernel", value: (k) => k.short, text: (k) => k.name, cell: named },
      ...(called ? [callers] : []),
      { title: "launches", value: (k) => k.launches, text: (k) => number(k.launches), numeric: true },
      { title: timed ? "share of GPU time" : "share", value: weight, text: () => "", cell: share },
      ...(timed ? [gpuTime] : []),
      { title: "usual grid", value: (k) => k.grid[0] * k.grid[1] * k.grid[2], text: (k) => dims(k.grid), numeric: true },
      { title: "usual block", value: (k) => k.block[0] * k.block[1] * k.block[2], text: (k) => dims(k.block), numeric: true },
      { title: "shapes", value: (k) => k.shapes, text: (k) => number(k.shapes), numeric: true },
      { title: "streams", value: (k) => k.streams, numeric: true },
      { title: "registers", value: (k) => k.registers ?? -1, text: (k) => k.registers ?? "?", numeric: true },
      { title: "first", value: (k) => k.first, text: (k) => timeText(clock, k.first), numeric: true },
      { title: "last", value: (k) => k.last, text: (k) => timeText(clock, k.last), numeric: true },
    ],
    kernels.listed,
    1 + (called ? 1 : 0) + (timed ? 2 : 0),
  );
  const hidden = kernels.count - kernels.listed.length;
  at("kernel-note").textContent = hidden > 0 ? `The ${number(kernels.listed.length)} most launched of ${number(kernels.count)}.` : "";
}

function showRegions(process, state) {
  const { regions, changes, clock, epochs } = process;
  const place = new Map(Array.from(changes.rows, (row, i) => [row, i]));
  const rows = Array.from(regions.id, (_, i) => i);
  const named = (row) => {
    const label = regions.texts[regions.label[row]];
    const text = `${regions.id[row]}${label ? ` ${cut(label, 40)}` : ""}`;
    if (!place.has(row)) return make("span", { title: label }, text);
    const show = () => state.pickRegion(place.get(row), true);
    return make("button", { type: "button", class: "link", title: "show its blocks", onclick: show }, text);
  };
  const died = (row) => (regions.died[row] > epochs.count ? "" : number(regions.died[row]));
  table(
    "region-table",
    [
      { title: "region", value: (r) => regions.id[r], text: (r) => `${regions.id[r]} ${regions.texts[regions.label[r]]}`, cell: named, numeric: true },
      { title: "kind", value: (r) => regions.kinds[regions.kind[r]] },
      { title: "size", value: (r) => regions.size[r], text: (r) => size(regions.size[r]), numeric: true },
      { title: "address", value: (r) => regions.base[r], text: (r) => regions.base[r] },
      { title: "allocated at", value: (r) => regions.texts[regions.site[r]] },
      { title: "at", value: (r) => regions.time[r], text: (r) => timeText(clock, regions.time[r]), numeric: true },
      { title: "born", value: (r) => regions.born[r], text: (r) => number(regions.born[r]), numeric: true },
      { title: "died", value: (r) => regions.died[r], text: died, numeric: true },
      { title: "epochs with change", value: (r) => regions.epochs[r], text: (r) => (regions.captured[r] ? number(regions.epochs[r]) : "not captured"), numeric: true },
      { title: "blocks changed", value: (r) => regions.changed[r], text: (r) => (regions.captured[r] ? number(regions.changed[r]) : ""), numeric: true },
    ],
    rows,
    2,
  );
  const hidden = regions.count - rows.length;
  at("region-note").textContent = hidden > 0 ? `${counted(hidden, "region")} of the smallest that changed least ${hidden === 1 ? "is" : "are"} not listed.` : "";
}
