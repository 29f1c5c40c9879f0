// @vitest-environment jsdom
// SPDX-License-Identifier: Apache-2.0

import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import { MemoryRouter } from 'react-router';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Problem, type LogLine } from '../api/client';
import type { TabProps } from './job-tabs';
import type { Log } from './log-reader';
import { LogsTab } from './logs-tab';

let log: Log;
const retry = vi.fn();
vi.mock('./use-log', () => ({ useLog: () => ({ log, retry }) }));
// jsdom has no layout: all lines are in the document.
const virtual = { measure: () => {}, scrollToIndex: () => {}, getTotalSize: () => 0 };
vi.mock('@tanstack/react-virtual', () => ({
  useVirtualizer: ({ count }: { count: number }) => ({ ...virtual, getVirtualItems: () => Array.from({ length: count }, (_, index) => ({ index, start: 0, end: 0 })) }),
}));

const line = (message: string, rank?: number) => ({ message, rank, podType: 'launcher', podName: 'p', container: 'c', timestamp: '2026-01-01T00:00:00Z', index: null }) as LogLine;
const show = (address = '/?tab=logs') =>
  render(
    <MemoryRouter initialEntries={[address]}>
      <LogsTab {...({ reference: { namespace: 'vision', name: 'train' } } as TabProps)} />
    </MemoryRouter>,
  );
const shown = () => [...screen.getByRole('log').querySelectorAll('.tr-log__line')].map((one) => one.textContent);

beforeEach(() => {
  log = { lines: [line('INFO start', 0), line('INFO start', 1), line('ERROR broken', 1)], state: 'reading' };
});
afterEach(cleanup);

test('equal lines of ranks are folded on demand', () => {
  show();
  expect(shown()).toHaveLength(3);
  fireEvent.click(screen.getByRole('switch', { name: 'Fold equal lines' }));
  expect(shown()).toEqual(['all 2 ranksINFO start', 'launcher rank 1ERROR broken']);
  screen.getByText('3 lines, folded to 2, following');
});

test('the level is in the address', () => {
  show('/?tab=logs&level=error');
  expect(shown()).toEqual(['launcher rank 1ERROR broken']);
  fireEvent.change(screen.getByRole('combobox', { name: 'Level' }), { target: { value: '' } });
  expect(shown()).toHaveLength(3);
});

test('a lost connection needs no user, a refusal does', () => {
  log = { ...log, state: 'lost', problem: new Problem(0, 'down') };
  show();
  screen.getByText(/The connection to the log is lost/);
  expect(screen.queryByRole('button', { name: 'Retry' })).toBeNull();
  expect(shown()).toHaveLength(3);
  cleanup();
  log = { ...log, state: 'failed', problem: new Problem(403, 'no permission') };
  show();
  fireEvent.click(screen.getByRole('button', { name: 'Retry' }));
  expect(retry).toHaveBeenCalled();
});
