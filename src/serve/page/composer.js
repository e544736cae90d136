// The field for questions, its keys, and the questions that are not yet asked.
import {answer, failures, stop} from './answers.js';
import {conversation, currentId, runs} from './conversations.js';
import {$, keep, stored, when} from './dom.js';
import {editLast} from './messages.js';

const saved = stored('sessionStorage', 'hearth.drafts', {});
const drafts = Object.fromEntries(Object.entries(saved).filter(([, text]) => typeof text === 'string'));

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
  const text = $('question').value.trim(), chat = conversation();
  if (!text || runs.has(chat.id)) return;
  $('question').value = '';
  setDraft(chat.id, '');
  grow();
  answer(chat, chat.messages.length, text);
}
// Takes a question without an answer back to where it was written.
function giveBack({chat: {id}, question}) {
  const text = [question, drafts[id]].filter(Boolean).join('\n');
  setDraft(id, text);
  if (id === currentId()) $('question').value = text;
  grow();
}
const isAtTheEnd = run => run.question && run.kept === run.chat.messages.length;

// Stop stands where Send stood; a focus that was there stays there.
function showButtons() {
  const isBusy = runs.has(currentId()), focused = document.activeElement;
  $('stop').hidden = !isBusy;
  $('send').hidden = isBusy;
  if (isBusy && focused === $('send')) $('stop').focus();
  if (!isBusy && focused === $('stop')) $('send').focus();
}

// Keys that choose among an input method's words are not ours; Safari says so by the number alone.
const isComposing = event => event.isComposing || event.keyCode === 229;
// Keys on glass have no Shift to hold: there Enter breaks the line.
export const isTouched = matchMedia('(pointer: coarse)');

export function startComposer(saveRun) {
  $('form').onsubmit = event => { event.preventDefault(); ask(); };
  $('question').oninput = () => { setDraft(currentId(), $('question').value); grow(); };
  $('question').onkeydown = event => {
    if (event.key === 'ArrowUp' && $('question').value === '') {
      event.preventDefault();
      editLast();
    }
    if (event.key !== 'Enter' || event.shiftKey || isComposing(event) || isTouched.matches) return;
    event.preventDefault();
    ask();
  };
  $('stop').onclick = () => stop(currentId());
  when('messages', showButtons);
  when('opened', () => {
    $('question').value = drafts[currentId()] ?? '';
    grow();
    showButtons();
  });
  when('settled', run => {
    if (!run.hasBegun && isAtTheEnd(run)) {
      giveBack(run);
      failures.get(run.chat.id).isInField = true;
    }
    showButtons();
  });
  addEventListener('pagehide', () => {
    for (const run of runs.values()) if (run.hasBegun) saveRun(run.chat); else if (isAtTheEnd(run)) giveBack(run);
  });
}
