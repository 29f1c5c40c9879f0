// SPDX-License-Identifier: Apache-2.0

import { useEffect, useState } from 'react';
import { Problem, type LogLine } from '../api/client';
import { stream } from '../live/sse';
import { useSession } from '../session/session';
import { appended } from './log-buffer';
import type { JobRef } from './use-job';

export interface Log {
  lines: LogLine[];
  state: 'reading' | 'complete' | 'failed';
  problem?: Problem;
}

/** The lines of a moment are shown together. */
const batch = 150;

/** useLog reads the log of all pods of a job, merged by time, and follows it. */
export function useLog({ plural, namespace, name }: JobRef, tailLines: number, attempt: number): Log {
  const { token } = useSession();
  const [log, setLog] = useState<Log>({ lines: [], state: 'reading' });
  useEffect(() => {
    const stop = new AbortController();
    let pending: LogLine[] = [];
    let isFirst = true;
    const publish = (change: Partial<Log> = {}) => {
      const more = pending;
      pending = [];
      const restart = isFirst;
      isFirst = false;
      setLog((before) => ({ ...(restart ? { state: 'reading' } : before), ...change, lines: appended(restart ? [] : before.lines, more) }) as Log);
    };
    const timer = setInterval(() => pending.length > 0 && publish(), batch);
    const path = `/api/v1/namespaces/${namespace}/${plural}/${name}/logs?follow=true&tailLines=${tailLines}`;
    stream(path, token, stop.signal, (messages) => {
      for (const message of messages) pending.push((message as { log: LogLine }).log);
    })
      .then(() => publish({ state: 'complete' }))
      .catch((error: unknown) => {
        if (!stop.signal.aborted) publish({ state: 'failed', problem: error instanceof Problem ? error : new Problem(0, String(error)) });
      })
      .finally(() => clearInterval(timer));
    return () => {
      clearInterval(timer);
      stop.abort();
    };
  }, [token, plural, namespace, name, tailLines, attempt]);
  return log;
}
