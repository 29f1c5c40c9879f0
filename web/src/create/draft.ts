// SPDX-License-Identifier: Apache-2.0

// A draft survives a reload, until the tab is closed. It may contain what the user wrote into
// environment variables, so it is not kept longer.
const key = 'trireme-draft';

export const draftOf = (): string => sessionStorage.getItem(key) ?? '';
export const keepDraft = (text: string) => sessionStorage.setItem(key, text);
export const removeDraft = () => sessionStorage.removeItem(key);
