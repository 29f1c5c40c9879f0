// SPDX-License-Identifier: Apache-2.0

import type { LogLine } from '../api/client';

/** maxLines is how many lines a page keeps; older ones are dropped. */
export const maxLines = 200_000;

/** appended returns the newest lines of a log; each line of a batch is kept as it is. */
export function appended(lines: LogLine[], more: LogLine[]): LogLine[] {
  const all = lines.concat(more);
  return all.length > maxLines ? all.slice(all.length - maxLines) : all;
}

export interface LogFilter {
  /** launcher, worker-N, or "" for all pods. */
  pod: string;
  rank: string;
}

export const podOf = (line: LogLine) => (line.podType === 'worker' ? `worker-${line.index}` : line.podType);

/** filtered returns the lines of a pod or a rank. */
export function filtered(lines: LogLine[], { pod, rank }: LogFilter): LogLine[] {
  if (!pod && !rank) return lines;
  return lines.filter((line) => (!pod || podOf(line) === pod) && (!rank || String(line.rank) === rank));
}

/** found returns the positions of the lines that contain the text, in any case. */
export function found(lines: LogLine[], search: string): number[] {
  if (!search) return [];
  const wanted = search.toLowerCase();
  return lines.flatMap((line, index) => (line.message.toLowerCase().includes(wanted) ? [index] : []));
}

/** parts splits a text into those that match the search, and those between. */
export function parts(text: string, search: string): { text: string; isMatch: boolean }[] {
  if (!search) return [{ text, isMatch: false }];
  const result: { text: string; isMatch: boolean }[] = [];
  const [lower, wanted] = [text.toLowerCase(), search.toLowerCase()];
  let from = 0;
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, from)) {
    if (at > from) result.push({ text: text.slice(from, at), isMatch: false });
    result.push({ text: text.slice(at, at + wanted.length), isMatch: true });
    from = at + wanted.length;
  }
  if (from < text.length) result.push({ text: text.slice(from), isMatch: false });
  return result;
}

// Colours, movements and links of terminals.
const control = /\u001b\[[0-9;?]*[A-Za-z]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[\u0000-\u0008\u000b-\u001f]/g;

/** printable is a text without control sequences. */
export const printable = (text: string) => text.replace(control, '');

/** sourceOf names where a line comes from. */
export const sourceOf = (line: LogLine) => podOf(line) + (line.rank === undefined || line.rank === null ? '' : ` rank ${line.rank}`);

export const asText = (lines: LogLine[]) => lines.map((line) => `${line.timestamp} ${sourceOf(line)} ${line.message}\n`).join('');
