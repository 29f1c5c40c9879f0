// @vitest-environment jsdom
// SPDX-License-Identifier: Apache-2.0

import { cleanup, fireEvent, render, screen, within } from '@testing-library/react';
import { MemoryRouter } from 'react-router';
import { afterEach, describe, expect, test } from 'vitest';
import type { Job, Schemas } from '../api/client';
import { podOnHost } from './job-pods';
import { nextCell } from './rank-grid';
import { byHost, bytesOf, isOdd, leveled, stateLevel, withUsage } from './rank-levels';
import { Ranks } from './ranks-tab';

afterEach(cleanup);

const rank = (number: number, more: Partial<Schemas['Rank']> = {}): Schemas['Rank'] => ({
  rank: number,
  pid: 100 + number,
  host: `train-worker-0-${Math.floor(number / 8)}`,
  state: 'R',
  started: '2026-01-01T00:00:00Z',
  cpuSeconds: 50,
  memory: 1024,
  bytesRead: 0,
  bytesWritten: 0,
  ...more,
});
const report = (ranks: Schemas['Rank'][], reportedTime = '2026-01-01T00:01:40Z') => ({ reportedTime, ranks, unknownHosts: [] });
const job = (status: Job['status'] = {}): Job => ({ apiVersion: 'v1', kind: 'TrainJob', metadata: { name: 'train', namespace: 'vision' }, spec: {}, status });
const show = (ranks: Schemas['Rank'][], status: Job['status'] = {}, address = '/?tab=ranks') =>
  render(
    <MemoryRouter initialEntries={[address]}>
      <Ranks job={job(status)} report={withUsage(report(ranks))} />
    </MemoryRouter>,
  );

describe('a rank', () => {
  test.each([
    ['R', undefined, 'Running'],
    ['R', 'SpinningInMPI', 'Waiting in MPI'],
    ['T', 'Computing', 'Stopped by a signal'],
    ['Z', undefined, 'Exited'],
    ['W', undefined, 'Unknown state'],
    ['constructor', 'toString', 'Unknown state'],
  ])('in state %s that does %s is shown as %s', (state, doing, want) => expect(stateLevel(rank(0, { state, doing })).name).toBe(want));

  test('differs if the operator says so, or if it does not run', () => {
    expect(isOdd(rank(3), [{ rank: 3, host: 'train-worker-0-0' }])).toBe(true);
    expect(isOdd(rank(3), [{ rank: 4 }])).toBe(false);
    expect(isOdd(rank(3, { state: 'T' }))).toBe(true);
  });

  test('uses the cores between two reports, or since it started', () => {
    const first = withUsage(report([rank(0)]));
    expect(first.ranks[0]?.cores).toBe(0.5);
    const second = withUsage(report([rank(0, { cpuSeconds: 60 })], '2026-01-01T00:01:50Z'), first);
    expect(second.ranks[0]?.cores).toBe(1);
    expect(withUsage(report([rank(0, { cpuSeconds: 60 })], '2026-01-01T00:01:50Z'), second).ranks[0]?.cores).toBe(1);
  });
});

describe('levels', () => {
  const names = (lens: 'output' | 'cpu' | 'step', ranks: Schemas['Rank'][]) => {
    const views = withUsage(report(ranks));
    return views.ranks.map(leveled(views, lens).of).map((level) => level.name);
  };
  test('of the last output are its age', () => {
    expect(names('output', [rank(0, { lastOutput: '2026-01-01T00:01:35Z' }), rank(1, { lastOutput: '2026-01-01T00:00:50Z' }), rank(2)])).toEqual(['In the last 10 s', 'In the last minute', 'No output known']);
  });
  test('of steps are how far a rank is behind', () => {
    expect(names('step', [rank(0, { step: 20 }), rank(1, { step: 19 }), rank(2, { step: 15 }), rank(3, { step: 1 }), rank(4)])).toEqual([
      'At step 20, the highest',
      '1 step behind',
      '2 to 10 steps behind',
      'More than 10 steps behind',
      'No step reported',
    ]);
  });
  test('of CPU are relative to the busiest rank', () => {
    expect(names('cpu', [rank(0, { cpuSeconds: 100 }), rank(1, { cpuSeconds: 60 }), rank(2, { cpuSeconds: 0 })])).toEqual(['At least 0.75 cores', 'At least 0.50 cores', 'Less than 0.25 cores']);
  });
});

test('hosts have their ranks in order', () => {
  const { ranks } = withUsage(report([rank(9), rank(1), rank(0)]));
  expect(byHost(ranks).map(([host, views]) => [host, views.map((view) => view.rank.rank)])).toEqual([
    ['train-worker-0-0', [0, 1]],
    ['train-worker-0-1', [9]],
  ]);
});

test('pods are found by the name of their host', () => {
  const status = { workerPodStatuses: [{ index: 1, name: 'train-worker-0-1-x7z', node: 'a' }, { index: 10, name: 'train-worker-0-10-abc', node: 'b' }] };
  expect(podOnHost(status, 'train-worker-0-1')?.node).toBe('a');
  expect(podOnHost(status, 'train-worker-0-10')?.node).toBe('b');
  expect(podOnHost(status, '')).toBeUndefined();
});

test.each([
  [0, '0 B'],
  [1536, '1.5 KiB'],
  [200 * 2 ** 30, '200 GiB'],
])('%d bytes are %s', (bytes, want) => expect(bytesOf(bytes)).toBe(want));

test('keys move to the nearest cell of the next row', () => {
  // Two rows of three cells.
  const place = (index: number) => ({ top: Math.floor(index / 3) * 40, left: (index % 3) * 40 });
  const moved = (key: string, from: number) => nextCell(key, from, 6, place);
  expect([moved('ArrowRight', 2), moved('ArrowLeft', 0), moved('ArrowDown', 1), moved('ArrowUp', 5), moved('ArrowDown', 4), moved('Home', 4), moved('End', 0), moved('a', 0)]).toEqual([3, 0, 4, 2, 4, 0, 5, -1]);
});

describe('the grid', () => {
  test('has 1,000 ranks, one of which is in the order of tabs', () => {
    const ranks = Array.from({ length: 1000 }, (_, index) => rank(index));
    const began = performance.now();
    show(ranks, { ranks: { running: 1000, total: 1000, odd: [{ rank: 517, host: 'train-worker-0-64', doing: 'Sleeping' }] } });
    expect(performance.now() - began).toBeLessThan(5_000);
    const list = document.querySelector('[role=listbox]') as HTMLElement;
    const cells = list.querySelectorAll('[role=option]');
    expect(cells).toHaveLength(1000);
    expect(list.querySelectorAll('[role=group]')).toHaveLength(125);
    expect(list.querySelectorAll('[tabindex="0"]')).toHaveLength(1);
    expect(list.querySelectorAll('.tr-rank--odd')).toHaveLength(1);
    expect(cells[517]?.getAttribute('aria-label')).toBe('517 R!: Running on train-worker-0-64, differs from the others');
  });

  test('opens details with Enter, follows the arrows, and closes with Escape', () => {
    show([rank(0), rank(1, { waitsFor: 'futex_wait_queue', step: 7 })], { workerPodStatuses: [{ index: 0, name: 'train-worker-0-0-x7z', node: 'node-a' }] });
    const [first, second] = screen.getAllByRole('option');
    first?.focus();
    fireEvent.keyDown(first as Element, { key: 'Enter' });
    within(screen.getByRole('region', { name: 'Details of rank 0' })).getByText('node-a');
    fireEvent.keyDown(first as Element, { key: 'ArrowRight' });
    expect(document.activeElement).toBe(second);
    expect(second?.getAttribute('tabindex')).toBe('0');
    const details = within(screen.getByRole('region', { name: 'Details of rank 1' }));
    details.getByText('futex_wait_queue');
    expect(details.getByRole('link', { name: 'Log of rank 1' }).getAttribute('href')).toBe('/?tab=logs&rank=1');
    expect(details.getByRole('link', { name: 'Log of worker 0' }).getAttribute('href')).toBe('/?tab=logs&pod=worker-0');
    fireEvent.keyDown(second as Element, { key: 'Escape' });
    expect(screen.queryByRole('region')).toBeNull();
  });

  test('shows what a job says as text', () => {
    const attack = '<img src=x onerror="window.attacked=1">';
    render(
      <MemoryRouter>
        <Ranks job={job()} report={withUsage({ ...report([rank(0, { host: attack, waitsFor: attack, stack: [attack] })]), unknownHosts: [{ host: 'a', reason: attack }] })} />
      </MemoryRouter>,
    );
    fireEvent.click(screen.getByRole('option'));
    screen.getByText(`a: ${attack}`);
    // The host above the ranks; in the details the host, what it waits for, and the stack.
    expect(screen.getAllByText(attack)).toHaveLength(4);
    expect(document.querySelector('img')).toBeNull();
  });

  test('shows in the address what its colours mean', () => {
    show([rank(0, { step: 3 })], {}, '/?tab=ranks&show=step');
    expect(screen.getByRole('option').getAttribute('aria-label')).toBe('0 1: step 3 on train-worker-0-0');
    fireEvent.click(screen.getByRole('button', { name: 'CPU' }));
    expect(screen.getByRole('option').getAttribute('aria-label')).toBe('0 1: 0.50 cores on train-worker-0-0');
  });
});
