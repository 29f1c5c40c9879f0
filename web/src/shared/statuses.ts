// SPDX-License-Identifier: Apache-2.0

/** statuses are the words of the API for the status of a job. */
export const statuses = ['Submitted', 'Queued', 'Suspended', 'Deleting', 'Pending', 'Restarting', 'Running', 'Succeeded', 'Failed'] as const;

export const hasFinished = (status: string) => status === 'Succeeded' || status === 'Failed';
