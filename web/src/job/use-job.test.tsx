// @vitest-environment jsdom
// SPDX-License-Identifier: Apache-2.0

import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { act, cleanup, render } from '@testing-library/react';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Problem } from '../api/client';
import { LiveJobs, useLive } from '../live/live-jobs';
import type { Connection } from '../live/watch';
import { useJob } from './use-job';

const client = { GET: vi.fn() };
vi.mock('../session/session', () => ({ useSession: () => ({ client, token: '', signOut: () => {} }) }));
let connection: Connection;
const watched: string[] = [];
const listeners = new Set<() => void>();
vi.mock('../live/watch', () => ({
  JobWatch: class {
    constructor(_token: string, namespace: string) {
      watched.push(namespace);
    }
    start = () => {};
    stop = () => {};
    subscribe = (listener: () => void) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    };
    get = () => ({ connection, changes: new Map(), jobs: { rows: new Map() } });
  },
}));

beforeEach(() => {
  vi.useFakeTimers();
  client.GET.mockResolvedValue({ data: {} });
  connection = { state: 'live' };
});
afterEach(() => {
  cleanup();
  vi.useRealTimers();
  vi.clearAllMocks();
  sessionStorage.clear();
  watched.length = 0;
});

let live: ReturnType<typeof useLive>;
function Job() {
  const current = useLive();
  useJob({ kind: 'TrainJob', plural: 'trainjobs', namespace: 'vision', name: 'train' });
  return <button onClick={() => (live = current)} ref={(button) => button?.click()} />;
}
const open = async () => {
  render(
    <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
      <LiveJobs>
        <Job />
      </LiveJobs>
    </QueryClientProvider>,
  );
  await act(() => vi.advanceTimersByTimeAsync(1000));
  client.GET.mockClear();
};
const readsOfAMinute = async () => {
  client.GET.mockClear();
  await act(() => vi.advanceTimersByTimeAsync(60_000));
  return client.GET.mock.calls.length;
};
const become = (next: Connection) => {
  connection = next;
  act(() => listeners.forEach((listener) => listener()));
};
const problem = new Problem(403, 'no permission');

test('a job is polled only while the watch is down', async () => {
  await open();
  expect(await readsOfAMinute()).toBe(0);
  become({ state: 'refused', problem });
  expect(await readsOfAMinute()).toBeGreaterThanOrEqual(5);
  become({ state: 'lost', problem });
  expect(await readsOfAMinute()).toBeGreaterThanOrEqual(5);
  // Once more, for changes and errors of the time in between.
  become({ state: 'live' });
  expect(await readsOfAMinute()).toBe(1);
  expect(await readsOfAMinute()).toBe(0);
});

test('the chosen namespace survives a reload; a job of another namespace is polled', async () => {
  await open();
  act(() => live.watchNamespace('speech'));
  cleanup();
  await open();
  expect(watched.at(-1)).toBe('speech');
  expect(await readsOfAMinute()).toBeGreaterThanOrEqual(5);
  act(() => live.watchNamespace(''));
  cleanup();
  await open();
  expect(watched.at(-1)).toBe('');
});
