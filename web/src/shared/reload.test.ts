// SPDX-License-Identifier: Apache-2.0

import { expect, test, vi } from 'vitest';
import { reloadOnce } from './reload';

const page = (isServed: boolean) => {
  const stored = new Map<string, string>();
  const storage = { getItem: (name: string) => stored.get(name) ?? null, setItem: (name: string, value: string) => void stored.set(name, value) };
  return { storage, isServed: async () => isServed, reload: vi.fn() };
};

test('a page whose files are missing is reloaded once', async () => {
  const one = page(true);
  await reloadOnce(1_000_000, one);
  await reloadOnce(1_002_000, one);
  expect(one.reload).toHaveBeenCalledTimes(1);
  await reloadOnce(1_100_000, one); // the next update
  expect(one.reload).toHaveBeenCalledTimes(2);
});

test('a page is not reloaded while the server does not answer', async () => {
  const one = page(false);
  await reloadOnce(1_000_000, one);
  expect(one.reload).not.toHaveBeenCalled();
});
