// SPDX-License-Identifier: Apache-2.0

import { Problem, type LogLine } from '../api/client';
import { stream, TokenExpired } from '../live/sse';
import { whileVisible } from '../live/visible';
import { appended, printable } from './log-buffer';

export interface Log {
  lines: LogLine[];
  /** lost: the log is read again by itself; failed: only if the user wants it. */
  state: 'reading' | 'complete' | 'lost' | 'failed';
  problem?: Problem;
}

/** LogRequest selects lines: the last ones of each pod, or those since a time. */
export interface LogRequest {
  tailLines: number;
  since?: string;
}

/** The lines of a moment are shown together. */
const batch = 150;
/** Pods have clocks of their own, and a line may arrive late: this much is read again, in milliseconds. */
const overlap = 60_000;
/** The lines since a time are so many at most, in each pod. */
const resumeLines = 100_000;

/**
 * LogReader follows the log of a job while the page is visible. After a lost connection it
 * continues where it was: lines that it has are not added again.
 */
export class LogReader {
  private log: Log = { lines: [], state: 'reading' };
  private readonly listeners = new Set<() => void>();
  private pending: LogLine[] = [];
  private timer: ReturnType<typeof setInterval> | undefined;
  private end = () => {};

  constructor(
    private readonly path: (request: LogRequest) => string,
    /** Infinity: the server sends all lines with each request. */
    private readonly tailLines: number,
    private readonly token: string,
    private readonly onRefusedToken: (problem: Problem) => void,
  ) {}

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  };

  readonly get = () => this.log;

  readonly start = () => {
    this.timer = setInterval(() => this.pending.length > 0 && this.publish(), batch);
    this.end = whileVisible((signal) => this.read(signal));
  };

  readonly stop = () => {
    clearInterval(this.timer);
    this.end();
    this.publish();
  };

  /** retry continues a log that has failed. */
  readonly retry = () => {
    this.stop();
    this.start();
  };

  private async read(signal: AbortSignal): Promise<void> {
    this.publish();
    const isWhole = this.tailLines === Infinity;
    const since = isWhole ? undefined : resumption(this.log.lines);
    const isNew = unseen(this.log.lines, isWhole ? -Infinity : since === undefined ? Infinity : Date.parse(since));
    const request = since === undefined ? { tailLines: this.tailLines } : { tailLines: resumeLines, since };
    try {
      await stream(this.path(request), this.token, signal, (messages) => {
        if (this.log.state !== 'reading') this.publish({ state: 'reading', problem: undefined });
        for (const message of messages) {
          const { log } = message as { log: LogLine };
          // Once, here: what is shown, searched and downloaded is the same text.
          const line = { ...log, message: printable(log.message) };
          if (isNew(line)) this.pending.push(line);
        }
      });
      this.publish({ state: 'complete' });
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof TokenExpired) throw error;
      const problem = error instanceof Problem ? error : new Problem(0, String(error));
      this.publish({ state: isFinal(problem) ? 'failed' : 'lost', problem });
      if (problem.code === 401) this.onRefusedToken(problem);
      if (!isFinal(problem)) throw problem;
    }
  }

  private publish(change: Partial<Log> = {}) {
    const more = this.pending;
    this.pending = [];
    this.log = { ...this.log, ...change, lines: more.length > 0 ? appended(this.log.lines, more) : this.log.lines };
    for (const listener of this.listeners) listener();
  }
}

/** isFinal: the same request would be refused again. */
const isFinal = ({ code }: Problem) => (code >= 400 && code < 500 && code !== 408 && code !== 429) || code === 501;

/** resumption is the time since which a log is read again; undefined: from the beginning. */
function resumption(lines: LogLine[]): string | undefined {
  let newest = -Infinity;
  for (const line of lines) newest = Math.max(newest, timeOf(line));
  return Number.isFinite(newest) ? new Date(newest - overlap).toISOString() : undefined;
}

/** unseen reports whether a line is none of the lines since a time; each of them is expected once. */
function unseen(lines: LogLine[], from: number): (line: LogLine) => boolean {
  const seen = new Map<string, number>();
  for (const line of lines) {
    if (timeOf(line) >= from) seen.set(identity(line), (seen.get(identity(line)) ?? 0) + 1);
  }
  return (line) => {
    const count = seen.get(identity(line)) ?? 0;
    if (count > 0) seen.set(identity(line), count - 1);
    return count === 0;
  };
}

/** timeOf a line without a time is before all others. */
const timeOf = (line: LogLine) => {
  const time = Date.parse(line.timestamp);
  return time > 0 ? time : -Infinity;
};

const identity = (line: LogLine) => `${line.podName}/${line.container}/${line.timestamp}/${line.message}`;
