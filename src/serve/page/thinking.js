// What of an answer is thought, and what is said. Servers send thoughts beside the text; some models'
// come inside of it, between tags.

// {thinking, text, isOpen}: isOpen while the thought has not ended.
export function splitThinking({content, thinking = ''}) {
  if (thinking) return {thinking, text: content.replace(/^\s+/, ''), isOpen: content.trim() === ''};
  const begin = content.match(/^\s*<think>/);
  // Some templates end with the first tag, so that answers have only the last.
  const end = begin ? content.indexOf('</think>') : content.search(/(?<=\n)<\/think>\s*\n/);
  if (begin && end < 0) return {thinking: content.slice(begin[0].length), text: '', isOpen: true};
  if (end < 0) return {thinking: '', text: content, isOpen: false};
  return {thinking: content.slice(begin?.[0].length ?? 0, end).trim(),
          text: content.slice(end + '</think>'.length).replace(/^\s+/, ''), isOpen: false};
}
