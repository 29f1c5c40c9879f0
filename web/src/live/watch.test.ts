// SPDX-License-Identifier: Apache-2.0

import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Problem } from '../api/client';
import { hiddenDelay, whileVisible } from './visible';
import { JobWatch } from './watch';

const page = Object.assign(new EventTarget(), { hidden: false });
const show = (isShown: boolean) => {
  page.hidden = !isShown;
  page.dispatchEvent(new Event('visibilitychange'));
};

/** answers of the server, in order; the last is repeated. Each returns what follows the connection. */
type Answer = (connection: { send: (...events: object[]) => void; end: () => void }) => Response | void;
let requests: string[];
const serve = (...answers: Answer[]) => {
  requests = [];
  vi.stubGlobal('fetch', (path: string, { signal }: { signal: AbortSignal }) => {
    requests.push(path);
    const answer = answers.length > 1 ? answers.shift() : answers[0];
    let refused: Response | void = undefined;
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        let isOpen = true;
        signal.addEventListener('abort', () => isOpen && controller.error(signal.reason));
        refused = answer?.({
          send: (...events) => controller.enqueue(new TextEncoder().encode(events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(''))),
          end: () => {
            isOpen = false;
            controller.close();
          },
        });
      },
    });
    return Promise.resolve(refused ?? new Response(body));
  });
};

const added = { type: 'ADDED', kind: 'TrainJob', namespace: 'vision', name: 'a', job: { kind: 'TrainJob', namespace: 'vision', name: 'a', status: 'Pending' } };
const synced = [{ type: 'SYNCED', kind: 'TrainJob', resourceVersion: '5' }, { type: 'SYNCED', kind: 'MPIJob', resourceVersion: '7' }];
const unknown = { type: 'MODIFIED', kind: 'TrainJob', namespace: 'vision', name: 'unknown', changes: { status: 'Running' } };

let watch: JobWatch;
const refusedTokens: Problem[] = [];
const start = (...answers: Answer[]) => startWith('token', ...answers);
const startWith = async (token: string, ...answers: Answer[]) => {
  serve(...answers);
  watch = new JobWatch(token, '', (problem) => refusedTokens.push(problem));
  watch.start();
  await vi.advanceTimersByTimeAsync(150);
};

beforeEach(() => {
  vi.useFakeTimers();
  page.hidden = false;
  vi.stubGlobal('document', page);
  vi.stubGlobal('window', new EventTarget());
});

afterEach(() => {
  watch?.stop();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test('a change of an unknown job, sent before the connection is lost, does not end the watch', async () => {
  await start(
    ({ send, end }) => {
      send(added, ...synced);
      send(unknown);
      send({ type: 'ERROR', code: 500, message: 'gone' });
      end();
    },
    ({ send }) => send(added, ...synced),
  );
  await vi.advanceTimersByTimeAsync(1000);
  expect(requests.length).toBe(2);
  expect(requests[1]).not.toContain('trainJobVersion');
  expect(watch.get().connection.state).toBe('live');
  expect(watch.get().jobs.rows.size).toBe(1);
});

test('a change of an unknown job in an open connection starts the watch over', async () => {
  await start(({ send }) => send(added, ...synced, unknown), ({ send }) => send(added, ...synced));
  await vi.advanceTimersByTimeAsync(1000);
  expect(requests.length).toBe(2);
  expect(watch.get().connection.state).toBe('live');
});

test.each<[string, Answer]>([
  ['ends each connection', ({ end }) => end()],
  ['sends jobs and then an error', ({ send, end }) => (send(added, ...synced, { type: 'ERROR', code: 500, message: 'broken' }), end())],
  ['sends changes of unknown jobs', ({ send }) => send(added, ...synced, unknown)],
  ['sends that the version is too old', ({ send, end }) => (send({ type: 'ERROR', code: 410, message: 'too old' }), end())],
])('a server that %s is asked less and less, and the page says so', async (_, answer) => {
  await start(answer);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(requests.length).toBeGreaterThan(4);
  expect(requests.length).toBeLessThan(12);
  expect(watch.get().connection.state).toBe('lost');
});

test('a connection that has lasted is resumed soon, without a banner', async () => {
  let end = () => {};
  await start(
    (connection) => {
      connection.send(added, ...synced);
      end = connection.end;
    },
    () => {},
  );
  await vi.advanceTimersByTimeAsync(20_000);
  end();
  await vi.advanceTimersByTimeAsync(600);
  expect(requests[1]).toContain('trainJobVersion=5&mpiJobVersion=7');
  expect(watch.get().connection.state).toBe('live');
});

test('a refusal is shown until the permission is granted; a refused token signs out', async () => {
  const refused = () => Response.json({ message: 'no permission' }, { status: 403 });
  await start(refused, refused, ({ send }) => send(added, ...synced));
  await vi.advanceTimersByTimeAsync(59_000);
  expect(requests.length).toBe(1);
  expect(watch.get().connection).toMatchObject({ state: 'refused', problem: { message: 'no permission' } });
  await vi.advanceTimersByTimeAsync(60_000);
  expect(requests.length).toBe(2);
  expect(watch.get().connection.state).toBe('refused');
  await vi.advanceTimersByTimeAsync(60_000);
  expect(watch.get().connection.state).toBe('live');
  watch.stop();
  await start(() => Response.json({ message: 'expired' }, { status: 401 }));
  expect(refusedTokens.map((problem) => problem.message)).toEqual(['expired']);
});

test('a watch that starts over forgets the changes of jobs that were deleted meanwhile', async () => {
  const another = { ...added, name: 'b', job: { ...added.job, name: 'b' } };
  await start(
    ({ send, end }) => {
      send(added, another, ...synced);
      setTimeout(() => {
        send({ type: 'ERROR', code: 410, message: 'too old' });
        end();
      }, 1000);
    },
    ({ send }) => send(another, ...synced),
  );
  const before = watch.get().changes;
  expect([...before.keys()]).toEqual(['TrainJob/vision/a', 'TrainJob/vision/b']);
  await vi.advanceTimersByTimeAsync(5000);
  expect([...watch.get().changes.keys()]).toEqual(['TrainJob/vision/b']);
  // It is sent again, and may have changed.
  expect(watch.get().changes.get('TrainJob/vision/b')).not.toBe(before.get('TrainJob/vision/b'));
});

test('a watch that connects again and again does not gather listeners', async () => {
  const add = vi.spyOn(AbortSignal.prototype, 'addEventListener');
  const remove = vi.spyOn(AbortSignal.prototype, 'removeEventListener');
  await start(({ end }) => end());
  await vi.advanceTimersByTimeAsync(60_000);
  expect(requests.length).toBeGreaterThan(4);
  const gathered = new Map<unknown, number>();
  for (const signal of add.mock.contexts) gathered.set(signal, (gathered.get(signal) ?? 0) + 1);
  for (const signal of remove.mock.contexts) gathered.set(signal, (gathered.get(signal) ?? 0) - 1);
  expect(Math.max(...gathered.values())).toBeLessThan(3);
});

test('a page that is opened in the background connects when it is seen', async () => {
  page.hidden = true;
  await start(({ send }) => send(added, ...synced));
  expect(requests).toEqual([]);
  show(true);
  await vi.advanceTimersByTimeAsync(150);
  expect(watch.get().connection.state).toBe('live');
  show(false);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(requests.length).toBe(1);
  show(true);
  await vi.advanceTimersByTimeAsync(150);
  expect(requests.length).toBe(2);
});

test('a stream is read while the page is visible', async () => {
  const signals: AbortSignal[] = [];
  const end = whileVisible((signal) => {
    signals.push(signal);
    return new Promise((resolve) => signal.addEventListener('abort', () => resolve()));
  });
  show(false);
  await vi.advanceTimersByTimeAsync(hiddenDelay - 1);
  expect(signals.map((signal) => signal.aborted)).toEqual([false]);
  await vi.advanceTimersByTimeAsync(1);
  expect(signals.map((signal) => signal.aborted)).toEqual([true]);
  show(true);
  expect(signals.map((signal) => signal.aborted)).toEqual([true, false]);
  end();
  show(true);
  expect(signals.map((signal) => signal.aborted)).toEqual([true, true]);
});

test('a stream that fails is read again', async () => {
  const read = vi.fn(() => (read.mock.calls.length < 3 ? Promise.reject(new Error('lost')) : Promise.resolve()));
  const end = whileVisible(read);
  await vi.advanceTimersByTimeAsync(500);
  expect(read).toHaveBeenCalledTimes(2);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(read).toHaveBeenCalledTimes(3);
  end();
});

test('a stream that is complete is not read again', async () => {
  const read = vi.fn(() => Promise.resolve());
  const end = whileVisible(read);
  await vi.advanceTimersByTimeAsync(1);
  show(false);
  await vi.advanceTimersByTimeAsync(hiddenDelay);
  show(true);
  expect(read).toHaveBeenCalledTimes(1);
  end();
});

test('behind a proxy, a token that expires during the watch is replaced; a session that has ended signs out', async () => {
  refusedTokens.length = 0;
  await startWith(
    '',
    ({ send }) => send(added, ...synced, { type: 'ERROR', code: 401, message: 'the token is invalid or expired' }),
    ({ send, end }) => {
      send(...synced);
      setTimeout(end, 20_000);
    },
    () => Response.json({ message: 'no session' }, { status: 401 }),
  );
  await vi.advanceTimersByTimeAsync(1000);
  expect(requests.length).toBe(2);
  expect(watch.get().connection.state).toBe('live');
  expect(refusedTokens).toEqual([]);
  await vi.advanceTimersByTimeAsync(30_000);
  expect(refusedTokens.map((problem) => problem.message)).toEqual(['no session']);
});

test("a user's own token that expires during the watch signs out", async () => {
  refusedTokens.length = 0;
  await start(({ send }) => send(...synced, { type: 'ERROR', code: 401, message: 'expired' }));
  await vi.advanceTimersByTimeAsync(60_000);
  expect(requests.length).toBe(1);
  expect(refusedTokens.map((problem) => problem.message)).toEqual(['expired']);
});
