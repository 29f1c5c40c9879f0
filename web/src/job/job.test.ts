// SPDX-License-Identifier: Apache-2.0

import { describe, expect, test } from 'vitest';
import type { LogLine } from '../api/client';
import { duration } from '../shared/time';
import { appended, asText, filtered, found, maxLines, parts, printable } from './log-buffer';
import { slowestOf, stepsOf } from './timeline';

const line = (message: string, more: Partial<LogLine> = {}) => ({ message, podType: 'launcher', podName: 'p', container: 'c', timestamp: '2026-01-01T00:00:00Z', index: null, ...more }) as LogLine;

describe('logs', () => {
  test('keep the newest lines', () => {
    const all = appended(Array.from({ length: maxLines }, (_, index) => line(String(index))), [line('new')]);
    expect(all).toHaveLength(maxLines);
    expect(all[0]?.message).toBe('1');
    expect(all.at(-1)?.message).toBe('new');
  });
  test('are filtered by pod and rank', () => {
    const lines = [line('a'), line('b', { podType: 'worker', index: 1 }), line('c', { rank: 0 })];
    expect(filtered(lines, { pod: 'worker-1', rank: '' }).map((one) => one.message)).toEqual(['b']);
    expect(filtered(lines, { pod: 'launcher', rank: '0' }).map((one) => one.message)).toEqual(['c']);
    expect(filtered(lines, { pod: '', rank: '' })).toBe(lines);
  });
  test('are searched in any case', () => {
    expect(found([line('Epoch 1'), line('loss'), line('EPOCH 2')], 'epoch')).toEqual([0, 2]);
    expect(parts('an Epoch, an epoch', 'EPOCH')).toEqual([
      { text: 'an ', isMatch: false },
      { text: 'Epoch', isMatch: true },
      { text: ', an ', isMatch: false },
      { text: 'epoch', isMatch: true },
    ]);
    expect(parts('text', '')).toEqual([{ text: 'text', isMatch: false }]);
  });
  test('are shown without control sequences', () => {
    expect(printable('\u001b[31mred\u001b[0m\ttab\u0007')).toBe('red\ttab');
    expect(printable('\u001b]8;;https://a.example\u0007link\u001b]8;;\u001b\\ \r')).toBe('link ');
  });
  test('are downloaded with time and source', () => {
    expect(asText([line('a', { podType: 'worker', index: 2, rank: 5 })])).toBe('2026-01-01T00:00:00Z worker-2 rank 5 a\n');
  });
});

describe('the timeline', () => {
  const at = (second: number) => `2026-01-01T00:00:${String(second).padStart(2, '0')}Z`;
  const timeline = [
    { step: 'Finished' as const, time: at(50) },
    { step: 'Submitted' as const, time: at(0) },
    { step: 'Scheduled' as const, time: at(2) },
    { step: 'PodsReady' as const, time: at(12) },
  ];
  test('has a step between two entries', () => {
    expect(stepsOf(timeline)).toEqual([
      { name: 'Schedule the pods', start: 0, seconds: 2 },
      { name: 'Start the containers', start: 2, seconds: 10 },
      { name: 'Run', start: 12, seconds: 38 },
    ]);
    expect(stepsOf(undefined)).toEqual([]);
  });
  test('names the slowest step of the start, not the run', () => {
    expect(slowestOf(stepsOf(timeline))?.name).toBe('Start the containers');
    expect(slowestOf([])).toBeUndefined();
  });
});

test.each([
  [0, '0s'],
  [59.6, '1m'],
  [330, '5m30s'],
  [3600, '1h'],
  [90061, '1d1h'],
])('%d seconds are %s', (seconds, want) => expect(duration(seconds)).toBe(want));
