// The drawer of parameters: those of the answers, for all conversations, and the system message of the
// one that is open.
import {conversation, setSystem} from './conversations.js';
import {$, keep, storedText, when} from './dom.js';

const names = ['temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty', 'max_tokens', 'seed'];

// What requests have of it: a field that is empty or no number is left out.
export function parameters() {
  const set = names.map(name => [name, $(name).valueAsNumber]);
  return Object.fromEntries(set.filter(([, value]) => Number.isFinite(value)));
}

function showDefaults() {
  for (const name of names) $(name).value = $(name).defaultValue;
  for (const name of names) keep('localStorage', 'hearth.' + name, $(name).value);
}

export function startSettings() {
  for (const name of names) {
    $(name).value = storedText('localStorage', 'hearth.' + name, $(name).defaultValue);
    $(name).onchange = () => keep('localStorage', 'hearth.' + name, $(name).value);
  }
  $('defaults').onclick = showDefaults;
  $('system').onchange = () => setSystem(conversation(), $('system').value.trim());
  when('opened', () => { $('system').value = conversation().system ?? ''; });
}
