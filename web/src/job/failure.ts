// SPDX-License-Identifier: Apache-2.0

import type { Diagnosis, Finding, JobStatus } from '../api/client';
import { printable } from './log-buffer';
import { podOnHost, podsOf, type Pod } from './job-pods';

/** rootCause is the finding that the operator's status is certain of. It has the remedy. */
export const rootCause = (diagnosis: Diagnosis | undefined): Finding | undefined => diagnosis?.findings.find((finding) => finding.rank === 'cause');

/**
 * failedPod is the pod of the process that failed, or else the pod that failed for the job's
 * cause. Workers come before the launcher, which fails with each of them.
 */
export function failedPod(status: JobStatus): Pod | undefined {
  const failed = podsOf(status).filter((pod) => pod.phase === 'Failed').reverse();
  return (
    podOnHost(status, status.failedProcess?.host) ??
    failed.find((pod) => status.failureCause && pod.reason === status.failureCause) ??
    (status.failureReason === 'LauncherFailed' ? failed.at(-1) : failed[0])
  );
}

/** logOf is where the failure is in the log: its error if the program wrote one, its pod or rank otherwise. */
export function logOf({ failedProcess }: JobStatus, pod: Pod | undefined): { search: string; text: string } {
  const written = printable(failedProcess?.error || failedProcess?.lastLines?.at(-1) || '');
  if (written) return { search: `tab=logs&search=${encodeURIComponent(written)}`, text: 'Show them in the log' };
  const rank = failedProcess?.rank;
  if (rank !== undefined) return { search: `tab=logs&rank=${rank}`, text: `Show the log of rank ${rank}` };
  return pod ? { search: pod.log, text: `Show the log of ${pod.role.toLowerCase()}` } : { search: 'tab=logs', text: 'Show the log' };
}
