// Launches, copies and sets by stream, waits of the host, and epochs, over time.

const SINGLE = 2500; // marks in view up to which each is drawn
const LANE = 30; // pixels
const COLOURED = 6; // kernels with a colour of their own

function showTimeline(process, window_, state) {
  const { timeline, clock, epochs } = process;
  const view = frame("timeline", window_);
  const epochLane = {
    name: "epochs",
    time: epochs.time,
    length: new Float64Array(epochs.time.length),
    what: new Uint32Array(epochs.time.length),
    count: new Uint32Array(epochs.time.length).fill(epochs.step),
    epochs: true,
  };
  const lanes = [...timeline.lanes, epochLane];
  at("timeline-when").textContent = timeline.timed
    ? "Marks and bars are where the GPU did the work, or the host waited, as far as that was recorded."
    : "Marks are at the moment of the call: GPU times were not recorded (record --timeline cupti).";
  const nameOf = (lane, what) => (lane.epochs ? "epoch" : timeline.names[what]);

  const select = at("highlight");
  select.replaceChildren(
    make("option", { value: "" }, "everything"),
    ...timeline.names.map((name, i) => make("option", { value: i }, cut(name, 80))),
  );
  select.onchange = () => state.highlight(select.value === "" ? null : Number(select.value));
  state.listeners.push(() => {
    select.value = state.only === null ? "" : String(state.only);
    show();
  });

  function classOf(lane, what) {
    if (lane.epochs) return COLOURED + 3;
    if (what < timeline.kernels) return Math.min(what, COLOURED);
    const kind = timeline.names[what];
    if (what === timeline.kernels) return COLOURED;
    return kind === "wait" ? COLOURED + 2 : COLOURED + 1;
  }

  function classes() {
    const kinds = palette();
    const top = Array.from({ length: COLOURED }, (_, i) => [
      kinds[i],
      i < timeline.kernels ? timeline.names[i] : null,
    ]);
    const others = timeline.kernels > COLOURED ? "other kernels" : null;
    return [
      ...top,
      [colour("muted"), others],
      [kinds[6], "copies, sets, graphs, host functions"],
      [kinds[7], "waits of the host"],
      [colour("ink"), "epochs"],
    ];
  }

  function show() {
    const [t0, t1] = window_.time;
    const only = state.only;
    const visible = lanes.map((lane) => [lowerBound(lane.time, t0), lowerBound(lane.time, t1)]);
    const marks = visible.reduce((sum, [begin, end]) => sum + end - begin, 0);
    const scale = timeUnit(clock);
    const single = marks <= SINGLE;
    const traces = single ? singles(visible, only, scale) : density(t0, t1, only, scale);
    legend(single);
    at("timeline-note").textContent = single
      ? `Each mark is ${timeline.bin ? "a few neighbouring calls of one kind" : "one call"}.`
      : `${number(marks)} marks are in view, counted in columns. Zoom in to see each.`;
    const layout = layoutOf(view, LANE * lanes.length + 60, {
      xaxis: timeAxis(clock, window_.time),
      yaxis: {
        range: [lanes.length - 0.5, -0.5],
        fixedrange: true,
        tickvals: lanes.map((_, i) => i),
        ticktext: lanes.map((lane) => plain(cut(lane.name, 24))),
        showgrid: false,
        ticks: "",
      },
    });
    return draw(view, traces, layout, {
      zoom: (x) => x && window_.setTime(x[0] * scale, x[1] * scale),
      reset: () => window_.reset(),
      hover: (point) => point.data.tell(point),
      click: (point) => {
        const time = point.data.type === "heatmap" ? point.x * scale : point.customdata[2];
        state.pickEpoch(Math.min(epochs.count - 1, window_.epochAt(time)));
      },
    });
  }

  function singles(visible, only, scale) {
    const groups = new Map();
    lanes.forEach((lane, y) => {
      const [begin, end] = visible[y];
      for (let i = begin; i < end; i++) {
        if (only !== null && !lane.epochs && lane.what[i] !== only) continue;
        const own = classOf(lane, lane.what[i]);
        if (!groups.has(own)) groups.set(own, []);
        groups.get(own).push([lane.time[i] / scale, y, [y, i, lane.time[i]]]);
      }
    });
    const colours = classes();
    // A bar from begin to end is under each mark whose duration is known.
    const bars = [...groups].map(([own, points]) => ({
      type: "scatter",
      mode: "lines",
      x: points.flatMap(([x, y, [, i]]) => [x, x + lanes[y].length[i] / scale, null]),
      y: points.flatMap(([, y]) => [y, y, null]),
      line: { color: colours[own][0], width: LANE * 0.5 },
      opacity: 0.55,
      hoverinfo: "skip",
    }));
    const marks = [...groups].sort(([a], [b]) => b - a).map(([own, points]) => ({
      type: "scatter",
      mode: "markers",
      x: points.map((p) => p[0]),
      y: points.map((p) => p[1]),
      customdata: points.map((p) => p[2]),
      hoverinfo: "none",
      marker: {
        symbol: "line-ns-open",
        size: LANE * 0.62,
        color: colours[own][0],
        line: { width: 2.5, color: colours[own][0] },
      },
      tell: ({ customdata: [y, i] }) => {
        const lane = lanes[y];
        const times = lane.count[i] > 1 ? ` × ${number(lane.count[i])}` : "";
        const name = lane.epochs ? `epoch ${number(i * epochs.step)}` : nameOf(lane, lane.what[i]);
        const took = lane.length[i] ? `took ${duration(lane.length[i])}` : null;
        return [
          `${cut(name, 160)}${lane.epochs ? "" : times}`,
          `${lane.name}, ${timeText(clock, lane.time[i])}`,
          ...(took ? [took] : []),
        ];
      },
    }));
    return timeline.timed ? [...bars, ...marks] : marks;
  }

  function density(t0, t1, only, scale) {
    const columns = Math.max(50, Math.min(1600, Math.floor(view.host.clientWidth - MARGIN.l)));
    const bins = lanes.map((lane) =>
      binMarks(lane, timeline.names.length, t0, t1, columns, lane.epochs ? null : only),
    );
    const width = (t1 - t0) / columns;
    return [
      {
        type: "heatmap",
        z: bins.map(({ counts }) => Array.from(counts, (n) => (n ? Math.log2(1 + n) : null))),
        x0: (t0 + width / 2) / scale,
        dx: width / scale,
        ygap: 5,
        zmin: 0,
        colorscale: heatScale().slice(1).map(([at_, hue], i) => [i ? at_ : 0, hue]),
        showscale: false,
        hoverinfo: "none",
        tell: ({ y, x }) => {
          const bin = Math.floor((x * scale - t0) / width);
          const [lane, { counts, tops }] = [lanes[y], bins[y]];
          const most = lane.epochs ? [] : [`most of them: ${cut(nameOf(lane, tops[bin]), 160)}`];
          return [
            counted(counts[bin], lane.epochs ? "epoch" : "call"),
            ...most,
            `${lane.name}, ${timeText(clock, t0 + bin * width)} and ${timeText(clock, width)} on`,
          ];
        },
      },
    ];
  }

  function legend(single) {
    const entries = single
      ? classes().filter(([, name]) => name)
      : [[`linear-gradient(90deg, ${[0, 2, 4].map((i) => colour(`heat-${i}`)).join(", ")})`, "fewer to more calls (log scale)"]];
    at("timeline-legend").replaceChildren(
      ...entries.map(([hue, name]) => {
        const swatch = make("i", {});
        swatch.style.background = hue;
        return make("span", { title: name }, swatch, cut(name, 48));
      }),
    );
  }

  return show;
}
