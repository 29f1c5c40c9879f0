// SPDX-License-Identifier: Apache-2.0

/** A page that nobody sees gives its connections back after this time: browsers have six for one host. */
export const hiddenDelay = 10_000;

/**
 * whileVisible reads a stream while the page is visible. A stream that is read when the page has
 * been hidden for some time is aborted, and read again when the page is visible again. The
 * returned function ends it.
 */
export function whileVisible(read: (signal: AbortSignal) => Promise<void>): () => void {
  let current: AbortController | undefined;
  let isComplete = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const start = () => {
    const mine = new AbortController();
    current = mine;
    void read(mine.signal).finally(() => {
      if (!mine.signal.aborted) isComplete = true;
    });
  };
  const pause = () => {
    if (isComplete) return;
    current?.abort();
    current = undefined;
  };
  const onVisibility = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(pause, hiddenDelay);
    else if (!current) start();
  };
  document.addEventListener('visibilitychange', onVisibility);
  if (!document.hidden) start();
  return () => {
    document.removeEventListener('visibilitychange', onVisibility);
    clearTimeout(timer);
    current?.abort();
  };
}
