// Memory that was allocated, by kind, over time.

const HOST = new Set(["host", "host-registered"]);

function showUsage(process, window_) {
  const { usage, clock } = process;
  const view = frame("usage", window_);
  const kinds = Object.keys(usage.kinds);
  const device = kinds.filter((kind) => !HOST.has(kind));
  const host = kinds.filter((kind) => HOST.has(kind));
  const totals = Float64Array.from(usage.times, (_, i) =>
    device.reduce((sum, kind) => sum + usage.kinds[kind][i], 0),
  );
  at("peak").textContent = `${size(usage.peak)} at ${timeText(clock, usage.peak_time)}`;

  function show() {
    const [t0, t1] = window_.time;
    const scale = timeUnit(clock);
    const points = thin(usage.times, totals, t0, t1, 700);
    const x = points.map((i) => usage.times[i] / scale);
    // What holds at the last change holds to the end.
    const ends = points.length ? [...x, Math.max(t1 / scale, x[x.length - 1])] : x;
    const values = (kind) => {
      const own = points.map((i) => usage.kinds[kind][i]);
      return own.length ? [...own, own[own.length - 1]] : own;
    };
    const hues = palette();
    const line = (kind, i, more) => ({
      type: "scatter",
      mode: "lines",
      line: { shape: "hv", width: 1.5, color: hues[i % 8] },
      x: ends,
      y: values(kind),
      hoverinfo: "none",
      name: kind,
      ...more,
    });
    const traces = [
      ...device.map((kind, i) => line(kind, i, { stackgroup: "device", fillcolor: `${hues[i % 8]}99` })),
      ...host.map((kind, i) =>
        line(kind, device.length + i, { line: { shape: "hv", width: 2, dash: "dot", color: hues[(device.length + i) % 8] } }),
      ),
    ];
    const most = Math.max(1, ...points.map((i) => totals[i]), ...host.map((kind) => Math.max(0, ...values(kind))));
    const layout = layoutOf(view, 300, {
      hovermode: "x",
      xaxis: timeAxis(clock, window_.time),
      yaxis: { ...byteAxis(most), fixedrange: true },
      shapes: [
        {
          type: "line",
          xref: "paper",
          x0: 0,
          x1: 1,
          y0: usage.peak,
          y1: usage.peak,
          line: { color: colour("accent"), width: 1.5, dash: "dash" },
        },
      ],
    });
    at("usage-legend").replaceChildren(
      ...kinds.map((kind) => {
        const swatch = make("i", {});
        swatch.style.background = hues[(HOST.has(kind) ? device.length + host.indexOf(kind) : device.indexOf(kind)) % 8];
        return make("span", {}, swatch, HOST.has(kind) ? `${kind} (not on the device)` : kind);
      }),
    );
    return draw(view, traces, layout, {
      zoom: (range) => range && window_.setTime(range[0] * scale, range[1] * scale),
      reset: () => window_.reset(),
      hover: (point) => {
        const i = points[Math.min(point.pointNumber, points.length - 1)];
        const lines = kinds.filter((kind) => usage.kinds[kind][i]).map((kind) => `${kind}: ${size(usage.kinds[kind][i])}`);
        return [`${size(totals[i])} of device memory`, ...lines, `from ${timeText(clock, usage.times[i])} on`];
      },
    });
  }

  return show;
}
