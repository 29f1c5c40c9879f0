// SPDX-License-Identifier: Apache-2.0

import { useEffect, useState } from 'react';

/** duration writes seconds as 5m30s, like the command line. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const parts: [number, string][] = [
    [Math.floor(whole / 86400), 'd'],
    [Math.floor(whole / 3600) % 24, 'h'],
    [Math.floor(whole / 60) % 60, 'm'],
    [whole % 60, 's'],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return '0s';
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count}${unit}`)
    .join('');
}

export const secondsBetween = (from: string, to: string | number) => (new Date(to).getTime() - new Date(from).getTime()) / 1000;

/** useNow is the time, and renders again in an interval. */
export function useNow(interval = 1000): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), interval);
    return () => clearInterval(timer);
  }, [interval]);
  return now;
}

/** useSettled is a value once it has not changed for some time: what a user types, for requests. */
export function useSettled<Value>(value: Value, delay = 400): Value {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), delay);
    return () => clearTimeout(timer);
  }, [value, delay]);
  return settled;
}

export const localTime = (time: string) => new Date(time).toLocaleString();
