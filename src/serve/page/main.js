// The chat page: puts its parts together. Views listen to what conversations, answers and the server's
// state say (dom.js: changed, when).
import {failures} from './answers.js';
import {startComposer} from './composer.js';
import {begin, conversation, currentId, load, open, save} from './conversations.js';
import {$, changed, when} from './dom.js';
import {startList} from './list.js';
import {keepLooking, startLive} from './live.js';
import {askAgain, startMessages} from './messages.js';
import {startModels} from './models.js';
import {startNeurons, watch} from './neurons.js';
import {startReplay} from './replay.js';
import {setKey, theKey} from './server.js';
import {startSettings} from './settings.js';

const isNarrow = matchMedia('(max-width: 60rem)');
const drawers = ['list', 'live', 'settings'];
// Opens a drawer and closes the others: '' closes all.
function show(name) {
  document.body.dataset.drawer = name;
  for (const one of drawers) $('show-' + one).setAttribute('aria-expanded', one === name);
  $('live').hidden = name !== 'live';
  $('settings').hidden = name !== 'settings';
  changed('drawn');
}
function startDrawers() {
  for (const one of drawers) {
    $('show-' + one).onclick = () => show(document.body.dataset.drawer === one ? '' : one);
  }
  for (const button of document.querySelectorAll('[data-close]')) {
    button.onclick = () => {
      show('');
      $('show-' + button.dataset.close).focus();
    };
  }
  $('strip').onclick = () => show('live');
  $('new').onclick = () => { begin(); if (document.body.dataset.drawer === 'list') show(''); $('question').focus(); };
  when('drawer', name => {
    if (name === 'list' && !isNarrow.matches) return;  // it is there anyhow
    if (name || document.body.dataset.drawer === 'list') show(name);
  });
}
// Asks for a key where the server wants one.
function startKey() {
  when('refused', () => {
    $('key-text').textContent = theKey() ? 'The server does not know this key.' : 'This server wants a key.';
    $('key-form').hidden = false;
  });
  $('key-form').onsubmit = event => {
    event.preventDefault();
    setKey($('key').value.trim());
    $('key-form').hidden = true;
    if (failures.has(currentId())) askAgain();
    watch();
  };
}

startDrawers();
startKey();
startSettings();
startModels();
startLive();
startNeurons();
startReplay();
startList();
startMessages();
startComposer(save);
load();
if (conversation()) open(currentId()); else begin();
keepLooking();
watch();
