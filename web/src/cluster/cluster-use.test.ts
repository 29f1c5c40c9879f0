// SPDX-License-Identifier: Apache-2.0

import { expect, test } from 'vitest';
import { amountText, number, percentOf, totalOf, wasted } from './cluster-use';

const node = (allocatable: number, requested: number, more = {}) => {
  const amount = { allocatable, requested };
  return { name: 'n', ready: true, schedulable: true, cpu: amount, memory: amount, gpu: amount, ...more };
};

test('the total has only nodes on which pods can be scheduled', () => {
  const nodes = [node(8, 4), node(4, 1), node(8, 8, { ready: false }), node(8, 8, { schedulable: false })];
  expect(totalOf(nodes, 'gpu')).toEqual({ allocatable: 12, requested: 5 });
});

test('amounts are written with their unit', () => {
  expect(amountText('memory', { allocatable: 2 ** 31, requested: 2 ** 30 })).toBe('1.0 GiB of 2.0 GiB');
  expect(amountText('cpu', { allocatable: 63.92, requested: 0.25 })).toBe('0.3 of 64');
  expect(number(9.96)).toBe('10');
});

test('a percentage is from 0 to 100, also of nothing', () => {
  expect([percentOf({ allocatable: 8, requested: 2 }), percentOf({ allocatable: 2, requested: 3 }), percentOf({ allocatable: 0, requested: 0 })]).toEqual([25, 100, 0]);
});

test('hours are wasted on idle nodes and on jobs that failed', () => {
  expect(wasted({ requested: 10, waiting: 2, idle: 1, used: 7, failed: 3 })).toBe(4);
});
