// SPDX-License-Identifier: Apache-2.0

import { useEffect, useState } from 'react';
import { Problem, type LogLine } from '../api/client';
import { stream } from '../live/sse';
import { whileVisible } from '../live/visible';
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

/** logPath is the path of a job's log; the parts come from the address of the page. */
export function logPath(job: Pick<JobRef, 'plural' | 'namespace' | 'name'>, tailLines: number): string {
  const [namespace, plural, name] = [job.namespace, job.plural, job.name].map(encodeURIComponent);
  return `/api/v1/namespaces/${namespace}/${plural}/${name}/logs?follow=true&tailLines=${tailLines}`;
}

/** useLog reads the log of all pods of a job, merged by time, and follows it. */
export function useLog({ plural, namespace, name }: JobRef, tailLines: number, attempt: number): Log {
  const { token } = useSession();
  const [log, setLog] = useState<Log>({ lines: [], state: 'reading' });
  useEffect(() => {
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
    const path = logPath({ plural, namespace, name }, tailLines);
    const end = whileVisible(async (signal) => {
      // A page that was hidden reads the log again.
      pending = [];
      isFirst = true;
      await stream(path, token, signal, (messages) => {
        for (const message of messages) pending.push((message as { log: LogLine }).log);
      })
        .then(() => publish({ state: 'complete' }))
        .catch((error: unknown) => {
          if (!signal.aborted) publish({ state: 'failed', problem: error instanceof Problem ? error : new Problem(0, String(error)) });
        });
    });
    return () => {
      clearInterval(timer);
      end();
    };
  }, [token, plural, namespace, name, tailLines, attempt]);
  return log;
}
