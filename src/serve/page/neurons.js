// The picture of the neurons of a pass (docs/server.md): rows are layers, columns neurons in the order of
// the file, in which those that are used most come first. Ink is amount: what share of a column was used.
import {runs} from './conversations.js';
import {$, changed, make, when} from './dom.js';
import {ofModel} from './models.js';
import {state} from './server.js';

const places = ['pinned', 'cached', 'read'];
const names = {pinned: 'in memory, always kept', cached: 'in memory, read earlier', read: 'read from the SSD meanwhile'};
let newest = null;  // {shape, pass, tokens, pinned, cached, read}: the last picture that came
let shown = null;   // the one that is drawn: the newest, or of an earlier word
let word = null;    // that word, where one is known
let cell = null;    // {layer, column} that is pointed at

const counts16 = text => {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0)), view = new DataView(bytes.buffer);
  return Uint16Array.from({length: bytes.length / 2}, (_, i) => view.getUint16(2 * i, true));
};
const many = n => n.toLocaleString('en');
// The first neuron of column c.
const begins = (shape, c) => Math.ceil(c * shape.experts * shape.neurons / shape.columns);
const shownPlaces = () => shown.shape.is_streamed ? places : ['pinned'];
const nameOf = place => shown.shape.is_streamed ? names[place] : 'used, all of it in memory';
function sums(map, from, to) {
  const sum = {all: 0};
  for (const place of places) {
    sum[place] = map[place].subarray(from, to).reduce((a, b) => a + b, 0);
    sum.all += sum[place];
  }
  return sum;
}
export const picture = () => shown;

// What the picture says, in a sentence.
export function sentence() {
  const {layers, experts, neurons, is_streamed: isStreamed} = shown.shape, sum = sums(shown);
  const there = layers * experts * neurons * shown.tokens;
  const what = shown.tokens > 1 ? `For these ${many(shown.tokens)} tokens` : word ? 'For this word' : 'For the last word';
  const used = `${what} the model used ${many(sum.all)} of ${many(there)} neurons`;
  if (!isStreamed) return used + '; all of them are in memory.';
  if (sum.read === 0) return used + '; all of them were already in memory.';
  const read = 100 * sum.read / sum.all;
  const share = read < 1 ? 'fewer than 1' : read > 99 && sum.read < sum.all ? '99' : Math.round(read);
  const rest = read < 1 ? 'more than 99' : 100 - share;
  return `${used}; ${rest} of 100 were already in memory, ${share} came from the SSD meanwhile.`;
}

// Draws a picture: each column's ink is the share of it that was used, against the column used most; the
// part of each place stands in its colour. So the area of a colour, times its strength, is the amount.
function paint(canvas, map) {
  const {layers, columns} = map.shape, scale = devicePixelRatio || 1;
  const width = canvas.width = Math.round(canvas.clientWidth * scale);
  const height = canvas.height = Math.round(canvas.clientHeight * scale);
  const style = getComputedStyle(document.documentElement), context = canvas.getContext('2d');
  const hues = Object.fromEntries(places.map(p => [p, style.getPropertyValue('--' + p)]));
  const x = c => Math.round(c * width / columns), y = l => l * height / layers;
  const gap = height / layers >= 6 * scale ? scale : 0;  // between layers
  const all = at => map.pinned[at] + map.cached[at] + map.read[at];
  const shares = Float32Array.from({length: layers * columns}, (_, at) => {
    const c = at % columns;
    return all(at) / (begins(map.shape, c + 1) - begins(map.shape, c) || 1);
  });
  const most = shares.reduce((a, b) => Math.max(a, b), 0);
  for (let at = 0; at < shares.length; at++) {
    if (shares[at] === 0) continue;
    const c = at % columns, l = Math.floor(at / columns), high = height / layers - gap;
    context.globalAlpha = shares[at] / most;
    let top = y(l);
    for (const place of places) {
      const part = high * map[place][at] / all(at);
      context.fillStyle = hues[place];
      if (part > 0) context.fillRect(x(c), top, x(c + 1) - x(c), part);
      top += part;
    }
  }
  context.globalAlpha = 1;
  return {context, x, y, scale, style};
}
function draw() {
  if ($('map').offsetParent) {
    $('map').style.height = Math.min(Math.max(260 / shown.shape.layers, 3), 26) * shown.shape.layers + 'px';
    const {context, x, y, scale, style} = paint($('map'), shown);
    if (cell) {
      context.strokeStyle = style.getPropertyValue('--text');
      context.lineWidth = 2 * scale;
      context.strokeRect(x(cell.column), y(cell.layer), Math.max(x(cell.column + 1) - x(cell.column), 3 * scale),
                         Math.max(y(cell.layer + 1) - y(cell.layer), 3 * scale));
    }
  }
  if ($('strip-map').offsetParent) paint($('strip-map'), shown);
}
function describe() {
  const {experts, neurons, columns} = shown.shape, at = cell.layer * columns + cell.column;
  const first = begins(shown.shape, cell.column), last = begins(shown.shape, cell.column + 1) - 1;
  const expert = Math.floor(first / neurons), until = Math.floor(last / neurons);
  const where = experts === 1 ? `neurons ${many(first)} to ${many(last)}`
      : expert !== until ? `experts ${expert} to ${until}`
      : `expert ${expert}, neurons ${many(first % neurons)} to ${many(last % neurons)}`;
  return `Layer ${cell.layer}, ${where}\n` +
         shownPlaces().map(p => `${many(shown[p][at])} ${nameOf(p)}`).join('\n');
}
// Points at a cell, or at none.
function point(to, speaks) {
  cell = to;
  $('tip').hidden = !cell;
  if (cell) {
    const box = $('map'), wide = box.clientWidth;
    $('tip').textContent = describe();
    const left = (cell.column + .5) * wide / shown.shape.columns - $('tip').offsetWidth / 2;
    $('tip').style.left = box.offsetLeft + Math.max(0, Math.min(left, wide - $('tip').offsetWidth)) + 'px';
    $('tip').style.top = (cell.layer + 1) * box.clientHeight / shown.shape.layers + 8 + 'px';
    if (speaks) $('map-cell').textContent = $('tip').textContent;
  }
  draw();
}
function showTable() {
  if (!shown || !$('map-details').open) return;
  const row = (tag, texts) => {
    const line = make('tr');
    texts.forEach((text, i) => {
      const field = make(i === 0 || tag === 'th' ? 'th' : 'td', text);
      if (field.nodeName === 'TH') field.scope = tag === 'th' ? 'col' : 'row';
      line.append(field);
    });
    return line;
  };
  const {layers, columns} = shown.shape;
  $('map-head').replaceChildren(row('th', ['layer', ...shownPlaces().map(nameOf)]));
  $('map-body').replaceChildren(...Array.from({length: layers}, (_, l) => {
    const sum = sums(shown, l * columns, (l + 1) * columns);
    return row('td', [l, ...shownPlaces().map(p => many(sum[p]))]);
  }));
}
// Shows a picture: the newest, or of a word of an answer.
export function present(map, ofWord = null) {
  shown = map;
  word = ofWord;
  const sum = sums(map);
  $('map-none').hidden = true;
  $('map-seen').hidden = false;
  $('map').setAttribute('aria-label', `Heat map of neurons, ${map.shape.layers} layers`);
  $('map-title').textContent = word ? `Neurons for \u201c${word}\u201d` : 'Neurons';
  $('map-last').textContent = `layer ${map.shape.layers}`;
  $('map-legend').replaceChildren(...shownPlaces().map(p => {
    const item = make('li'), swatch = make('i', undefined, p);
    item.append(swatch, make('span', nameOf(p)), make('span', many(sum[p])));
    return item;
  }));
  $('map-text').textContent = sentence();
  $('strip').setAttribute('aria-label', sentence() + ' Show more.');
  showTable();
  point(cell, false);
}
export const presentNewest = () => { if (newest) present(newest); };
// Shows no picture: a server that started anew has none yet.
function forget() {
  newest = shown = cell = null;
  $('tip').hidden = true;
  $('map-seen').hidden = true;
  $('map-none').hidden = false;
  $('strip').hidden = true;
}
function take({shape, last_pass: last}) {
  $('map-section').hidden = !shape;
  if (newest && (!last || JSON.stringify(shape) !== JSON.stringify(newest.shape))) forget();
  if (!shape || !last) return;
  $('strip').hidden = false;
  if (last.pass === newest?.pass) return;
  const isFollowed = shown === newest;
  newest = {shape, pass: last.pass, tokens: last.tokens};
  for (const place of places) newest[place] = counts16(last[place]);
  arrived = performance.now();
  changed('picture', newest);
  if (isFollowed) present(newest);
}

let watching = null, isWatching = false, isBehind = false, arrived = -Infinity, asked = -Infinity;
const LEAST_MS = 40;  // between two requests
const isPaused = () => $('map-pause').getAttribute('aria-pressed') === 'true';
const isWanted = () => runs.size > 0 || $('live').offsetParent || matchMedia('(max-width: 60rem)').matches;
// Looks at the newest picture, and again as long as anybody can see it or it belongs to an answer here:
// at once when a word has come, so that each has its picture where the server is not too fast.
export async function watch() {
  if (isWatching || document.hidden || isPaused() || !isWanted()) return;
  clearTimeout(watching);
  isWatching = true;
  isBehind = false;
  asked = performance.now();
  let wait = 1000;
  try {
    const answer = await state(ofModel('/v1/hearth/neurons'));
    take(answer);
    // A model without pictures stays so until the server runs another.
    if (!answer.shape) wait = 5000;
    else if (performance.now() - arrived < 3000) wait = 150;
  } catch {
    // The line on top says that the server does not answer.
  }
  isWatching = false;
  watching = setTimeout(watch, isBehind ? untilNext() : wait);
}
const untilNext = () => Math.max(asked + LEAST_MS - performance.now(), 0);
function watchSoon() {
  isBehind = true;
  if (isWatching || $('map-section').hidden) return;
  clearTimeout(watching);
  watching = setTimeout(watch, untilNext());
}

export function startNeurons() {
  const map = $('map');
  map.onpointermove = event => {
    if (!shown) return;
    const box = map.getBoundingClientRect(), {layers, columns} = shown.shape;
    const inside = (share, count) => Math.max(0, Math.min(Math.floor(share * count), count - 1));
    point({layer: inside((event.clientY - box.top) / box.height, layers),
           column: inside((event.clientX - box.left) / box.width, columns)}, false);
  };
  map.onpointerleave = map.onblur = () => { if (shown) point(null); };
  map.onkeydown = event => {
    if (!shown) return;
    const {layers, columns} = shown.shape, at = cell ?? {layer: 0, column: -1};
    const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
                  Home: [0, -columns], End: [0, columns]}[event.key];
    if (!step) return;
    event.preventDefault();
    point({layer: Math.max(0, Math.min(at.layer + step[0], layers - 1)),
           column: Math.max(0, Math.min(at.column + step[1], columns - 1))}, true);
  };
  $('map-pause').onclick = () => {
    $('map-pause').setAttribute('aria-pressed', !isPaused());
    $('map-pause').textContent = isPaused() ? 'Resume' : 'Pause';
    watch();
  };
  $('map-details').ontoggle = showTable;
  const redraw = () => { if (shown) point(cell, false); };
  document.addEventListener('visibilitychange', watch);
  matchMedia('(prefers-color-scheme: dark)').onchange = redraw;
  addEventListener('resize', () => { redraw(); watch(); });
  when('messages', watch);
  when('growing', watchSoon);
  when('drawn', () => { redraw(); watch(); });
}
