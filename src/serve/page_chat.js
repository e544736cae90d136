// Storage may be full, or closed to this page; then what it would keep lasts as long as the page.
const stored = (store, name, otherwise) => {
  try { return JSON.parse(window[store].getItem(name)) ?? otherwise; } catch { return otherwise; }
};
function keep(store, name, value) {
  try { window[store].setItem(name, JSON.stringify(value)); } catch { return false; }
  return true;
}

// Conversations: {id, messages: [{role, content, note}]}, the newest first. Other tabs have the same;
// each stores only those that it changes.
let conversations = [];
let current = stored('sessionStorage', 'hearth.current', stored('localStorage', 'hearth.current', null));
const known = new Set();   // ids that storage had: what is gone from it was deleted
const unkept = new Set();  // ids of which storage has not the newest
const drafts = stored('sessionStorage', 'hearth.drafts', {});  // questions not yet asked, by id
// Answers under way, by id of the conversation: {chat, question, asked, message, control, hasBegun}. An
// answer joins its conversation with its first word, and its question with it: templates refuse a
// conversation in which two questions follow each other.
const runs = new Map();
const failures = new Map();  // by id: why the last question has no answer

const conversation = () => conversations.find(c => c.id === current);
function storedConversations() {
  const all = stored('localStorage', 'hearth.conversations', []);
  if (!Array.isArray(all)) return [];
  return all.filter(c => Array.isArray(c?.messages))
      .map(c => ({id: c.id, messages: answered(c.messages)})).filter(c => c.messages.length > 0);
}
// Questions that have answers, with them; older pages stored others too.
function answered(messages) {
  const isSaid = m => m?.role === 'assistant' && m.content !== '' && m.content !== '\u2026';
  return messages.filter((m, i) => m.role === 'user' ? isSaid(messages[i + 1]) : isSaid(m));
}
// Takes over what other tabs stored.
function load() {
  const own = new Map(conversations.map(c => [c.id, c])), isOurs = id => runs.has(id) || unkept.has(id);
  const all = storedConversations().map(c => own.has(c.id) && isOurs(c.id) ? own.get(c.id) : c);
  const ids = new Set(all.map(c => c.id));
  conversations = [...conversations.filter(c => !ids.has(c.id) && !known.has(c.id)), ...all];
  for (const id of ids) known.add(id);
  for (const id of unkept) if (known.has(id) && !ids.has(id)) unkept.delete(id);
  for (const [id, run] of runs) if (!conversations.includes(run.chat)) run.control.abort();
}
function save(chat) {
  const all = storedConversations(), at = all.findIndex(c => c.id === chat.id);
  if (at < 0 && known.has(chat.id)) return;  // deleted in another tab
  if (at < 0) all.unshift(chat); else all[at] = chat;
  const isKept = keep('localStorage', 'hearth.conversations', all);
  if (isKept) known.add(chat.id);
  if (isKept) unkept.delete(chat.id); else unkept.add(chat.id);
  troubles.storage = unkept.size === 0 ? '' :
      'conversations are not kept: the browser\u2019s storage is full, or closed to this page';
  showStatus();
}
function open(id) {
  current = id;
  keep('sessionStorage', 'hearth.current', id);
  keep('localStorage', 'hearth.current', id);
  $('question').value = drafts[id] ?? '';
  grow();
  showList();
  showMessages(true);
}
function begin() {
  const isNew = c => c.messages.length === 0 && !runs.has(c.id);
  if (!conversations.some(isNew)) {
    const id = Date.now().toString(36) + Math.random().toString(36).slice(2, 6);
    conversations.unshift({id, messages: []});
  }
  open(conversations.find(isNew).id);
}
function titleOf(chat) {
  const text = chat.messages[0]?.content ?? runs.get(chat.id)?.question;
  return text?.slice(0, 40) || 'New conversation';
}
function remove(id) {
  const chat = conversations.find(c => c.id === id);
  if ((chat.messages.length || runs.has(id)) && !confirm(`Delete \u201c${titleOf(chat)}\u201d?`)) return;
  known.add(id);
  unkept.delete(id);
  keep('localStorage', 'hearth.conversations', storedConversations().filter(c => c.id !== id));
  conversations = conversations.filter(c => c.id !== id);
  setDraft(id, '');
  runs.get(id)?.control.abort();
  settle();
  $('new').focus();
}
// Shows the list, and another conversation if the one that was open is gone.
function settle() {
  if (conversation()) return showList();
  if (conversations.length > 0) open(conversations[0].id); else begin();
}
function showList() {
  const hadFocus = $('list').contains(document.activeElement);
  renew($('list'), conversations.map(c => {
    const item = make('li'), choose = make('button', titleOf(c), 'quiet');
    const drop = make('button', '\u00d7', 'quiet'), id = item.dataset.id = c.id;
    choose.setAttribute('aria-current', id === current);
    choose.onclick = () => { open(id); view(''); };
    drop.setAttribute('aria-label', 'Delete: ' + titleOf(c));
    drop.onclick = () => remove(id);
    item.append(choose, drop);
    return item;
  }));
  if (hadFocus && !$('list').contains(document.activeElement)) $('list').querySelector('[aria-current=true]')?.focus();
}
addEventListener('storage', event => {
  // A key of null: all was cleared.
  if (event.key !== null && event.key !== 'hearth.conversations') return;
  const before = JSON.stringify(conversation());
  load();
  settle();
  if (JSON.stringify(conversation()) !== before) showMessages();
});

function showMessage(message) {
  const box = make('div', undefined, 'message ' + message.role), body = make('div');
  const isUnderWay = runs.get(current)?.message === message;
  body.dataset.body = '';
  if (message.role === 'user') body.append(make('p', message.content));
  else markdown(message.content, body);
  box.append(body);
  if (isUnderWay) box.setAttribute('aria-busy', 'true');
  const waiting = runs.get(current)?.isThinking ? 'thinking' : 'waiting for the first word';
  const note = !isUnderWay ? message.note : message.content ? '' : waiting;
  if (note) box.append(make('div', note, 'note'));
  return box;
}
function isAtEnd() {
  const {scrollHeight, scrollTop, clientHeight} = $('messages');
  return scrollHeight - scrollTop - clientHeight < 40;
}
// Follows the end unless somebody reads further up.
function showMessages(toEnd = isAtEnd()) {
  const chat = conversation(), run = runs.get(current), boxes = chat.messages.map(showMessage);
  if (run && !run.hasBegun) {
    if (run.question) boxes.push(showMessage({role: 'user', content: run.question}));
    boxes.push(showMessage(run.message));
  }
  if (failures.has(current)) boxes.push(make('div', failures.get(current), 'message failure'));
  renew($('messages'), boxes);
  if (toEnd) $('messages').scrollTop = $('messages').scrollHeight;
  showButtons();
}
// Stop stands where Send stood; who was there stays there.
function showButtons() {
  const isBusy = runs.has(current), focused = document.activeElement;
  $('stop').hidden = !isBusy;
  $('send').hidden = isBusy;
  $('again').disabled = isBusy || conversation().messages.length === 0;
  if (isBusy && (focused === $('send') || focused === $('again'))) $('stop').focus();
  if (!isBusy && focused === $('stop')) $('send').focus();
}
// The answer that grows, once a frame at most.
function paintSoon(run) {
  run.frame ??= requestAnimationFrame(() => {
    run.frame = null;
    const body = $('messages').querySelector('[aria-busy=true] [data-body]');
    if (!body || runs.get(current) !== run) return;
    const toEnd = isAtEnd();
    markdown(run.message.content, body);
    if (toEnd) $('messages').scrollTop = $('messages').scrollHeight;
  });
}

function headers() {
  const key = $('key').value;
  return {'Content-Type': 'application/json', ...(key ? {Authorization: 'Bearer ' + key} : {})};
}
function request(messages) {
  const number = id => $(id).value === '' ? undefined : Number($(id).value);
  const system = $('system').value.trim();
  return {messages: [...(system ? [{role: 'system', content: system}] : []),
                     ...messages.map(({role, content}) => ({role, content}))],
          stream: true, stream_options: {include_usage: true}, temperature: number('temperature'),
          top_p: number('top_p'), max_tokens: number('max_tokens'), seed: number('seed')};
}
// Calls take(document) for every event of a stream.
async function events(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = '';;) {
    const {done, value} = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      if (!part.startsWith('data: ')) continue;  // a comment: the answer is on its way
      const data = part.slice(6);
      if (data !== '[DONE]') take(JSON.parse(data));
    }
  }
}
// Answers a question, or the last one again.
async function answer(chat, question) {
  const asked = question ? [...chat.messages, {role: 'user', content: question}]
                         : chat.messages.slice(0, -1);
  // The note is what a reload finds.
  const message = {role: 'assistant', content: '', note: 'not finished'};
  const run = {chat, question, asked, message, control: new AbortController(), hasBegun: false,
               start: performance.now()};
  runs.set(chat.id, run);
  failures.delete(chat.id);
  $('said').textContent = '';
  showList();
  showMessages(true);
  let trouble = '';
  try {
    const response = await fetch('/v1/chat/completions', {method: 'POST', headers: headers(),
        body: JSON.stringify(request(asked)), signal: run.control.signal});
    if (!response.ok) {
      const said = await response.json().catch(() => null);
      throw new Error(said?.error?.message ?? 'the server answers with status ' + response.status);
    }
    await events(response, part => take(run, part));
    if (!run.hasBegun) throw new Error(run.isThinking ? 'the answer ended in its thoughts' : 'the answer was empty');
  } catch (error) {
    trouble = run.control.signal.aborted ? 'stopped' : String(error.message ?? error);
  }
  finish(run, trouble);
}
function take(run, part) {
  const {chat, message} = run, choice = part.choices?.[0], text = choice?.delta?.content ?? '';
  if (part.error) throw new Error(part.error.message);
  if (choice?.finish_reason) run.reason = choice.finish_reason;
  if (part.usage) run.tokens = part.usage.completion_tokens;
  if (choice?.delta?.reasoning_content && !run.isThinking) {
    run.isThinking = true;
    if (chat.id === current) showMessages();
  }
  if (text === '') return;
  message.content += text;
  if (!run.hasBegun) {
    run.hasBegun = true;
    chat.messages = [...run.asked, message];
    if (chat.id === current) showMessages();
  }
  paintSoon(run);
  if (performance.now() - (run.saved ?? -Infinity) > 2000) {
    save(chat);
    run.saved = performance.now();
  }
}
function finish(run, trouble) {
  const {chat, message} = run, seconds = (performance.now() - run.start) / 1000;
  runs.delete(chat.id);
  if (!conversations.includes(chat)) return;  // deleted meanwhile
  if (run.hasBegun) {
    const said = [trouble];
    if (run.tokens) said.push(`${run.tokens} tokens, ${(run.tokens / seconds).toFixed(1)} per second`);
    if (run.reason === 'length') said.push('cut off at the limit');
    message.note = said.filter(Boolean).join(', ');
    save(chat);
  } else {
    failures.set(chat.id, trouble);
    giveBack(run);
  }
  showList();
  if (chat.id !== current) return;
  showMessages();
  // Once and as a whole: a screen reader that follows the words reads none to the end.
  $('said').textContent = $('messages').lastElementChild.innerText;
}
// Takes a question without an answer back to where it was written.
function giveBack(run) {
  const id = run.chat.id, text = [run.question, drafts[id]].filter(Boolean).join('\n');
  run.question = undefined;
  setDraft(id, text);
  if (id === current) $('question').value = text;
  grow();
}
addEventListener('pagehide', () => {
  for (const run of runs.values()) if (run.hasBegun) save(run.chat); else giveBack(run);
});

function setDraft(id, text) {
  if (text) drafts[id] = text; else delete drafts[id];
  keep('sessionStorage', 'hearth.drafts', drafts);
}
// As high as its text, up to what the style allows.
function grow() {
  const field = $('question');
  field.style.height = 'auto';
  field.style.height = field.scrollHeight + field.offsetHeight - field.clientHeight + 'px';
}
function ask() {
  const text = $('question').value.trim();
  if (!text || runs.has(current)) return;
  $('question').value = '';
  setDraft(current, '');
  grow();
  answer(conversation(), text);
}
const stop = () => runs.get(current)?.control.abort();
// Keys that choose among an input method's words are not ours; Safari says so by the number alone.
const isComposing = event => event.isComposing || event.keyCode === 229;
// Keys on glass have no Shift to hold: there Enter breaks the line.
const isTouched = matchMedia('(pointer: coarse)');
$('form').onsubmit = event => { event.preventDefault(); ask(); };
$('question').oninput = () => { setDraft(current, $('question').value); grow(); };
$('question').onkeydown = event => {
  if (event.key !== 'Enter' || event.shiftKey || isComposing(event) || isTouched.matches) return;
  event.preventDefault();
  ask();
};
document.addEventListener('keydown', event => {
  if (event.key === 'Escape' && !isComposing(event)) stop();
});
$('stop').onclick = stop;
$('again').onclick = () => answer(conversation());
$('new').onclick = () => { begin(); view(''); $('question').focus(); };
for (const id of ['temperature', 'top_p', 'max_tokens', 'seed', 'system', 'key']) {
  const store = id === 'key' ? 'sessionStorage' : 'localStorage';
  $(id).value = stored(store, 'hearth.' + id, $(id).value);
  $(id).onchange = () => keep(store, 'hearth.' + id, $(id).value);
}
