// SPDX-License-Identifier: Apache-2.0

import type { JobStatus } from '../api/client';
import { secondsBetween } from '../shared/time';

export interface Step {
  name: string;
  /** start and seconds from the submission of the job. */
  start: number;
  seconds: number;
}

/** What happens until a step is reached. */
const names: Record<string, string> = {
  Admitted: 'Wait for admission',
  Scheduled: 'Schedule the pods',
  PodsReady: 'Start the containers',
  WorkersReached: 'Reach the workers',
  FirstRankUp: 'Start MPI',
  Finished: 'Run',
};

/** stepsOf returns what a job did until it ran, from the timeline of its status. */
export function stepsOf(timeline: JobStatus['timeline']): Step[] {
  const reached = [...(timeline ?? [])].sort((a, b) => a.time.localeCompare(b.time));
  const first = reached[0];
  if (!first) return [];
  return reached.slice(1).map((entry, index) => {
    const before = reached[index] ?? first;
    return { name: names[entry.step] ?? entry.step, start: secondsBetween(first.time, before.time), seconds: secondsBetween(before.time, entry.time) };
  });
}

/** slowestOf is the step of the start that took longest; running is not part of the start. */
export function slowestOf(steps: Step[]): Step | undefined {
  return steps.filter((step) => step.name !== names.Finished && step.seconds > 0).reduce<Step | undefined>((slowest, step) => (!slowest || step.seconds > slowest.seconds ? step : slowest), undefined);
}
