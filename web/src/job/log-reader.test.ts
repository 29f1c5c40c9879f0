// SPDX-License-Identifier: Apache-2.0

import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Problem, type LogLine } from '../api/client';
import { asText, found } from './log-buffer';
import { LogReader } from './log-reader';

const page = Object.assign(new EventTarget(), { hidden: false });
const show = (isShown: boolean) => {
  page.hidden = !isShown;
  page.dispatchEvent(new Event('visibilitychange'));
};

const line = (second: number, message: string): LogLine => ({ message, podType: 'launcher', podName: 'p', container: 'c', timestamp: `2026-01-01T00:10:${String(second).padStart(2, '0')}.123456789Z`, index: null });

/** Answers of the server, in order; the last is repeated. A connection without an end stays open. */
type Answer = { lines?: LogLine[]; end?: 'complete' | 'lost' | { code: number; message: string } } | Response | TypeError;
let requests: string[];
const serve = (...answers: Answer[]) => {
  requests = [];
  vi.stubGlobal('fetch', (path: string, { signal }: { signal: AbortSignal }) => {
    requests.push(path);
    const answer = answers.length > 1 ? answers.shift() : answers[0];
    if (answer instanceof TypeError) return Promise.reject(answer);
    if (answer === undefined || answer instanceof Response) return Promise.resolve(answer);
    const { lines = [], end } = answer;
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        const messages: object[] = lines.map((log) => ({ type: 'LOG', log }));
        if (typeof end === 'object') messages.push({ type: 'ERROR', ...end });
        controller.enqueue(new TextEncoder().encode(messages.map((message) => `data: ${JSON.stringify(message)}\n\n`).join('')));
        if (end === 'complete') controller.close();
        else if (end === 'lost') setTimeout(() => controller.error(new TypeError('network error')), 1000);
        else signal.addEventListener('abort', () => controller.error(signal.reason));
      },
    });
    return Promise.resolve(new Response(body));
  });
};

let reader: LogReader;
const refusedTokens: Problem[] = [];
let token = 'token';
const start = (...answers: Answer[]) => startWith(1000, ...answers);
const startWith = async (lines: number, ...answers: Answer[]) => {
  serve(...answers);
  reader = new LogReader(({ tailLines, since = 'beginning' }) => `${tailLines} since ${since}`, lines, token, (problem) => refusedTokens.push(problem));
  reader.start();
  await vi.advanceTimersByTimeAsync(200);
};
const messages = () => reader.get().lines.map((one) => one.message);

beforeEach(() => {
  token = 'token';
  vi.useFakeTimers();
  page.hidden = false;
  vi.stubGlobal('document', page);
  vi.stubGlobal('window', new EventTarget());
});

afterEach(() => {
  reader.stop();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test('a log that is lost continues by itself, without the lines that it has', async () => {
  const twice = [line(2, 'same'), line(2, 'same')];
  await start({ lines: [line(1, 'a'), ...twice], end: 'lost' }, new TypeError('down'), { lines: [line(1, 'a'), ...twice, line(2, 'same'), line(3, 'b')] });
  expect(messages()).toEqual(['a', 'same', 'same']);
  await vi.advanceTimersByTimeAsync(1000);
  expect(reader.get()).toMatchObject({ state: 'lost', problem: { code: 0 } });
  await vi.advanceTimersByTimeAsync(3000);
  expect(requests).toEqual(['1000 since beginning', '100000 since 2026-01-01T00:09:02.123Z', '100000 since 2026-01-01T00:09:02.123Z']);
  expect(messages()).toEqual(['a', 'same', 'same', 'same', 'b']);
  expect(reader.get()).toMatchObject({ state: 'reading', problem: undefined });
});

test('the colours of a terminal are removed, and do not make a line new', async () => {
  const colored = line(1, 'lo\u001b[31mss\u001b[0m');
  await start({ lines: [colored], end: 'lost' }, { lines: [colored, line(2, 'b')] });
  await vi.advanceTimersByTimeAsync(3000);
  expect(messages()).toEqual(['loss', 'b']);
  expect(found(reader.get().lines, 'LOSS')).toEqual([0]);
  expect(asText(reader.get().lines.slice(0, 1))).toBe(`${colored.timestamp} launcher loss\n`);
});

test('a log continues when the browser is online again', async () => {
  await start(new TypeError('down'));
  await vi.advanceTimersByTimeAsync(60_000);
  const before = requests.length;
  expect(before).toBeGreaterThan(4);
  expect(before).toBeLessThan(12);
  window.dispatchEvent(new Event('online'));
  expect(requests.length).toBe(before + 1);
});

test.each([429, 500, 503])('a server that answers with %d is asked again', async (code) => {
  await start(Response.json({ message: 'busy' }, { status: code }), { lines: [line(1, 'a')], end: { code, message: 'broken' } }, { lines: [line(1, 'a'), line(2, 'b')], end: 'complete' });
  await vi.advanceTimersByTimeAsync(5000);
  expect(requests.length).toBe(3);
  expect(messages()).toEqual(['a', 'b']);
  expect(reader.get().state).toBe('complete');
});

test.each([403, 404, 501])('an answer of %d is final, until the user retries', async (code) => {
  await start({ lines: [line(1, 'a')], end: { code, message: 'refused' } }, { lines: [line(1, 'a'), line(2, 'b')], end: 'complete' });
  await vi.advanceTimersByTimeAsync(60_000);
  expect(requests.length).toBe(1);
  expect(reader.get()).toMatchObject({ state: 'failed', problem: { message: 'refused' } });
  reader.retry();
  await vi.advanceTimersByTimeAsync(200);
  expect(messages()).toEqual(['a', 'b']);
  expect(reader.get()).toMatchObject({ state: 'complete', problem: undefined });
});

test('a refused token signs out', async () => {
  await start(Response.json({ message: 'expired' }, { status: 401 }));
  await vi.advanceTimersByTimeAsync(60_000);
  expect(requests.length).toBe(1);
  expect(refusedTokens.map((problem) => problem.message)).toEqual(['expired']);
});

test('a page that was hidden continues the log', async () => {
  await start({ lines: [line(1, 'a')] }, { lines: [line(1, 'a'), line(2, 'b')] });
  show(false);
  await vi.advanceTimersByTimeAsync(20_000);
  show(true);
  await vi.advanceTimersByTimeAsync(200);
  expect(requests.length).toBe(2);
  expect(messages()).toEqual(['a', 'b']);
});

test('a log that is complete is not read again', async () => {
  await start({ lines: [line(1, 'a')], end: 'complete' });
  show(false);
  await vi.advanceTimersByTimeAsync(20_000);
  show(true);
  window.dispatchEvent(new Event('online'));
  expect(requests.length).toBe(1);
});

test('a log that is sent completely each time has no line twice', async () => {
  const early = { ...line(0, 'early'), timestamp: '2026-01-01T00:00:00Z' };
  await startWith(Infinity, { lines: [early, line(1, 'a')], end: 'lost' }, { lines: [early, line(1, 'a'), line(1, 'a'), line(2, 'b')], end: 'complete' });
  await vi.advanceTimersByTimeAsync(5000);
  expect(messages()).toEqual(['early', 'a', 'a', 'b']);
  expect(requests[1]).toBe('Infinity since beginning');
});

test('behind a proxy, a token that expires while a log is followed is replaced', async () => {
  token = '';
  await start({ lines: [line(1, 'a')], end: { code: 401, message: 'expired' } }, { lines: [line(1, 'a'), line(2, 'b')], end: 'complete' });
  await vi.advanceTimersByTimeAsync(5000);
  expect(messages()).toEqual(['a', 'b']);
  expect([reader.get().state, reader.get().problem]).toEqual(['complete', undefined]);
});
