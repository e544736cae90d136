// The line on top: what is wrong, else what the server runs.
const troubles = {server: '', storage: ''};
let model = '';
function showStatus() {
  const text = troubles.server || [troubles.storage, model].filter(Boolean).join(' \u00b7 ');
  $('model').classList.toggle('trouble', text !== model);
  if ($('model').textContent !== text) $('model').textContent = text;
}

// The live view.
const speeds = [], hits = [];
let last = null;
const size = bytes => bytes >= 2 ** 30 ? (bytes / 2 ** 30).toFixed(2) + ' GiB'
                                      : (bytes / 2 ** 20).toFixed(1) + ' MiB';
function rows(id, entries) {
  $(id).replaceChildren(...entries.flatMap(([k, v]) => [make('dt', k), make('dd', v)]));
}
function chart(id, values, top) {
  const first = 120 - values.length;
  $(id).firstElementChild.setAttribute('points', values.map((v, i) =>
      `${first + i},${98 - 96 * Math.min(v / top, 1)}`).join(' '));
}
// What the server says of itself. A server that says nothing for some seconds does not answer.
async function state(path) {
  const control = new AbortController(), timer = setTimeout(() => control.abort(), 10000);
  try {
    const response = await fetch(path, {headers: headers(), signal: control.signal});
    if (!response.ok) throw new Error();
    return await response.json();
  } finally {
    clearTimeout(timer);
  }
}
async function look() {
  if (document.hidden) return;
  let now;
  try {
    now = await state('/v1/hearth/stats');
    troubles.server = '';
    model = `${now.model.name} \u00b7 ${now.model.mode} \u00b7 context ${now.model.context}`;
  } catch {
    troubles.server = 'the server does not answer, or wants a key';
  }
  showStatus();
  if (now) showNumbers(now);
}
// A second after each answer, so that questions to a slow server do not pile up.
async function keepLooking() {
  await look();
  setTimeout(keepLooking, 1000);
}
function showNumbers(now) {
  now.at = performance.now();
  // Numbers that fall are those of a server that started anew.
  if (last && (now.tokens.generated < last.tokens.generated || now.io.neurons < last.io.neurons ||
               now.io.read < last.io.read)) last = null;
  const passed = last ? (now.at - last.at) / 1000 : 1;
  const speed = last ? (now.tokens.generated - last.tokens.generated) / passed : 0;
  const asked = last ? now.io.neurons - last.io.neurons : 0;
  const hit = asked > 0 ? 1 - (now.io.read - last.io.read) / asked : hits.at(-1) ?? 1;
  speeds.push(speed);
  hits.push(hit);
  if (speeds.length > 120) { speeds.shift(); hits.shift(); }
  rows('speed', [['tokens per second', speed.toFixed(1)], ['hit rate', (100 * hit).toFixed(1) + '%'],
                 ['running, waiting', `${now.requests.running}, ${now.requests.waiting}`],
                 ['read from storage', size(now.io.bytes_read)]]);
  chart('speed-chart', speeds, Math.max(...speeds, 1));
  chart('hit-chart', hits, 1);
  const sum = Object.values(now.memory.ledger).reduce((a, b) => a + b, 0);
  $('memory-bar').style.width = 100 * sum / now.memory.limit_bytes + '%';
  rows('memory', [...Object.entries(now.memory.ledger).map(([k, v]) => [k, size(v)]),
                  ['limit', size(now.memory.limit_bytes)],
                  ['resident', size(now.memory.resident_bytes)]]);
  last = now;
}

// The picture of the neurons of the last pass (docs/server.md): rows are layers, columns neurons in
// the order of the file, colours say where they were, their strength what share was computed.
const places = ['pinned', 'cached', 'read'];
let map = null;       // {shape, pass, tokens, pinned, cached, read}: what is shown
let cell = null;      // {layer, column} that is pointed at
const counts16 = text => {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0)), view = new DataView(bytes.buffer);
  return Uint16Array.from({length: bytes.length / 2}, (_, i) => view.getUint16(2 * i, true));
};
const many = n => n.toLocaleString('en');
const percent = (part, all) => all > 0 ? (100 * part / all).toFixed(1) + '%' : '0%';
// Neurons of a layer that column c begins with.
const begins = (shape, c) => Math.ceil(c * shape.experts * shape.neurons / shape.columns);
// What there is to tell apart.
const shown = () => map.shape.is_streamed ? places : ['pinned'];
const words = () => map.shape.is_streamed
    ? {pinned: 'pinned in memory', cached: 'found in the cache', read: 'read from storage'}
    : {pinned: 'fired, all in memory'};
const sums = (from, to) => Object.fromEntries(places.map(
    p => [p, map[p].subarray(from, to).reduce((a, b) => a + b, 0)]));

function rowHeight() { return Math.min(Math.max(260 / map.shape.layers, 3), 26); }
function draw() {
  const canvas = $('map'), {layers, columns} = map.shape, scale = devicePixelRatio || 1;
  canvas.style.height = rowHeight() * layers + 'px';
  const width = canvas.width = Math.round(canvas.clientWidth * scale);
  const height = canvas.height = Math.round(canvas.clientHeight * scale);
  const style = getComputedStyle(document.documentElement), paint = canvas.getContext('2d');
  const hues = Object.fromEntries(places.map(p => [p, style.getPropertyValue('--' + p)]));
  const x = c => Math.round(c * width / columns), y = l => Math.round(l * height / layers);
  const gap = height / layers >= 6 * scale ? Math.round(scale) : 0;  // between layers
  for (let l = 0; l < layers; l++) for (let c = 0; c < columns; c++) {
    const at = l * columns + c, all = map.pinned[at] + map.cached[at] + map.read[at];
    if (all === 0) continue;
    const most = (begins(map.shape, c + 1) - begins(map.shape, c)) * map.tokens;
    paint.globalAlpha = .4 + .6 * Math.sqrt(Math.min(all / most, 1));
    // From the top: a share of the cell for each place.
    const high = y(l + 1) - y(l) - gap;
    let top = y(l);
    for (const place of places) {
      if (map[place][at] === 0) continue;
      const part = Math.max(Math.round(high * map[place][at] / all), 1);
      const bottom = Math.min(top + part, y(l) + high);
      paint.fillStyle = hues[place];
      paint.fillRect(x(c), top, x(c + 1) - x(c), bottom - top);
      top = bottom;
    }
  }
  paint.globalAlpha = 1;
  if (cell) {
    paint.strokeStyle = style.getPropertyValue('--text');
    paint.lineWidth = 2 * scale;
    paint.strokeRect(x(cell.column), y(cell.layer), Math.max(x(cell.column + 1) - x(cell.column), 3 * scale),
                     Math.max(y(cell.layer + 1) - y(cell.layer), 3 * scale));
  }
}
function describe() {
  const {experts, neurons, columns} = map.shape, at = cell.layer * columns + cell.column;
  const first = begins(map.shape, cell.column), last = begins(map.shape, cell.column + 1) - 1;
  const expert = Math.floor(first / neurons), until = Math.floor(last / neurons);
  const where = experts === 1 ? `neurons ${many(first)} to ${many(last)}`
      : expert !== until ? `experts ${expert} to ${until}`
      : `expert ${expert}, neurons ${many(first % neurons)} to ${many(last % neurons)}`;
  const said = words();
  return `Layer ${cell.layer}, ${where}\n` +
         shown().map(p => `${many(map[p][at])} ${said[p]}`).join('\n');
}
// Points at a cell, or at none.
function point(to, speaks) {
  cell = to;
  $('tip').hidden = !cell;
  if (cell) {
    const box = $('map'), wide = box.clientWidth;
    $('tip').textContent = describe();
    const left = (cell.column + .5) * wide / map.shape.columns - $('tip').offsetWidth / 2;
    $('tip').style.left = Math.max(0, Math.min(left, wide - $('tip').offsetWidth)) + 'px';
    $('tip').style.top = (cell.layer + 1) * box.clientHeight / map.shape.layers + 8 + 'px';
    if (speaks) $('map-cell').textContent = $('tip').textContent;
  }
  draw();
}
function table() {
  if (!$('map-details').open) return;
  const row = (tag, texts) => {
    const line = make('tr');
    texts.forEach((text, i) => {
      const field = make(i === 0 || tag === 'th' ? 'th' : 'td', text);
      if (field.nodeName === 'TH') field.scope = tag === 'th' ? 'col' : 'row';
      line.append(field);
    });
    return line;
  };
  const {layers, columns} = map.shape, names = shown();
  $('map-head').replaceChildren(row('th', ['layer', ...(map.shape.is_streamed ? names : ['fired'])]));
  $('map-body').replaceChildren(...Array.from({length: layers}, (_, l) => {
    const sum = sums(l * columns, (l + 1) * columns);
    return row('td', [l, ...names.map(p => many(sum[p]))]);
  }));
}
function showMap() {
  const {layers, experts, neurons} = map.shape, sum = sums(), said = words();
  const all = sum.pinned + sum.cached + sum.read, there = layers * experts * neurons * map.tokens;
  $('map-none').hidden = true;
  $('map-seen').hidden = false;
  $('map-title').textContent = map.tokens === 1 ? 'Neurons of the last token'
                                                : `Neurons of the last ${map.tokens} tokens`;
  $('map').setAttribute('aria-label', `Heat map of neurons, ${layers} layers`);
  $('map-rows').textContent = `${layers} layers, the first on top`;
  $('map-legend').replaceChildren(...shown().map(p => {
    const item = make('li'), swatch = make('i');
    swatch.style.background = `var(--${p})`;
    item.append(swatch, make('span', said[p]),
                make('span', map.shape.is_streamed ? `${many(sum[p])} \u00b7 ${percent(sum[p], all)}`
                                                   : many(sum[p])));
    return item;
  }));
  $('map-text').textContent =
      `${many(all)} of ${many(there)} neurons ${map.shape.is_streamed ? 'were computed' : 'fired'}: ` +
      `${percent(all, there)}.`;
  table();
  point(cell, false);
}
// Shows no picture: a server that started anew has none yet.
function forgetMap() {
  map = cell = null;
  $('tip').hidden = true;
  $('map-seen').hidden = true;
  $('map-none').hidden = false;
}
function takePicture({shape, last_pass}) {
  $('map-section').hidden = !shape;
  if (map && (!last_pass || JSON.stringify(shape) !== JSON.stringify(map.shape))) forgetMap();
  if (!shape || !last_pass || last_pass.pass === map?.pass) return;
  map = {shape, pass: last_pass.pass, tokens: last_pass.tokens};
  for (const place of places) map[place] = counts16(last_pass[place]);
  changed = performance.now();
  showMap();
}
let watching = null, isWatching = false, changed = -Infinity;
// Looks at the newest picture, and again as long as anybody can see it.
async function watch() {
  const paused = $('map-pause').getAttribute('aria-pressed') === 'true';
  if (isWatching || document.hidden || paused || !$('live').offsetParent) return;
  clearTimeout(watching);
  isWatching = true;
  let wait = 1000;
  try {
    const picture = await state('/v1/hearth/neurons');
    takePicture(picture);
    // A model without pictures stays so until the server runs another.
    if (!picture.shape) wait = 5000;
    else if (performance.now() - changed < 3000) wait = 200;
  } catch {
    // The line on top says that the server does not answer.
  }
  isWatching = false;
  watching = setTimeout(watch, wait);
}
$('map').onpointermove = event => {
  if (!map) return;
  const box = $('map').getBoundingClientRect(), {layers, columns} = map.shape;
  const inside = (share, count) => Math.max(0, Math.min(Math.floor(share * count), count - 1));
  point({layer: inside((event.clientY - box.top) / box.height, layers),
         column: inside((event.clientX - box.left) / box.width, columns)}, false);
};
$('map').onpointerleave = $('map').onblur = () => { if (map) point(null); };
$('map').onkeydown = event => {
  if (!map) return;
  const {layers, columns} = map.shape, at = cell ?? {layer: 0, column: -1};
  const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
                Home: [0, -columns], End: [0, columns]}[event.key];
  if (!step) return;
  event.preventDefault();
  point({layer: Math.max(0, Math.min(at.layer + step[0], layers - 1)),
         column: Math.max(0, Math.min(at.column + step[1], columns - 1))}, true);
};
$('map-pause').onclick = () => {
  const paused = $('map-pause').getAttribute('aria-pressed') !== 'true';
  $('map-pause').setAttribute('aria-pressed', paused);
  $('map-pause').textContent = paused ? 'Go on' : 'Pause';
  watch();
};
$('map-details').ontoggle = () => { if (map) table(); };
document.addEventListener('visibilitychange', () => { watch(); });
matchMedia('(prefers-color-scheme: dark)').onchange = () => { if (map) draw(); };
addEventListener('resize', () => { if (map) point(cell, false); watch(); });

function view(name) {
  for (const one of ['list', 'live']) {
    const is = one === name && !document.body.classList.contains(one);
    document.body.classList.toggle(one, is);
    $('show-' + one).setAttribute('aria-expanded', is);
  }
  if (map) showMap();
  watch();
}
$('show-list').onclick = () => view('list');
$('show-live').onclick = () => view('live');
load();
if (conversation()) open(current); else begin();
keepLooking();
watch();
