// SPDX-License-Identifier: Apache-2.0

import { useSyncExternalStore } from 'react';

export type Theme = 'light' | 'dark';

const stored = 'trireme-theme';
const preference = window.matchMedia('(prefers-color-scheme: dark)');
const listeners = new Set<() => void>();

/** theme is what the user has chosen, or the preference of the system. */
export function theme(): Theme {
  const chosen = localStorage.getItem(stored);
  if (chosen === 'light' || chosen === 'dark') return chosen;
  return preference.matches ? 'dark' : 'light';
}

export function applyTheme() {
  document.documentElement.classList.toggle('pf-v6-theme-dark', theme() === 'dark');
  for (const listener of listeners) listener();
}

export function chooseTheme(chosen: Theme) {
  localStorage.setItem(stored, chosen);
  applyTheme();
}

preference.addEventListener('change', applyTheme);

export const useTheme = () =>
  useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, theme);
