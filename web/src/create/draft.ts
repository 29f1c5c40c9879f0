// SPDX-License-Identifier: Apache-2.0

// A draft survives a reload, until the tab is closed. It may contain what the user wrote into
// environment variables, so it is not kept longer.
const key = 'trireme-draft';

/** Draft is a document, and the query of the page on which it was begun: what it was a copy of, or its runtime. */
interface Draft {
  origin: string;
  text: string;
}

/** draftOf is the draft that was begun at an origin. A page without one shows any draft. */
export function draftOf(origin: string): string {
  try {
    const draft = JSON.parse(sessionStorage.getItem(key) ?? '') as Partial<Draft>;
    if (typeof draft.text === 'string' && (!origin || draft.origin === origin)) return draft.text;
  } catch {
    // There is none, or it is of an older page.
  }
  return '';
}

export const keepDraft = (draft: Draft) => sessionStorage.setItem(key, JSON.stringify(draft));
export const removeDraft = () => sessionStorage.removeItem(key);
