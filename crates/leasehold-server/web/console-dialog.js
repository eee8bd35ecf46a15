// Asking the operator before something is done that others will notice.

import { make } from './dom.js';

/**
 * @param {{title: string, text: string, fields: {name: string, label: string, value?: string, type?: 'text' | 'number'}[], go: string}} what
 * @returns {Promise<Record<string, string> | null>} what was typed, or null when it was called off
 */
export function askFor({ title, text, fields, go }) {
  const inputs = fields.map(({ name, value = '', type = 'text' }) => make('input.input', { name, value, type, ...(type === 'number' ? { min: 1, required: true } : { maxlength: 400 }), autocomplete: 'off' }));
  return new Promise((resolve) => {
    const close = (result) => {
      dialog.close();
      dialog.remove();
      resolve(result);
    };
    const form = make('form.stack', { on: { submit: (event) => { event.preventDefault(); close(Object.fromEntries(inputs.map((input) => [input.name, input.value.trim()]))); } } },
      make('h2', { id: 'dialog-title' }, title), make('p.muted', {}, text), fields.map(({ label }, place) => make('label.field', {}, make('span', {}, label), inputs[place])),
      make('div.pair', {}, make('button.button', { type: 'button', id: 'dialog-cancel', on: { click: () => close(null) } }, 'Leave it'), make('button.button.primary', { type: 'submit', id: 'dialog-go' }, go)));
    const dialog = make('dialog.dialog', { 'aria-labelledby': 'dialog-title', on: { cancel: () => close(null) } }, form);
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A button that begins something. */
export function action(id, text, go) {
  return make('button.button.small', { type: 'button', 'data-action': id, on: { click: go } }, text);
}

/** The part of a request that says why; without words there is none. */
export function reason(text) {
  return text === '' ? {} : { reason: text };
}
