// SPDX-License-Identifier: Apache-2.0

import type { LogLine } from '../api/client';
import { sourceOf } from './log-buffer';

/** ShownLine is a line, or one that several ranks have printed. */
export interface ShownLine extends LogLine {
  /** source is where it comes from, in words. */
  source: string;
}

/** Ranks print the same line within this time, in milliseconds. */
const window = 10_000;

interface Group {
  line: LogLine;
  started: number;
  ranks: Set<number>;
}

/** Equal are the groups of one message. */
interface Equal {
  groups: Group[];
  /** from is the first group that is not too old to be joined. */
  from: number;
  /** next is the group that a rank joins with its next line, or begins. */
  next: Map<number, number>;
}

/**
 * folded returns the lines with equal lines of several ranks as one, where the first of them is.
 * A rank that prints a line again begins the next one: three equal lines of each rank stay three.
 */
export function folded(lines: LogLine[]): ShownLine[] {
  const groups: Group[] = [];
  const equals = new Map<string, Equal>();
  const all = new Set<number>();
  for (const line of lines) {
    const { rank, message } = line;
    const group: Group = { line, started: Date.parse(line.timestamp), ranks: new Set() };
    if (rank === undefined || rank === null) {
      groups.push(group);
      continue;
    }
    all.add(rank);
    const equal: Equal = equals.get(message) ?? { groups: [], from: 0, next: new Map() };
    equals.set(message, equal);
    while ((equal.groups[equal.from]?.started ?? Infinity) < group.started - window) equal.from++;
    const at = Math.max(equal.from, equal.next.get(rank) ?? 0);
    if (at === equal.groups.length) {
      equal.groups.push(group);
      groups.push(group);
    }
    equal.groups[at]?.ranks.add(rank);
    equal.next.set(rank, at + 1);
  }
  return groups.map(({ line, ranks }) => ({ ...line, source: ranks.size > 1 ? ranksInWords(ranks, all.size) : sourceOf(line) }));
}

/** ranksInWords names all ranks, or the ranges of some. */
function ranksInWords(ranks: Set<number>, total: number): string {
  if (ranks.size === total) return `all ${total} ranks`;
  const sorted = [...ranks].sort((a, b) => a - b);
  const ranges: [number, number][] = [];
  for (const rank of sorted) {
    const last = ranges.at(-1);
    if (last && last[1] === rank - 1) last[1] = rank;
    else ranges.push([rank, rank]);
  }
  return `ranks ${ranges.map(([first, last]) => (first === last ? first : `${first}-${last}`)).join(', ')}`;
}
