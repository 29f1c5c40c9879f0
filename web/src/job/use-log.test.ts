// SPDX-License-Identifier: Apache-2.0

import { expect, test, vi } from 'vitest';
import { logPath } from './use-log';

vi.mock('../session/session', () => ({}));

test('names in the path of a log are encoded', () => {
  expect(logPath({ plural: 'trainjobs', namespace: '../x', name: 'a?b#c' }, 10)).toBe('/api/v1/namespaces/..%2Fx/trainjobs/a%3Fb%23c/logs?follow=true&tailLines=10');
});
