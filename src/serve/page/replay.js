// The pictures that came while an answer grew, word by word.
import {runs} from './conversations.js';
import {$, changed, make, when} from './dom.js';
import {present, presentNewest} from './neurons.js';

const MOST = 600;          // pictures that are kept, of all answers together: some 25 KB each
const STEP_MS = 250;
const records = new Map();  // a message -> [{at, map}]: `at` characters had come
let message = null;         // whose pictures can be shown
let words = [];             // of it: {text, record: the index of its picture, or undefined}
let playing = null;

const textOf = m => (m.thinking ?? '') + m.content;
export const hasReplay = m => (records.get(m)?.length ?? 0) > 1;

function record(map) {
  const [run, ...others] = [...runs.values()].filter(r => r.hasBegun);
  if (!run || others.length > 0) return;  // nobody can tell whose word it was
  const list = records.get(run.message) ?? [];
  list.push({at: textOf(run.message).length, map});
  records.set(run.message, list);
  let count = [...records.values()].reduce((sum, l) => sum + l.length, 0);
  for (const [oldest, l] of records) {
    if (count <= MOST || oldest === run.message) break;
    records.delete(oldest);
    count -= l.length;
  }
}
// Words with the pictures that came with their last letters.
function split() {
  const list = records.get(message);
  words = [...textOf(message).matchAll(/\S+\s*/g)].map(m => ({text: m[0], from: m.index}));
  list.forEach((one, i) => {
    one.word = words.findLast(w => w.from < one.at);
    if (one.word) one.word.record = i;
  });
}
function show(index) {
  const {map, word} = records.get(message)[index], slider = $('replay-at');
  slider.value = index;
  slider.setAttribute('aria-valuetext', word?.text.trim() ?? '');
  for (const node of $('replay-words').querySelectorAll('.now')) node.classList.remove('now');
  const node = $('replay-words').children[words.indexOf(word)];
  if (node) {
    node.classList.add('now');
    const box = $('replay-words');
    box.scrollTop = node.offsetTop - box.clientHeight / 2;
  }
  $('replay-now').hidden = false;
  present(map, word?.text.trim());
}
function halt() {
  clearInterval(playing);
  playing = null;
  $('replay-play').textContent = 'Play';
}
function play() {
  if (playing) return halt();
  const last = records.get(message).length - 1;
  let index = Number($('replay-at').value);
  if (index >= last) index = -1;
  $('replay-play').textContent = 'Stop';
  playing = setInterval(() => {
    if (index >= last) return halt();
    show(++index);
  }, STEP_MS);
}
function close() {
  halt();
  message = null;
  $('replay').hidden = true;
  presentNewest();
}
// Offers the pictures of an answer.
export function openReplay(of) {
  halt();
  message = of;
  split();
  $('replay-words').replaceChildren(...words.map(w => {
    const node = make('span', w.text);
    if (w.record !== undefined) node.dataset.record = w.record;
    return node;
  }));
  const last = records.get(message).length - 1;
  Object.assign($('replay-at'), {max: last, value: last});
  $('replay-at').setAttribute('aria-valuetext', 'now');
  $('replay-now').hidden = true;
  $('replay').hidden = false;
}
export function startReplay() {
  $('replay-at').oninput = () => { halt(); show(Number($('replay-at').value)); };
  $('replay-play').onclick = play;
  $('replay-now').onclick = () => { openReplay(message); presentNewest(); };
  $('replay-words').onpointerover = $('replay-words').onclick = event => {
    const index = event.target.dataset.record;
    if (index === undefined || playing) return;
    show(Number(index));
  };
  when('picture', record);
  when('messages', () => { if (message && runs.size > 0) close(); });
  when('settled', run => {
    if (hasReplay(run.message)) openReplay(run.message);
    changed('messages');
  });
}
