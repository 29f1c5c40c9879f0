// SPDX-License-Identifier: Apache-2.0

import { removeDraft } from '../create/draft';
import { removeNamespace } from '../live/namespace';

/** The token is in memory; see ADR 24. */
export interface Credentials {
  /** token is "" if a proxy in front of the server has signed the user in. */
  token: string;
  defaultNamespace: string;
  /** user is who the proxy has signed in. */
  user?: string;
}

/** Credentials are kept here if the user asks for it: for this tab, until it is closed. */
const kept = 'trireme-token';

export const keep = (credentials: Credentials) => sessionStorage.setItem(kept, JSON.stringify(credentials));

/** keptCredentials ignores what is not complete: the user signs in again. */
export function keptCredentials(): Credentials | undefined {
  try {
    const { token, defaultNamespace } = JSON.parse(sessionStorage.getItem(kept) ?? '') as Partial<Credentials>;
    if (typeof token === 'string' && token) return { token, defaultNamespace: typeof defaultNamespace === 'string' ? defaultNamespace : '' };
  } catch {
    // Not JSON, or nothing is kept.
  }
  return undefined;
}

/**
 * forget removes what is kept. The draft may contain secrets, so it is removed when the user signs
 * out. When a token expires, only the token is: the user signs in again and continues.
 */
export function forget(hasExpired: boolean) {
  sessionStorage.removeItem(kept);
  if (hasExpired) return;
  removeDraft();
  removeNamespace();
}
