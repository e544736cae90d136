// The messages of the open conversation.
import {answer, failures, retry, stop, waiting} from './answers.js';
import {branch, conversation, runs, turn} from './conversations.js';
import {$, actionButton, changed, copyText, make, renew, when} from './dom.js';
import {markdown} from './markdown.js';
import {numbers} from './live.js';
import {hasReplay, openReplay} from './replay.js';
import {splitThinking} from './thinking.js';

let editing = null;             // {id, index, text}: the question that is written anew
const opened = new WeakSet();   // messages whose thoughts are unfolded
const run = () => runs.get(conversation().id);

const examples = ['Explain in three sentences why the sky is blue.', 'Write a short story about a fox and a lantern.',
                  'Give me five ideas for a rainy afternoon.'];
function welcome() {
  const box = make('div', undefined, 'welcome'), list = make('div', undefined, 'examples');
  const model = numbers.now?.model;
  box.append(make('h2', model ? `Chat with ${model.name}` : 'Chat'),
             make('p', 'The model runs on the machine of this server. Nothing that you write leaves it; conversations ' +
                       'are kept in this browser.'));
  for (const text of examples) {
    const button = actionButton('example', text);
    button.className = '';
    list.append(button);
  }
  box.append(list);
  return box;
}

function thoughts(message, split, isUnderWay) {
  const details = make('details', undefined, 'thinking');
  const seconds = message.thoughtMs === undefined ? '' : ` for ${(message.thoughtMs / 1000).toFixed(0)} s`;
  details.open = opened.has(message);
  details.append(make('summary', isUnderWay && split.isOpen ? 'Thinking\u2026' : `Thought${seconds}`),
                 make('div', split.thinking.trim(), 'thought'));
  return details;
}
function versions({at, tails}) {
  const nav = make('span', undefined, 'versions');
  const back = actionButton('earlier', '\u2039', 'Earlier version'), on = actionButton('later', '\u203a', 'Later version');
  back.disabled = at === 0;
  on.disabled = at === tails.length - 1;
  nav.append(back, make('span', `${at + 1}/${tails.length}`), on);
  return nav;
}
function actions(message, isLast) {
  const bar = make('div', undefined, 'actions');
  if (message.fork) bar.append(versions(message.fork));
  bar.append(actionButton('copy', 'Copy', 'Copy this text'));
  if (message.role === 'user') bar.append(actionButton('edit', 'Edit', 'Write this question anew and ask again'));
  if (message.role === 'assistant') {
    if (isLast) bar.append(actionButton('again', 'Regenerate', 'Answer once more; this answer is kept'));
    if (isLast && message.isCut) bar.append(actionButton('continue', 'Continue', 'Ask the model to go on'));
    bar.append(actionButton('branch', 'Branch', 'Go on from here in a new conversation'));
    if (hasReplay(message)) bar.append(actionButton('replay', 'Neurons', 'Show word by word what the model used'));
  }
  return bar;
}
function editor(text) {
  const form = make('form', undefined, 'edit'), field = make('textarea', text);
  const send = make('button', 'Ask again', 'main'), cancel = actionButton('cancel', 'Cancel');
  field.setAttribute('aria-label', 'The question, anew');
  field.rows = 3;
  form.append(field, cancel, send);
  return form;
}
function showMessage(message, index, isLast) {
  const box = make('article', undefined, 'message ' + message.role), body = make('div');
  const isUnderWay = run()?.message === message, isAnswer = message.role === 'assistant';
  box.setAttribute('aria-label', isAnswer ? 'Answer' : 'You');
  if (index !== undefined) box.dataset.index = index;
  if (editing?.id === conversation().id && editing.index === index) {
    box.classList.add('edited');
    box.append(editor(editing.text));
    return box;
  }
  body.dataset.body = '';
  if (isAnswer) {
    const split = splitThinking(message);
    if (split.thinking) box.append(thoughts(message, split, isUnderWay));
    markdown(split.text, body, isUnderWay);
  } else {
    body.append(make('p', message.content));
  }
  box.append(body);
  if (isUnderWay) box.setAttribute('aria-busy', 'true');
  const note = !isUnderWay ? message.note : message.content || message.thinking ? '' : waiting(run());
  if (note) box.append(make('div', note, 'note'));
  if (!isUnderWay && index !== undefined) box.append(actions(message, isLast));
  return box;
}
function failureBox({text, act}) {
  const box = make('div', undefined, 'failure');
  box.append(make('span', text));
  if (act === 'retry') box.append(actionButton('retry', 'Try again'));
  if (act === 'settings') box.append(actionButton('settings', 'Open settings'));
  return box;
}
// Follows the end unless somebody reads further up.
function isAtEnd() {
  const {scrollHeight, scrollTop, clientHeight} = $('messages');
  return scrollHeight - scrollTop - clientHeight < 40;
}
const goToEnd = () => { $('messages').scrollTop = $('messages').scrollHeight; };
const forgotten = () => {
  const size = numbers.now ? ` (${numbers.now.model.context.toLocaleString('en')} tokens)` : '';
  return make('p', `The conversation is longer than the model\u2019s context${size}: the model no longer sees what ` +
                   'stands above this line.', 'forgotten');
};
export function showMessages(toEnd = isAtEnd()) {
  const chat = conversation(), now = run(), isWaiting = now && !now.hasBegun;
  // A question that is asked anew takes the place of what stood there; an old answer stays until there is a
  // new one.
  const shown = isWaiting && now.question ? chat.messages.slice(0, now.kept) : chat.messages;
  const boxes = shown.map((message, i) => showMessage(message, i, i === shown.length - 1));
  if (isWaiting && now.question) boxes.push(showMessage({role: 'user', content: now.question}));
  const from = isWaiting ? now.from : chat.messages.findLast(m => m.role === 'assistant')?.from;
  if (from > 0) boxes.splice(from, 0, forgotten());
  if (isWaiting) boxes.push(showMessage(now.message));
  if (failures.has(chat.id)) boxes.push(failureBox(failures.get(chat.id)));
  if (boxes.length === 0) boxes.push(welcome());
  renew($('messages'), boxes);
  if (toEnd) goToEnd();
  showRoom();
}
// How much of the context the conversation takes.
function showRoom() {
  const usage = conversation().messages.findLast(m => m.usage)?.usage, context = numbers.now?.model.context;
  $('room').hidden = !usage || !context;
  if ($('room').hidden) return;
  const used = usage.prompt + usage.completion, many = n => n.toLocaleString('en');
  $('room-bar').value = used / context;
  $('room-text').textContent =
      `Context: ${many(used)} of ${many(context)} tokens, ${many(Math.max(context - used, 0))} left`;
}

// The answer that grows: once a frame at most, and at most a quarter of the time.
let frame = null, cost = 0, painted = 0;
function paint(now) {
  frame = null;
  const box = $('messages').querySelector('[aria-busy=true]'), started = performance.now();
  if (!box || run() !== now) return;
  if (started - painted < 3 * cost) return paintSoon(now);
  const toEnd = isAtEnd(), fresh = showMessage(now.message, box.dataset.index);
  renew(box.querySelector('[data-body]'), [...fresh.querySelector('[data-body]').childNodes]);
  const had = box.querySelector('.thinking'), thought = fresh.querySelector('.thinking');
  if (had && thought) renew(had, [...thought.childNodes]);
  else if (thought) box.prepend(thought);
  box.querySelector('.note')?.remove();
  if (toEnd) goToEnd();
  painted = performance.now();
  cost = painted - started;
}
const paintSoon = now => { frame ??= requestAnimationFrame(() => paint(now)); };

function edit(index) {
  editing = {id: conversation().id, index, text: conversation().messages[index].content};
  showMessages();
  const field = $('messages').querySelector('.edit textarea');
  field.focus();
  field.setSelectionRange(field.value.length, field.value.length);
}
export function editLast() {
  const index = conversation().messages.findLastIndex(m => m.role === 'user');
  if (index >= 0 && !run()) edit(index);
}
function endEdit() {
  editing = null;
  showMessages();
  $('question').focus();
}
const acts = {
  copy: (chat, index, message, button) => {
    copyText(message.role === 'user' ? message.content : splitThinking(message).text);
    confirmOn(button);
  },
  'copy-code': (chat, index, message, button) => {
    copyText(button.closest('.code').querySelector('code').textContent);
    confirmOn(button);
  },
  edit: (chat, index) => { if (!run()) edit(index); },
  cancel: endEdit,
  again: (chat, index) => answer(chat, index),
  continue: (chat, index) => answer(chat, index + 1, 'Continue.'),
  branch: (chat, index) => branch(chat, index),
  replay: (chat, index, message) => { openReplay(message); changed('drawer', 'live'); },
  earlier: (chat, index) => show(chat, index, -1),
  later: (chat, index) => show(chat, index, 1),
  retry: () => askAgain(),
  settings: () => changed('drawer', 'settings'),
  example: (chat, index, message, button) => { if (!run()) answer(chat, 0, button.textContent); },
};
function show(chat, index, step) {
  if (run()) return;
  turn(chat, index, step);
  showMessages(false);
}
function confirmOn(button) {
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = 'Copy'; }, 1500);
}

// Asks what failed once more: a question that came back to the field as it stands there now.
export function askAgain() {
  const chat = conversation(), failure = failures.get(chat.id);
  if (failure?.isInField) $('form').requestSubmit(); else retry(chat);
}

export function startMessages() {
  const log = $('messages');
  log.onclick = event => {
    const button = event.target.closest('[data-act]'), chat = conversation();
    if (!button) return;
    const index = Number(button.closest('[data-index]')?.dataset.index);
    acts[button.dataset.act](chat, index, chat.messages[index], button);
  };
  log.onsubmit = event => {
    event.preventDefault();
    const {index} = editing, text = log.querySelector('.edit textarea').value.trim();
    if (!text || run()) return;
    editing = null;
    answer(conversation(), index, text);
    $('question').focus();
  };
  log.addEventListener('keydown', event => {
    if (event.key === 'Escape' && event.target.closest('.edit')) endEdit();
  });
  log.addEventListener('toggle', event => {
    const box = event.target.closest('.message');
    const message = box?.hasAttribute('aria-busy') ? run()?.message : conversation().messages[box?.dataset.index];
    if (message && event.target.matches('.thinking')) opened[event.target.open ? 'add' : 'delete'](message);
  }, true);
  when('messages', detail => showMessages(detail?.toEnd));
  when('opened', () => { editing = null; showMessages(true); });
  when('growing', now => { if (now.chat === conversation()) paintSoon(now); });
  when('settled', now => {
    if (now.chat !== conversation()) return;
    const isLost = !now.hasBegun && now.question && now.kept < now.chat.messages.length;
    if (isLost) editing = {id: now.chat.id, index: now.kept, text: now.question};
    showMessages();
    // Once and as a whole: a screen reader that follows the words reads none to the end.
    const last = log.lastElementChild;
    $('said').textContent = last.querySelector('[data-body]')?.innerText ?? last.innerText;
  });
  when('stats', isFirst => {
    const now = run(), note = log.querySelector('[aria-busy=true] .note');
    if (now && !now.hasBegun && note) note.textContent = waiting(now);
    if (isFirst) showMessages();
  });
  document.addEventListener('keydown', event => {
    if (event.key === 'Escape' && !event.isComposing && event.keyCode !== 229) stop(conversation().id);
  });
}
