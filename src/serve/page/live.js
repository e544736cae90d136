// What the server says of itself: the line on top, speeds, memory.
import {troubles} from './conversations.js';
import {$, changed, make, when} from './dom.js';
import {findModels, forgetModels, ofModel, theModel} from './models.js';
import {state} from './server.js';

// The newest /v1/hearth/stats and the rates since the one before.
export const numbers = {now: null, speed: 0, hit: null};
export const history = {speeds: [], hits: []};
const SECONDS = 120;

const size = bytes => bytes >= 2 ** 30 ? (bytes / 2 ** 30).toFixed(2) + ' GiB'
                                      : (bytes / 2 ** 20).toFixed(1) + ' MiB';
const many = n => n.toLocaleString('en');
function rows(id, entries) {
  $(id).replaceChildren(...entries.flatMap(([k, v]) => [make('dt', k), make('dd', v)]));
}
function chart(id, values, top) {
  const first = SECONDS - values.length;
  $(id).firstElementChild.setAttribute('points', values.map((v, i) =>
      `${first + i},${98 - 96 * Math.min(v / top, 1)}`).join(' '));
}

// The line on top: what is wrong, else what the server runs.
function showStatus() {
  const {now} = numbers;
  const model = now ? `${now.model.name} \u00b7 context ${many(now.model.context)} tokens` : theModel();
  const text = troubles.server || [troubles.storage, model].filter(Boolean).join(' \u00b7 ');
  $('model').classList.toggle('trouble', text !== model);
  if ($('model').textContent !== text) $('model').textContent = text;
}
async function look() {
  if (document.hidden) return;
  let now = null;
  try {
    await findModels();
    now = await state(ofModel('/v1/hearth/stats'));
    troubles.server = '';
    $('key-form').hidden = true;
  } catch (error) {
    if (error.code === 'model_not_loaded') forget();
    if (error.code === 'model_not_found') forgetModels();
    troubles.server = error.code === 'model_not_loaded' ? ''
        : error.status === 401 ? 'The server wants a key.'
        : error.status > 0 ? `The server answers with status ${error.status}.`
        : 'The server does not answer. This page goes on when it is there again.';
  }
  if (now) take(now);
  showStatus();
}
// A second after each answer, so that questions to a slow server do not pile up.
export async function keepLooking() {
  await look();
  setTimeout(keepLooking, 1000);
}
function take(now) {
  const isFirst = !numbers.now;
  now.at = performance.now();
  let last = numbers.now;
  // Numbers that fall are those of a server that started anew.
  if (last && (now.tokens.generated < last.tokens.generated || now.io.neurons < last.io.neurons ||
               now.io.read < last.io.read)) last = null;
  numbers.now = now;
  numbers.speed = last ? (now.tokens.generated - last.tokens.generated) * 1000 / (now.at - last.at) : 0;
  const asked = last ? now.io.neurons - last.io.neurons : 0;
  if (asked > 0) numbers.hit = 1 - (now.io.read - last.io.read) / asked;
  history.speeds.push(numbers.speed);
  history.hits.push(numbers.hit ?? 1);
  for (const values of [history.speeds, history.hits]) if (values.length > SECONDS) values.shift();
  showNumbers();
  changed('stats', isFirst);
}
function showNumbers() {
  const {now, speed, hit} = numbers, {is_streamed: isStreamed} = now.model;
  const isBusy = speed > 0 || now.requests.running > 0, share = hit === null ? null : Math.round(100 * hit);
  const inMemory = isStreamed && share !== null ? ` \u00b7 ${share}% from memory` : '';
  $('gauge').textContent = isBusy ? `${speed.toFixed(1)} tok/s${inMemory}` : 'Live';
  const most = Math.max(...history.speeds, 0);
  const {running, waiting} = now.requests;
  rows('speed', [['tokens per second', speed.toFixed(1)],
                 ['answers under way', many(running)], ...(waiting ? [['requests that wait', many(waiting)]] : []),
                 ...(isStreamed ? [['found in memory', share === null ? '\u2013' : share + '%'],
                                   ['read from the SSD', size(now.io.bytes_read)]] : [])]);
  chart('speed-chart', history.speeds, Math.max(most, 1));
  $('speed-note').textContent = `tokens per second, last two minutes; at most ${most.toFixed(1)}`;
  $('hits').hidden = !isStreamed;
  if (isStreamed) chart('hit-chart', history.hits, 1);
  const {ledger, limit_bytes: limit, resident_bytes: resident} = now.memory;
  const sum = Object.values(ledger).reduce((a, b) => a + b, 0);
  $('memory-bar').value = Math.min(sum / limit, 1);
  $('memory-text').textContent = `${size(sum)} of ${size(limit)} are set aside; the program holds ${size(resident)} of memory now.`;
  rows('memory', Object.entries(ledger).sort((a, b) => b[1] - a[1]).map(([k, v]) => [k, size(v)]));
}
// Of another model nothing is known yet.
function forget() {
  numbers.now = null;
}
export function startLive() {
  when('status', showStatus);
  when('model', () => {
    forget();
    showStatus();
  });
}
