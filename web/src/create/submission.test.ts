// SPDX-License-Identifier: Apache-2.0

import { expect, test, vi } from 'vitest';
import { Problem, type PreflightReport } from '../api/client';
import { Submission } from './submission';

const report = { passed: 1, total: 1 } as PreflightReport;

test('the result of a check is not shown for a text that has changed since', async () => {
  const submission = new Submission();
  let answer: (report: PreflightReport) => void = () => {};
  let aborted: AbortSignal | undefined;
  const check = submission.runCheck((signal) => {
    aborted = signal;
    return new Promise((resolve) => (answer = resolve));
  });
  expect(submission.get().isBusy).toBe(true);
  submission.reset();
  expect(submission.get()).toEqual({ isBusy: false });
  expect(aborted?.aborted).toBe(true);

  // The next check may run meanwhile.
  const next = submission.runCheck(async () => report);
  answer({ passed: 0, total: 1 } as PreflightReport);
  await Promise.all([check, next]);
  expect(submission.get()).toEqual({ isBusy: false, report });
});

test('a job is created once, even if the text changes meanwhile', async () => {
  const submission = new Submission();
  let answer: (path: string) => void = () => {};
  const first = submission.create(() => new Promise<string>((resolve) => (answer = resolve)));
  submission.reset();
  expect(submission.get().isBusy).toBe(true);
  const send = vi.fn(async () => 'second');
  expect(await submission.create(send)).toBeUndefined();
  await submission.runCheck(async () => report);
  expect(send).not.toHaveBeenCalled();
  answer('first');
  expect(await first).toBe('first');
  expect(submission.get()).toEqual({ isBusy: false });
});

test('a problem is shown until the text changes', async () => {
  const submission = new Submission();
  const problem = new Problem(422, 'the name is not valid');
  expect(await submission.create(() => Promise.reject(problem))).toBeUndefined();
  expect(submission.get()).toEqual({ isBusy: false, problem });
  submission.reset();
  expect(submission.get()).toEqual({ isBusy: false });
});
