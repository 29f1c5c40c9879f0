// SPDX-License-Identifier: Apache-2.0

import { beforeEach, expect, test, vi } from 'vitest';
import { draftOf, keepDraft } from '../create/draft';
import { keepNamespace, keptNamespace } from '../live/namespace';
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

test('signing out removes all that is kept', () => {
  keep({ token: 't', defaultNamespace: 'vision' });
  keepDraft({ origin: '', text: 'env: [{name: PASSWORD, value: secret}]' });
  keepNamespace('vision');
  expect(keptCredentials()).toEqual({ token: 't', defaultNamespace: 'vision' });
  forget(false);
  expect([...stored]).toEqual([]);
});

test('an expired token is removed; draft and namespace are kept', () => {
  keep({ token: 't', defaultNamespace: '' });
  keepDraft({ origin: 'clone=a/trainjobs/b', text: 'draft' });
  keepNamespace('vision');
  forget(true);
  expect(keptCredentials()).toBeUndefined();
  expect(draftOf('')).toBe('draft');
  expect(keptNamespace()).toBe('vision');
  keepNamespace('');
  expect(keptNamespace()).toBe('');
});

test.each(['', 'no JSON', 'null', '{}', '{"token": 5}', '"text"'])('%j is not a kept token', (text) => {
  stored.set('trireme-token', text);
  expect(keptCredentials()).toBeUndefined();
});
