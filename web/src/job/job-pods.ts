// SPDX-License-Identifier: Apache-2.0

import type { JobStatus, PodState } from '../api/client';

/** Pod is a pod of a job, with where its log is. */
export interface Pod extends PodState {
  role: string;
  /** log is the query of the tab with its log. */
  log: string;
}

/** podsOf are the launcher and the workers. */
export function podsOf({ launcherPodStatus, workerPodStatuses = [] }: JobStatus): Pod[] {
  const pods: Pod[] = workerPodStatuses.map((worker) => ({ ...worker, role: `Worker ${worker.index}`, log: `tab=logs&pod=worker-${worker.index}` }));
  if (launcherPodStatus) pods.unshift({ ...launcherPodStatus, role: 'Launcher', log: 'tab=logs&pod=launcher' });
  return pods;
}

/** podOnHost is the pod with a host name of the hostfile: pods of a Job have it with a suffix as their name. */
export const podOnHost = (status: JobStatus, host = ''): Pod | undefined =>
  podsOf(status).find(({ name }) => host && name && (name === host || name.startsWith(`${host}-`)));
