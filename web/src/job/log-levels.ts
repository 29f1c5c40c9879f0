// SPDX-License-Identifier: Apache-2.0

import type { LogLine } from '../api/client';
import { sourceOf } from './log-buffer';

/** levels of lines, from the least to the most severe. */
export const levels = ['debug', 'info', 'warning', 'error'] as const;
export type Level = (typeof levels)[number];

/** How programs write levels: as words in capitals, and as level=error or "level":"error". Python names errors. */
const words: [Level, RegExp][] = [
  ['error', /\b(?:ERROR|FATAL|CRITICAL|PANIC)\b|^Traceback \(|^[\w.]*(?:Error|Exception)\b:?|^(?:error|fatal|panic):/],
  ['warning', /\b(?:WARN|WARNING)\b|\b\w*Warning: |^warning:/],
  ['info', /\b(?:INFO|NOTICE)\b/],
  ['debug', /\b(?:DEBUG|TRACE)\b/],
];
const keyed = /\b(?:level|lvl|severity)["']?\s*[=:]\s*["']?(trace|debug|info|notice|warn|error|fatal|critical|panic)/i;
const names: Record<string, Level> = { trace: 'debug', debug: 'debug', info: 'info', notice: 'info', warn: 'warning', error: 'error', fatal: 'error', critical: 'error', panic: 'error' };

/** levelOf a message; undefined if it names none. */
export function levelOf(message: string): Level | undefined {
  const named = keyed.exec(message)?.[1];
  return named ? names[named.toLowerCase()] : words.find(([, word]) => word.test(message))?.[0];
}

/** withLevel returns the lines of a level and of more severe ones. An indented line belongs to the line before it, of the same pod and rank. */
export function withLevel(lines: LogLine[], least: string): LogLine[] {
  const lowest = levels.indexOf(least as Level);
  if (lowest < 0) return lines;
  const before = new Map<string, Level | undefined>();
  return lines.filter((line) => {
    const source = sourceOf(line);
    const level = levelOf(line.message) ?? (/^\s+\S|^$/.test(line.message) || line.continues ? before.get(source) : undefined);
    before.set(source, level);
    return level !== undefined && levels.indexOf(level) >= lowest;
  });
}
