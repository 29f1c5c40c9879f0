// SPDX-License-Identifier: Apache-2.0

// The namespace that a user who may not watch all has chosen: for this tab, until it is closed.
const key = 'trireme-namespace';

export const keptNamespace = (): string => sessionStorage.getItem(key) ?? '';
export const removeNamespace = () => sessionStorage.removeItem(key);

export function keepNamespace(namespace: string) {
  if (namespace) sessionStorage.setItem(key, namespace);
  else removeNamespace();
}
