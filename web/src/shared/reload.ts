// SPDX-License-Identifier: Apache-2.0

// After an update, the server no longer has the files of an older page: what such a page loads
// later is not found. The new index names the new files.
const key = 'trireme-reloaded';

/** A second failure within this time has another cause, which a reload does not remove. */
const pause = 60_000;

interface Page {
  storage: Pick<Storage, 'getItem' | 'setItem'>;
  /** isServed: the server sends the index. Otherwise, a reload would show the browser's error. */
  isServed: () => Promise<boolean>;
  reload: () => void;
}

const thisPage = (): Page => ({
  storage: sessionStorage,
  isServed: () => fetch('/', { cache: 'no-store' }).then((response) => response.ok, () => false),
  reload: () => location.reload(),
});

/** reloadOnce loads the page again, but not a second time in a minute. */
export async function reloadOnce(now: number, { storage, isServed, reload }: Page = thisPage()): Promise<void> {
  if (now - Number(storage.getItem(key) ?? 0) < pause) return;
  if (!(await isServed())) return;
  storage.setItem(key, String(now));
  reload();
}
