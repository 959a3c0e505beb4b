// Puts together what is in view, into as many bins as there are points on the screen.

// Calls of a lane in each of `columns` bins from t0 to t1: how many, and what most of them are.
function binMarks(lane, names, t0, t1, columns, only) {
  const counts = new Float64Array(columns);
  const tops = new Int32Array(columns).fill(-1);
  const tally = new Float64Array(names);
  let seen = [];
  let bin = -1;
  const flush = () => {
    if (bin < 0) return;
    let top = -1;
    for (const what of seen) {
      if (top < 0 || tally[what] > tally[top]) top = what;
    }
    tops[bin] = top;
    for (const what of seen) tally[what] = 0;
    seen = [];
  };
  const end = lowerBound(lane.time, t1);
  for (let i = lowerBound(lane.time, t0); i < end; i++) {
    const what = lane.what[i];
    if (only !== null && what !== only) continue;
    const own = Math.min(columns - 1, Math.floor(((lane.time[i] - t0) / (t1 - t0)) * columns));
    if (own !== bin) {
      flush();
      bin = own;
    }
    if (!tally[what]) seen.push(what);
    tally[what] += lane.count[i];
    counts[bin] += lane.count[i];
  }
  flush();
  return { counts, tops };
}

// Indices of the points that show an ascending series from t0 to t1: in each bin the one with the
// highest total and the last one; before them all, the one that holds at t0.
function thin(times, totals, t0, t1, columns) {
  const begin = Math.max(0, lowerBound(times, t0) - 1);
  const end = Math.min(times.length, lowerBound(times, t1) + 1);
  if (end - begin <= 2 * columns) return Array.from({ length: end - begin }, (_, i) => begin + i);
  const kept = [];
  for (let bin = 0, i = begin; bin < columns; bin++) {
    const until = begin + Math.round(((end - begin) * (bin + 1)) / columns);
    let top = i;
    for (let j = i; j < until; j++) if (totals[j] > totals[top]) top = j;
    if (top < until - 1) kept.push(top);
    kept.push(until - 1);
    i = until;
  }
  return kept;
}

// Sums of cells as rows of a matrix. order: the row of the cells for each row in view; epochs
// [e0, e1) in view; weight: what a cell of a row counts for. Columns are `width` epochs wide from
// `start` on, rows stand for `group` rows in view each.
function binCells(cells, order, e0, e1, most, weight) {
  const unit = 2 ** cells.shift;
  let width = unit;
  while ((e1 - e0) / width > most.columns) width *= 2;
  const start = Math.floor(e0 / width) * width;
  const columns = Math.max(1, Math.ceil((e1 - start) / width));
  const group = Math.max(1, Math.ceil(order.length / most.rows));
  const z = Array.from({ length: Math.ceil(order.length / group) }, () => new Float64Array(columns));
  const first = Math.floor(start / unit);
  const last = Math.ceil(e1 / unit);
  order.forEach((row, i) => {
    const own = z[Math.floor(i / group)];
    const base = row * cells.width;
    const until = base + Math.min(last, cells.width);
    const each = weight(row);
    for (let k = lowerBound(cells.key, base + first); k < cells.key.length; k++) {
      if (cells.key[k] >= until) break;
      own[Math.floor(((cells.key[k] - base) * unit - start) / width)] += cells.count[k] * each;
    }
  });
  return { z, start, width, columns, group };
}
