// SPDX-License-Identifier: Apache-2.0

import { describe, expect, test } from 'vitest';
import type { LogLine } from '../api/client';
import { folded } from './log-fold';
import { levelOf, withLevel } from './log-levels';

const line = (message: string, rank?: number, second = 0) =>
  ({ message, rank, podType: 'launcher', podName: 'p', container: 'c', timestamp: new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString(), index: null }) as LogLine;

describe('equal lines of ranks are one', () => {
  const shown = (lines: LogLine[]) => folded(lines).map((one) => `${one.source}: ${one.message}`);
  test.each<[string, LogLine[], string[]]>([
    ['of all ranks', [line('a', 0), line('a', 1), line('a', 2)], ['all 3 ranks: a']],
    ['in the order of the first', [line('a', 0), line('b', 0), line('a', 1), line('b', 1)], ['all 2 ranks: a', 'all 2 ranks: b']],
    ['but for the rank that differs', [line('a', 0), line('b', 1), line('a', 2), line('a', 3), line('a', 5), line('x', 4)], ['ranks 0, 2-3, 5: a', 'launcher rank 1: b', 'launcher rank 4: x']],
    ['and stay as many as each rank printed', [line('a', 0), line('a', 0), line('a', 1), line('a', 1)], ['all 2 ranks: a', 'all 2 ranks: a']],
    ['if they are of about the same time', [line('a', 0, 0), line('a', 1, 10), line('a', 2, 11)], ['ranks 0-1: a', 'launcher rank 2: a']],
    ['if they are of ranks', [line('a'), line('a'), line('a', 1)], ['launcher: a', 'launcher: a', 'launcher rank 1: a']],
    ['if there are any', [], []],
  ])('%s', (_, lines, want) => expect(shown(lines)).toEqual(want));
  test.each<[string, number, (index: number) => LogLine]>([
    ['of many ranks', 100, (index) => line(`step ${Math.floor(index / 1000)}`, index % 1000, Math.floor(index / 1000))],
    ['of one rank', 100_000, () => line('again', 0)],
    ['of each rank again and again', 100, (index) => line('again', index % 1000)],
  ])('%s: 100,000 lines are not slow', (_, want, lineAt) => {
    const lines = Array.from({ length: 100_000 }, (__, index) => lineAt(index));
    const began = performance.now();
    expect(folded(lines)).toHaveLength(want);
    // Much more than it takes, much less than if each line were compared with all others.
    expect(performance.now() - began).toBeLessThan(3000);
  });
});

describe('levels', () => {
  test.each([
    ['ERROR: no such file', 'error'],
    ['2026-01-01 00:00:00,000 - root - CRITICAL - x', 'error'],
    ['Traceback (most recent call last):', 'error'],
    ['torch.cuda.OutOfMemoryError: CUDA out of memory', 'error'],
    ['ValueError', 'error'],
    ['level=fatal msg="x"', 'error'],
    ['{"severity": "warning", "message": "ERROR"}', 'warning'],
    ['train.py:3: UserWarning: slow', 'warning'],
    ['[WARN] slow', 'warning'],
    ['node:1:1 [0] NCCL INFO Bootstrap', 'info'],
    ['DEBUG x', 'debug'],
    ['the error is 0.3', undefined],
    ['INFORMATION', undefined],
    ['loss: 0.1', undefined],
  ])('%s is %s', (message, want) => expect(levelOf(message)).toBe(want));
  test('select more severe lines, with what belongs to them', () => {
    const lines = [line('INFO a'), line('Traceback (most recent call last):', 1), line('INFO b', 0), line('  File "x.py"', 1), line('  c', 0), line('loss 1', 1), line('  indented', 1), line('WARNING d')];
    expect(withLevel(lines, 'error').map((one) => one.message)).toEqual(['Traceback (most recent call last):', '  File "x.py"']);
    expect(withLevel(lines, 'warning').map((one) => one.message)).toEqual(['Traceback (most recent call last):', '  File "x.py"', 'WARNING d']);
    expect(withLevel(lines, 'info')).toHaveLength(6);
    expect(withLevel(lines, '')).toBe(lines);
    expect(withLevel(lines, 'loud')).toBe(lines);
  });
});
