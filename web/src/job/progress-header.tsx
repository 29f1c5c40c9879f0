// SPDX-License-Identifier: Apache-2.0

import { DescriptionList, DescriptionListDescription, DescriptionListGroup, DescriptionListTerm, Progress, ProgressMeasureLocation } from '@patternfly/react-core';
import type { ReactNode } from 'react';
import type { Job } from '../api/client';
import { duration, localTime, secondsBetween, useNow } from '../shared/time';

/** ProgressHeader summarizes where a job is: times, workers, ranks, and what the training reports. */
export function ProgressHeader({ job }: { job: Job }) {
  const now = useNow();
  const status = job.status ?? {};
  const { trainerStatus: training, ranks } = status;
  const stalled = status.conditions?.find((condition) => condition.type === 'Stalled' && condition.status === 'True');
  const items: [string, ReactNode][] = [];
  if (job.metadata.creationTimestamp) items.push(['Created', localTime(job.metadata.creationTimestamp)]);
  if (status.startTime) items.push(['Run time', duration(secondsBetween(status.startTime, status.completionTime ?? now))]);
  if (status.readyWorkers) items.push(['Workers ready', status.readyWorkers]);
  if (ranks) items.push(['Ranks running', `${ranks.running} of ${ranks.total}`]);
  if (training?.step !== undefined) items.push(['Step', training.totalSteps ? `${training.step} of ${training.totalSteps}` : training.step]);
  if (training?.estimatedRemainingSeconds !== undefined && !status.completionTime) items.push(['Time left', `about ${duration(training.estimatedRemainingSeconds)}`]);
  if (stalled) items.push(['Stalled', stalled.message]);
  for (const metric of training?.metrics?.slice(0, 6) ?? []) items.push([metric.name, metric.value]);
  return (
    <>
      <DescriptionList isCompact columnModifier={{ default: '1Col', md: '3Col', xl: '3Col' }} aria-label="Summary">
        {items.map(([term, value]) => (
          <DescriptionListGroup key={term}>
            <DescriptionListTerm>{term}</DescriptionListTerm>
            <DescriptionListDescription>{value}</DescriptionListDescription>
          </DescriptionListGroup>
        ))}
      </DescriptionList>
      {training?.progressPercentage !== undefined && (
        <Progress value={training.progressPercentage} measureLocation={ProgressMeasureLocation.outside} aria-label="Progress of the training" />
      )}
    </>
  );
}
