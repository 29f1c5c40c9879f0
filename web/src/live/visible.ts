// SPDX-License-Identifier: Apache-2.0

import { retryDelay, settled } from './retry';

/** A page that nobody sees gives its connections back after this time: browsers have six for one host. */
export const hiddenDelay = 10_000;

/**
 * whileVisible reads a stream while the page is visible. A stream that is read when the page has
 * been hidden for some time is aborted, and read again when the page is visible again. If the
 * read rejects, it is repeated, less and less often; if it resolves, the stream is complete. The
 * returned function ends it.
 */
export function whileVisible(read: (signal: AbortSignal) => Promise<void>): () => void {
  let current: AbortController | undefined;
  let isComplete = false;
  let failures = 0;
  let hidden: ReturnType<typeof setTimeout> | undefined;
  let retry: ReturnType<typeof setTimeout> | undefined;
  const start = () => {
    clearTimeout(retry);
    const mine = new AbortController();
    current = mine;
    const began = Date.now();
    const complete = () => {
      if (!mine.signal.aborted) isComplete = true;
    };
    const fail = () => {
      if (mine.signal.aborted) return;
      current = undefined;
      if (Date.now() - began >= settled) failures = 0;
      failures++;
      retry = setTimeout(wake, retryDelay(failures));
    };
    read(mine.signal).then(complete, fail);
  };
  const wake = () => {
    if (!document.hidden && !current) start();
  };
  const pause = () => {
    if (isComplete) return;
    clearTimeout(retry);
    current?.abort();
    current = undefined;
  };
  const onVisibility = () => {
    clearTimeout(hidden);
    if (document.hidden) hidden = setTimeout(pause, hiddenDelay);
    else wake();
  };
  document.addEventListener('visibilitychange', onVisibility);
  window.addEventListener('online', wake);
  wake();
  return () => {
    document.removeEventListener('visibilitychange', onVisibility);
    window.removeEventListener('online', wake);
    clearTimeout(hidden);
    clearTimeout(retry);
    current?.abort();
  };
}
