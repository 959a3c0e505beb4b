// Reads what pack.py put into the page, and finds things in it.

const TYPES = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array };

async function inflate(id) {
  const text = document.getElementById(id).textContent;
  const raw = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function unpack(bytes) {
  const end = 4 + new DataView(bytes.buffer).getUint32(0, true);
  const parsed = JSON.parse(new TextDecoder().decode(bytes.subarray(4, end)));
  return restored(parsed, bytes.subarray(end));
}

function restored(value, body) {
  if (Array.isArray(value)) return value.map((item) => restored(item, body));
  if (value === null || typeof value !== "object") return value;
  if (value.$) return column(body, ...value.$);
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, restored(item, body)]));
}

function column(body, offset, count, type, ascending) {
  const width = TYPES[type].BYTES_PER_ELEMENT;
  const bytes = new Uint8Array(count * width);
  for (let part = 0; part < width; part++) {
    const from = offset + part * count;
    for (let i = 0; i < count; i++) bytes[i * width + part] = body[from + i];
  }
  const values = new TYPES[type](bytes.buffer);
  if (!ascending) return values;
  const sums = new Float64Array(count);
  for (let i = 0, sum = 0; i < count; i++) sums[i] = sum += values[i];
  return sums;
}

// The first index from `low` on whose value is not below `wanted`; values ascend.
function lowerBound(values, wanted, low = 0, high = values.length) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

// ---- how numbers are put ----

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const number = (value) => whole.format(value);

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit++;
  }
  return unit ? `${bytes.toFixed(bytes < 10 ? 2 : 1)} ${units[unit]}` : `${number(bytes)} B`;
}

function duration(nanoseconds, digits = 6) {
  const units = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
  const [unit, scale] = units.find(([, least]) => nanoseconds >= least) || units[3];
  return `${Number((nanoseconds / scale).toPrecision(unit === "s" ? digits + 3 : digits))} ${unit}`;
}

const counted = (value, noun, plural) =>
  `${number(value)} ${value === 1 ? noun : plural || `${noun}s`}`;

// ---- elements; text is always text, never HTML ----

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const at = (id) => document.getElementById(id);
