// SPDX-License-Identifier: Apache-2.0

import { useEffect, useMemo, useSyncExternalStore } from 'react';
import { useSession } from '../session/session';
import { LogReader, type Log, type LogRequest } from './log-reader';
import type { JobRef } from './use-job';

/** logPath is the path of a job's log; the parts come from the address of the page. */
export function logPath(job: Pick<JobRef, 'plural' | 'namespace' | 'name' | 'record'>, { tailLines, since }: LogRequest): string {
  const [namespace, plural, name] = [job.namespace, job.plural, job.name].map(encodeURIComponent);
  if (job.record) return `/api/v1/namespaces/${namespace}/history/${plural}/${encodeURIComponent(job.record)}/logs`;
  const path = `/api/v1/namespaces/${namespace}/${plural}/${name}/logs?follow=true&tailLines=${tailLines}`;
  return since ? `${path}&since=${encodeURIComponent(since)}` : path;
}

/** useLog reads the log of all pods of a job, merged by time, and follows it. The log of a record is complete. */
export function useLog({ plural, namespace, name, record }: JobRef, tailLines: number): { log: Log; retry: () => void } {
  const { token, signOut } = useSession();
  const reader = useMemo(
    () => new LogReader((request) => logPath({ plural, namespace, name, record }, request), record ? Infinity : tailLines, token, signOut),
    [token, signOut, plural, namespace, name, record, tailLines],
  );
  useEffect(() => {
    reader.start();
    return reader.stop;
  }, [reader]);
  return { log: useSyncExternalStore(reader.subscribe, reader.get), retry: reader.retry };
}
