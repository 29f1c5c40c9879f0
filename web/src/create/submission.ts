// SPDX-License-Identifier: Apache-2.0

import { Problem, type PreflightReport } from '../api/client';

export interface State {
  isBusy: boolean;
  problem?: Problem;
  /** report of the preflight checks, after a check. */
  report?: PreflightReport;
}

const idle: State = { isBusy: false };

/**
 * Submission is the state of what is sent for a document: one thing at a time. When the document
 * changes, the result of a check is no longer wanted; that of a creation is.
 */
export class Submission {
  private state = idle;
  private readonly listeners = new Set<() => void>();
  private check: AbortController | undefined;
  private isCreating = false;

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  };

  readonly get = () => this.state;

  /** create returns undefined if the document was not accepted, or if one is being sent. */
  async create<Result>(send: () => Promise<Result>): Promise<Result | undefined> {
    if (this.state.isBusy) return undefined;
    this.isCreating = true;
    this.publish({ isBusy: true });
    try {
      const result = await send();
      this.publish(idle);
      return result;
    } catch (error) {
      this.publish({ isBusy: false, problem: problemOf(error) });
      return undefined;
    } finally {
      this.isCreating = false;
    }
  }

  async runCheck(send: (signal: AbortSignal) => Promise<PreflightReport | undefined>): Promise<void> {
    if (this.state.isBusy) return;
    const check = new AbortController();
    this.check = check;
    this.publish({ isBusy: true });
    const result = await send(check.signal).then(
      (report): State => ({ isBusy: false, report }),
      (error: unknown): State => ({ isBusy: false, problem: problemOf(error) }),
    );
    if (!check.signal.aborted) this.publish(result);
  }

  /** reset is called when the document changes. */
  reset() {
    if (this.isCreating) return;
    this.check?.abort();
    this.check = undefined;
    this.publish(idle);
  }

  private publish(state: State) {
    this.state = state;
    for (const listener of this.listeners) listener();
  }
}

const problemOf = (error: unknown) => (error instanceof Problem ? error : new Problem(0, String(error)));
