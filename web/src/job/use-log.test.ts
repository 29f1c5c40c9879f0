// SPDX-License-Identifier: Apache-2.0

import { expect, test, vi } from 'vitest';
import { logPath } from './use-log';

vi.mock('../session/session', () => ({}));

const path = '/api/v1/namespaces/..%2Fx/trainjobs/a%3Fb%23c/logs?follow=true';
const job = { plural: 'trainjobs', namespace: '../x', name: 'a?b#c' } as const;

test.each([
  [{ tailLines: 10 }, `${path}&tailLines=10`],
  [{ tailLines: 10, since: '2026-01-01T00:00:00+01:00' }, `${path}&tailLines=10&since=2026-01-01T00%3A00%3A00%2B01%3A00`],
])('names and times in the path of a log are encoded', (request, want) => {
  expect(logPath(job, request)).toBe(want);
});

test('the log of a record is read by its UID', () => {
  expect(logPath({ ...job, record: 'u/1' }, { tailLines: Infinity })).toBe('/api/v1/namespaces/..%2Fx/history/trainjobs/u%2F1/logs');
});
