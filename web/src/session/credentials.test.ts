// SPDX-License-Identifier: Apache-2.0

import { beforeEach, expect, test, vi } from 'vitest';
import { draftOf, keepDraft } from '../create/draft';
import { forget, keep, keptCredentials } from './credentials';

let stored: Map<string, string>;
beforeEach(() => {
  stored = new Map();
  vi.stubGlobal('sessionStorage', {
    getItem: (name: string) => stored.get(name) ?? null,
    setItem: (name: string, value: string) => void stored.set(name, value),
    removeItem: (name: string) => void stored.delete(name),
  });
});

test('signing out removes token and draft', () => {
  keep({ token: 't', defaultNamespace: 'vision' });
  keepDraft({ origin: '', text: 'env: [{name: PASSWORD, value: secret}]' });
  expect(keptCredentials()).toEqual({ token: 't', defaultNamespace: 'vision' });
  forget(false);
  expect([...stored]).toEqual([]);
});

test('an expired token is removed, and the draft is kept', () => {
  keep({ token: 't', defaultNamespace: '' });
  keepDraft({ origin: 'clone=a/trainjobs/b', text: 'draft' });
  forget(true);
  expect(keptCredentials()).toBeUndefined();
  expect(draftOf('')).toBe('draft');
});

test.each(['', 'no JSON', 'null', '{}', '{"token": 5}', '"text"'])('%j is not a kept token', (text) => {
  stored.set('trireme-token', text);
  expect(keptCredentials()).toBeUndefined();
});
