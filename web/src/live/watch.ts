// SPDX-License-Identifier: Apache-2.0

import { Problem } from '../api/client';
import { applied, isSynced, keyOf, noJobs, UnknownJob, type Jobs, type WatchEvent } from './events';
import { retryDelay, settled } from './retry';
import { stream, TokenExpired } from './sse';
import { hiddenDelay } from './visible';

/** Connection is the state of the watch, for users. */
export type Connection =
  | { state: 'connecting' }
  | { state: 'live' }
  | { state: 'lost'; problem: Problem }
  | { state: 'refused'; problem: Problem };

export interface Snapshot {
  jobs: Jobs;
  connection: Connection;
  /** changes is the number of the last event of each job, so that pages know when to read it again. */
  changes: ReadonlyMap<string, number>;
}

/** Permissions are granted by people: a refused watch is tried again after this time. */
const refusedDelay = 60_000;
/** Changes are shown together, at most this often. */
const batch = 100;

/**
 * JobWatch is the one connection of the page that receives all changes of jobs. It resumes
 * after a lost connection, and starts over if the server no longer has the changes.
 */
export class JobWatch {
  private snapshot: Snapshot = { jobs: noJobs, connection: { state: 'connecting' }, changes: new Map() };
  private readonly listeners = new Set<() => void>();
  private stopped = new AbortController();
  private current = new AbortController();
  private pending: WatchEvent[] = [];
  private events = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private hidden: ReturnType<typeof setTimeout> | undefined;
  private wake: () => void = () => {};

  constructor(
    private readonly token: string,
    private readonly namespace: string,
    private readonly onRefusedToken: (problem: Problem) => void,
  ) {}

  start() {
    document.addEventListener('visibilitychange', this.onVisibility);
    window.addEventListener('online', this.onOnline);
    this.stopped = new AbortController();
    void this.run(this.stopped.signal);
  }

  stop() {
    document.removeEventListener('visibilitychange', this.onVisibility);
    window.removeEventListener('online', this.onOnline);
    clearTimeout(this.timer);
    clearTimeout(this.hidden);
    this.timer = undefined;
    this.pending = [];
    this.stopped.abort();
    this.current.abort();
  }

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  readonly get = () => this.snapshot;

  private readonly onVisibility = () => {
    clearTimeout(this.hidden);
    if (document.hidden) this.hidden = setTimeout(() => this.current.abort(), hiddenDelay);
    else this.wake();
  };

  private readonly onOnline = () => this.wake();

  private async run(stopped: AbortSignal) {
    let failures = 0;
    // A page that is opened in the background connects when it is seen.
    if (document.hidden) await this.untilAwake(Infinity);
    while (!stopped.aborted) {
      const current = new AbortController();
      this.current = current;
      const began = Date.now();
      let ended: unknown;
      try {
        await stream(this.path(), this.token, AbortSignal.any([stopped, current.signal]), (messages) => this.receive(messages as WatchEvent[]));
      } catch (error) {
        ended = error;
      }
      if (stopped.aborted) return;
      if (current.signal.aborted && !(current.signal.reason instanceof UnknownJob)) {
        // The page was hidden.
        if (document.hidden) await this.untilAwake(Infinity);
        continue;
      }
      if (Date.now() - began >= settled) failures = 0;
      failures++;
      if (!this.handle(current.signal.aborted ? current.signal.reason : ended, failures)) return;
      await this.untilAwake(this.snapshot.connection.state === 'refused' ? refusedDelay : retryDelay(failures));
    }
  }

  private untilAwake(delay: number) {
    return new Promise<void>((resolve) => {
      const { signal } = this.stopped;
      const wake = () => {
        clearTimeout(timer);
        signal.removeEventListener('abort', wake);
        resolve();
      };
      const timer = delay === Infinity ? undefined : setTimeout(wake, delay);
      this.wake = wake;
      signal.addEventListener('abort', wake);
    });
  }

  private path() {
    const query = new URLSearchParams();
    if (this.namespace) query.set('namespace', this.namespace);
    const { versions } = this.snapshot.jobs;
    if (isSynced(this.snapshot.jobs)) {
      query.set('trainJobVersion', versions.TrainJob ?? '');
      query.set('mpiJobVersion', versions.MPIJob ?? '');
    } else {
      this.publish({ ...this.snapshot, jobs: noJobs, changes: new Map() });
    }
    return `/api/v1/watch/jobs?${query}`;
  }

  /** handle returns false if a retry makes no sense. */
  private handle(error: unknown, failures: number) {
    try {
      this.flush();
    } catch (unknown) {
      error = unknown;
    }
    // A server ends a connection now and then, for example when it stops.
    if ((error === undefined || error instanceof TokenExpired) && failures === 1) return true;
    error ??= new Problem(0, 'The server ends each connection');
    const problem = error instanceof Problem ? error : new Problem(0, String(error));
    if (error instanceof UnknownJob || problem.code === 410) {
      this.publish({ ...this.snapshot, jobs: { ...this.snapshot.jobs, versions: {} } });
      if (failures === 1) return true;
    }
    if (problem.code === 401) {
      this.onRefusedToken(problem);
      return false;
    }
    if (problem.code === 403) {
      this.publish({ jobs: noJobs, changes: new Map(), connection: { state: 'refused', problem } });
      return true;
    }
    this.publish({ ...this.snapshot, connection: { state: 'lost', problem } });
    return true;
  }

  private receive(events: WatchEvent[]) {
    for (const event of events) this.pending.push(event);
    if (events.length === 0 && isSynced(this.snapshot.jobs) && this.snapshot.connection.state !== 'live') {
      this.publish({ ...this.snapshot, connection: { state: 'live' } });
    }
    this.timer ??= setTimeout(() => {
      try {
        this.flush();
      } catch (error) {
        this.current.abort(error);
      }
    }, batch);
  }

  private flush() {
    clearTimeout(this.timer);
    this.timer = undefined;
    const events = this.pending;
    this.pending = [];
    if (events.length === 0) return;
    const jobs = applied(this.snapshot.jobs, events);
    const changes = new Map(this.snapshot.changes);
    for (const event of events) {
      if (event.type === 'DELETED') changes.delete(keyOf(event));
      else if (event.type !== 'SYNCED') changes.set(keyOf(event), ++this.events);
    }
    this.publish({ jobs, changes, connection: isSynced(jobs) ? { state: 'live' } : this.snapshot.connection });
  }

  private publish(snapshot: Snapshot) {
    this.snapshot = snapshot;
    for (const listener of this.listeners) listener();
  }
}
