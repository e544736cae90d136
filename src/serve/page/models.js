// Which model answers, where the server has several.
import {$, changed, keep, make, storedText, when} from './dom.js';
import {state} from './server.js';

let names = null;  // null: nobody has asked yet

// '' where there is nothing to choose.
export const theModel = () => (names?.length > 1 ? $('model-choice').value : '');
// The path of a question about its state.
export const ofModel = path => (theModel() ? `${path}?model=${encodeURIComponent(theModel())}` : path);

// Asks for them again, as after a restart of the server.
export const forgetModels = () => { names = null; };
// Offers what the server has now. Throws as state does.
export async function findModels(again = false) {
  if (names && !again) return;
  const {data} = await state('/v1/models');
  const before = $('model-choice').value || storedText('localStorage', 'hearth.model', '');
  names = data.map(model => model.id);
  $('model-choice').replaceChildren(...names.map(name => make('option', name)));
  const loaded = data.find(model => model.loaded)?.id ?? names[0];
  $('model-choice').value = names.includes(before) ? before : loaded ?? '';
  $('model-section').hidden = names.length < 2;
}

export function startModels() {
  $('model-choice').onchange = () => {
    keep('localStorage', 'hearth.model', theModel());
    changed('model');
  };
  when('drawn', () => {
    if (!$('settings').hidden) findModels(true).catch(() => {});  // the line on top says why
  });
}
